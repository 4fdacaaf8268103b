package recorder_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

const (
	childDir   = "RECORDER_TEST_DIR"
	childURL   = "RECORDER_TEST_URL"
	childLimit = "RECORDER_TEST_FILE_LIMIT"
	childKeep  = "RECORDER_TEST_KEEP_TRYING"
)

// TestMain doubles as the program of a writer in a process of its own, which can be
// killed, and whose files can be limited in size so that a write really fails.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(childLimit) != "" {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1000, Max: 1000}); err != nil {
			os.Exit(3)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := options(dir, os.Getenv(childURL), "child")
	if os.Getenv(childKeep) != "" {
		o.KeepTrying, o.Log = true, slog.New(slog.NewJSONHandler(os.Stdout, nil))
	}
	if err := recorder.Write(ctx, o); err != nil {
		os.Exit(1)
	}
}

func options(dir, url, writer string) recorder.Options {
	return recorder.Options{
		Dir:          dir,
		CollectorURL: url,
		Writer:       writer,
		Interval:     time.Millisecond,
		Clock:        clock.RealClock{},
		Log:          slog.New(slog.DiscardHandler),
	}
}

type lab struct {
	collector *recorder.Collector
	url       string
	dir       string
}

func newLab(t *testing.T) lab {
	t.Helper()
	c := recorder.NewCollector(clock.RealClock{})
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	return lab{collector: c, url: server.URL + "/w", dir: t.TempDir()}
}

func (l lab) startChild(t *testing.T, environment ...string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+l.dir, childURL+"="+l.url)
	child.Env = append(child.Env, environment...)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if child.ProcessState == nil {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	return child
}

// startWriter runs a writer here; the function that it returns ends it.
func (l lab) startWriter(t *testing.T, writer string) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- recorder.Write(ctx, options(l.dir, l.url, writer)) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (l lab) await(t *testing.T, condition func(recorder.Received) bool) recorder.Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	received, err := l.collector.Await(ctx, "w", condition)
	if err != nil {
		t.Fatalf("%v; have %d acks and %+v", err, len(received.Acks), received.Events)
	}
	return received
}

func acksOf(writer string, atLeast int) func(recorder.Received) bool {
	return func(t recorder.Received) bool {
		n := 0
		for _, a := range t.Acks {
			if a.Writer == writer {
				n++
			}
		}
		return n >= atLeast
	}
}

func eventOf(kind recorder.EventKind) func(recorder.Received) bool {
	return func(t recorder.Received) bool {
		for _, e := range t.Events {
			if e.Kind == kind {
				return true
			}
		}
		return false
	}
}

func (l lab) disk(t *testing.T) []recorder.Entry {
	t.Helper()
	content, _, err := recorder.ReadDisk(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Parse(content)
}

func TestAKilledWriterLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	child := l.startChild(t)
	l.await(t, acksOf("child", 20))
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	stop := l.startWriter(t, "second")
	l.await(t, acksOf("second", 20))
	stop()
	received := l.await(t, eventOf(recorder.EventStopped))
	result := history.Check(received.Acks, l.disk(t))
	if !result.Clean() || result.Writers != 2 || result.Acknowledged < 40 {
		t.Fatalf("got %+v, want a clean history", result)
	}
}

func TestAWriterEndsCleanlyOnSIGTERM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	child := l.startChild(t)
	l.await(t, acksOf("child", 5))
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	received := l.await(t, eventOf(recorder.EventStopped))
	if last := received.Acks[len(received.Acks)-1].Sequence; last != int64(len(l.disk(t))) {
		t.Fatalf("acknowledged up to %d, %d on the disk, want %d", last, len(l.disk(t)), int64(len(l.disk(t))))
	}
}

func TestAFailedWriteIsReportedAndTheNextWriterContinues(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	child := l.startChild(t, childLimit+"=1")
	err := child.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("the writer ended with %v", err)
	}
	l.await(t, eventOf(recorder.EventFailed))
	before, err := os.ReadFile(filepath.Join(l.dir, recorder.FileName))
	if err != nil {
		t.Fatal(err)
	}
	stop := l.startWriter(t, "second")
	received := l.await(t, acksOf("second", 5))
	stop()
	after, err := os.ReadFile(filepath.Join(l.dir, recorder.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(after, before) {
		t.Fatal("the second writer changed what it found")
	}
	result := history.Check(received.Acks, l.disk(t))
	if !result.Clean() || result.Torn != 1 {
		t.Fatalf("got %+v, want a clean history", result)
	}
}

func TestTwoWritersAtOnceAreCaught(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stopFirst := l.startWriter(t, "first")
	l.await(t, acksOf("first", 5))
	stopSecond := l.startWriter(t, "second")
	l.await(t, acksOf("second", 5))
	now := len(l.collector.Received("w").Acks)
	l.await(t, func(t recorder.Received) bool { return len(t.Acks) > now+50 })
	stopFirst()
	stopSecond()
	result := history.Check(l.collector.Received("w").Acks, l.disk(t))
	if len(result.Foreign) == 0 {
		t.Fatalf("two writers at once pass: %+v", result)
	}
}

func TestAnAuditBringsEveryAcknowledgedRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stop := l.startWriter(t, "first")
	defer stop()
	for range 3 {
		now := len(l.collector.Received("w").Acks)
		l.await(t, func(t recorder.Received) bool { return len(t.Acks) > now })
		received, err := l.collector.Audit(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		if result := history.Check(received.Acks, received.Content); !result.Clean() || result.Acknowledged == 0 {
			t.Fatalf("got %+v, want a clean history", result)
		}
	}
}

func TestAWriterGoesOnWhileTheCollectorIsAwayAndReportsLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := recorder.NewCollector(clock.RealClock{})
	server := httptest.NewUnstartedServer(c.Handler())
	address := "http://" + server.Listener.Addr().String() + "/w"
	l := lab{collector: c, url: address, dir: dir}
	stop := l.startWriter(t, "first")
	defer stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for content := []byte(nil); bytes.Count(content, []byte{'\n'}) < 10; <-poll.C {
		content, _ = os.ReadFile(filepath.Join(dir, recorder.FileName))
	}
	server.Start()
	defer server.Close()
	received := l.await(t, acksOf("first", 10))
	if received.Acks[0].Sequence != 1 {
		t.Fatalf("the first report starts at %d, want %d", received.Acks[0].Sequence, 1)
	}
}

func TestReadDiskReadsFilesOfEveryLength(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1, 3 << 20} {
		dir := t.TempDir()
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(filepath.Join(dir, recorder.FileName), want, 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := recorder.ReadDisk(dir)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: read %d, %v", size, len(got), err)
		}
	}
}
