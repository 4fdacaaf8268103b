package host

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// group makes a control group of version 2 with a process that writes a line all the time.
func group(t *testing.T) (c Cgroups, child *exec.Cmd, lines <-chan string) {
	t.Helper()
	c, err := DetectCgroups(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.version2("node")
	if err != nil {
		t.Fatal(err)
	}
	// A group below that of the node stands for one of its containers.
	container := filepath.Join(dir, "container")
	if err := os.MkdirAll(container, 0o755); err != nil {
		t.Fatal(err)
	}
	child = exec.Command("sh", "-c", "while echo alive; do sleep 0.01; done")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	written := make(chan string)
	go func() {
		defer close(written)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case written <- scanner.Text():
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		_ = child.Process.Kill()
		_ = child.Wait()
		if err := c.Remove(""); err != nil {
			t.Error(err)
		}
	})
	err = os.WriteFile(filepath.Join(container, "cgroup.procs"), []byte(strconv.Itoa(child.Process.Pid)), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return c, child, written
}

// expectLine waits for the next line of the process.
func expectLine(t *testing.T, lines <-chan string) {
	t.Helper()
	select {
	case _, ok := <-lines:
		if !ok {
			t.Fatal("the process has ended")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the process has written nothing for 20 s")
	}
}

func TestAFrozenGroupStandsStillAndGoesOn(t *testing.T) {
	c, _, lines := group(t)
	expectLine(t, lines)
	if err := c.Freeze("node"); err != nil {
		t.Fatal(err)
	}
	// A line or two were written before it stood still and have not been read.
	quiet := time.NewTimer(300 * time.Millisecond)
	for written := 0; ; {
		select {
		case <-lines:
			written++
			if written > 3 {
				t.Fatal("the process writes although it is frozen")
			}
			continue
		case <-quiet.C:
		}
		break
	}
	if err := c.Thaw("node"); err != nil {
		t.Fatal(err)
	}
	expectLine(t, lines)
	expectLine(t, lines)
	if err := c.Thaw("node"); err != nil {
		t.Errorf("a group that is not frozen was thawed: %v", err)
	}
}

func TestAFrozenProcessCanBeKilled(t *testing.T) {
	c, child, lines := group(t)
	expectLine(t, lines)
	if err := c.Freeze("node"); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil || child.ProcessState.Exited() {
		t.Errorf("ended with %v, want it killed", err)
	}
	if err := c.Thaw("node"); err != nil {
		t.Error(err)
	}
}

func TestAMachineWithoutVersion2FreezesNothing(t *testing.T) {
	c := Cgroups{Group: "playground", Hierarchies: []Hierarchy{{Mount: t.TempDir(), Type: "cgroup", Options: "freezer"}}}
	if err := c.Freeze("node"); err == nil {
		t.Error("got no error, want one")
	}
}
