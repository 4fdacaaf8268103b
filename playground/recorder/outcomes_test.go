package recorder_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

// paper is a log that is written and read at the same time.
type paper struct {
	mu sync.Mutex
	bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Buffer.Write(b)
}

// outcomes reads the log as a container runtime stores it.
func (p *paper) outcomes(t *testing.T) []recorder.Outcome {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var stored strings.Builder
	for line := range strings.Lines(p.String()) {
		stored.WriteString("2026-11-21T12:00:00.000000001Z stdout F " + line)
	}
	found, err := recorder.ParseOutcomes(strings.NewReader(stored.String()))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAWriterNotesWhatBecameOfItsRecords(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	log := &paper{}
	o := options(l.dir, l.url, "first")
	o.Log = slog.New(slog.NewJSONHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- recorder.Write(ctx, o) }()
	l.await(t, acksOf("first", 20))
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var records int64
	for _, outcome := range log.outcomes(t) {
		if !outcome.Durable || outcome.From.IsZero() || outcome.To.Before(outcome.From) || outcome.Error != "" {
			t.Errorf("noted %+v", outcome)
		}
		records += outcome.Attempts
	}
	if want := int64(len(l.disk(t))); records != want {
		t.Errorf("noted %d records, the disk has %d", records, want)
	}
}

func TestAWriterThatKeepsTryingNotesItsFailures(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	log := &paper{}
	// Every write beyond the first thousand bytes fails.
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+l.dir, childURL+"="+l.url, childLimit+"=1", childKeep+"=1")
	child.Stdout = log
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	l.await(t, eventOf(recorder.EventFailed))
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatalf("got the error %v, want none", err)
	}
	outcomes := log.outcomes(t)
	failed := slices.IndexFunc(outcomes, func(o recorder.Outcome) bool { return !o.Durable })
	if failed < 1 || outcomes[failed].Attempts != 1 || outcomes[failed].Error == "" ||
		outcomes[failed].First != outcomes[failed-1].Last+1 {
		t.Fatalf("noted %+v", outcomes)
	}
	for _, outcome := range outcomes[failed:] {
		if outcome.Durable || outcome.Last != outcomes[failed].First {
			t.Errorf("noted %+v", outcome)
		}
	}
}
