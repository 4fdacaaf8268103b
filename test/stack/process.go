package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that can be killed and started again with the same arguments. One that ends
// because it lost its lease is started again at once, as a kubelet would: on a busy machine that
// happens, and is right.
type Process struct {
	// Name for logs.
	Name string

	path  string
	args  []string
	env   []string
	log   string
	ready func(context.Context) error

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	// ending is the run that a test has told to end.
	ending *exec.Cmd
	starts int
}

// lostLease is how one of the last two lines of a program's log ends that gave up because its lease
// was not renewed in time, or because another program has taken it. The program's last words and
// those of its manager are written at the same time.
var lostLease = []string{"leader election lost", "has taken the lease of the leader from this controller"}

// newProcess describes a process; ready returns nil once the process answers.
func newProcess(name, logDir, path string, args []string, ready func(context.Context) error) *Process {
	return &Process{
		Name:  name,
		path:  path,
		args:  args,
		log:   filepath.Join(logDir, name+".log"),
		ready: ready,
	}
}

// Start starts the process and waits until it answers.
func (p *Process) Start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (p *Process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.launchLocked()
}

func (p *Process) launchLocked() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.Name, err)
	}
	defer out.Close()
	p.starts++
	fmt.Fprintf(out, "--- start %d: %s %v\n", p.starts, p.path, p.args)
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit status of a process that tests kill says nothing
		p.restartIfLeaseLost(cmd)
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	return nil
}

// restartIfLeaseLost starts the process again if that run of it ended by itself because it lost its
// lease. If it cannot be started, the test that needs it fails.
func (p *Process) restartIfLeaseLost(run *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == run && p.ending != run && saysLast(tail(p.log), lostLease) {
		_ = p.launchLocked()
	}
}

// WaitReady waits until the process answers; it fails at once when the process has ended.
func (p *Process) WaitReady(ctx context.Context) error {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	var last error
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if last = p.ready(ctx); last == nil {
			return nil
		}
		select {
		case <-exited:
			p.mu.Lock()
			again := p.exited != exited
			exited = p.exited
			p.mu.Unlock()
			if !again {
				return fmt.Errorf("%s ended before it was ready (log: %s)", p.Name, p.log)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (log: %s)", p.Name, errors.Join(ctx.Err(), last), p.log)
		case <-tick.C:
		}
	}
}

// Kill ends the process with SIGKILL, as a crash would, and waits until it is gone.
func (p *Process) Kill() { p.signal(syscall.SIGKILL) }

// Stop ends the process with SIGTERM and waits until it is gone.
func (p *Process) Stop() { p.signal(syscall.SIGTERM) }

// Freeze keeps the process from running, as an overloaded machine would, until thaw is called.
func (p *Process) Freeze() (thaw func(), err error) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	return func() { _ = cmd.Process.Signal(syscall.SIGCONT) }, cmd.Process.Signal(syscall.SIGSTOP)
}

// AwaitStarts waits until the process has been started that often, and answers.
func (p *Process) AwaitStarts(ctx context.Context, starts int) error {
	for p.Starts() < starts {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has been started %d times, expected %d: %w (log: %s)", p.Name, p.Starts(), starts, ctx.Err(),
				p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return p.WaitReady(ctx)
}

func (p *Process) signal(signal syscall.Signal) {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.ending = cmd
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(signal) // it may be gone already
	select {
	case <-exited:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-exited
	}
}

// Starts returns how often the process was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

func (p *Process) mustStart(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, tail(p.log))
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the end of %s:\n%s", p.log, tail(p.log))
		}
	})
}

func tail(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const limit = 6000
	if len(raw) > limit {
		raw = raw[len(raw)-limit:]
	}
	return string(raw)
}

// saysLast reports whether one of the last two lines of a text ends in one of these ways.
func saysLast(text string, endings []string) bool {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return slices.ContainsFunc(lines[max(0, len(lines)-2):], func(line string) bool {
		return slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(line, ending) })
	})
}
