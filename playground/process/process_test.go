package process

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestStartTimeIsFoundBehindANameWithSpacesAndParentheses(t *testing.T) {
	const stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1"
	got, err := parseStartTime(stat)
	if err != nil || got != 98765 {
		t.Errorf("got %d, %v, want %d", got, err, 98765)
	}
	if _, err := parseStartTime("42 (a) Z 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1"); err == nil {
		t.Error("a process that has ended is taken to be alive")
	}
}

func TestAProcessWithTheSameNumberButAnotherStartIsNotEnded(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Identity{
		"another start":     {PID: id.PID, StartTime: id.StartTime + 1, BootID: id.BootID},
		"an earlier boot":   {PID: id.PID, StartTime: id.StartTime, BootID: "another"},
		"no process at all": {},
	} {
		if other.Alive() {
			t.Errorf("%s: taken to be alive", name)
		}
		if err := other.End(t.Context(), time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !id.Alive() {
		t.Fatal("the process was ended")
	}
	if err := id.End(t.Context(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	<-ended
	if id.Alive() {
		t.Error("the process is still taken to be alive")
	}
}

func TestAChildIsStartedAgainUntilItIsStopped(t *testing.T) {
	dir := t.TempDir()
	child, err := Start(Spec{
		Name:   "child",
		Path:   "/bin/sh",
		Args:   []string{"-c", "echo started; echo x >> runs; exec sleep 600"},
		Dir:    dir,
		LogDir: dir,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	waitForLines(t, filepath.Join(dir, "runs"), 1)
	child.Restart()
	waitForLines(t, filepath.Join(dir, "runs"), 2)
	if child.Restarts() != 1 {
		t.Errorf("%d restarts, want 1", child.Restarts())
	}
	child.Stop(context.Background())
	select {
	case <-child.Done():
	default:
		t.Error("the child has not ended")
	}
	log, err := os.ReadFile(filepath.Join(dir, "child.log"))
	if err != nil || string(log) != "started\nstarted\n" {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestAProgramThatIsNotThereIsAnErrorAtOnce(t *testing.T) {
	if _, err := Start(Spec{
		Name:   "none",
		Path:   "/nowhere/none",
		LogDir: t.TempDir(),
	}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("got no error, want one")
	}
}

func waitForLines(t *testing.T, file string, lines int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if data, err := os.ReadFile(file); err == nil && len(data) >= 2*lines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s never had %d lines", file, lines)
}
