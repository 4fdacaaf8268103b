package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Spec describes a child that is to be kept running.
type Spec struct {
	// Name is for messages and for the name of the log file.
	Name string
	Path string
	Args []string
	// Env is the whole environment; nil means that of this process.
	Env []string
	Dir string
	// LogDir receives <name>.log with everything the child writes.
	LogDir string
	// Clone are the namespaces to make for the child.
	Clone uintptr
	// Enter, if set, runs start on a thread that is inside the namespaces in which
	// the child is to run.
	Enter func(start func() error) error
	// Once means that the child is not started again when it ends.
	Once bool
	// Grace is how long Stop waits before it kills; 5 s if zero.
	Grace time.Duration
	// Input, if set, is written to the child's standard input, which is then closed.
	Input string
}

// Component is a program outside of the nodes, for status displays.
type Component struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
}

// Child is a process that is started again whenever it ends, until it is stopped.
type Child struct {
	spec Spec
	log  *slog.Logger
	// done is closed when the child has ended for good.
	done chan struct{}
	stop chan struct{}
	once sync.Once

	mu       sync.Mutex
	cmd      *exec.Cmd
	restarts int
}

// Start starts the child. The error is that of its first start.
func Start(spec Spec, log *slog.Logger) (*Child, error) {
	c := &Child{
		spec: spec,
		log:  log.With("process", spec.Name),
		done: make(chan struct{}),
		stop: make(chan struct{}),
	}
	if err := c.start(); err != nil {
		close(c.done)
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go c.keep()
	return c, nil
}

func (c *Child) start() error {
	if err := os.MkdirAll(c.spec.LogDir, 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(c.spec.LogDir, c.spec.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(c.spec.Path, c.spec.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.spec.Env, c.spec.Dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: c.spec.Clone}
	if c.spec.Input != "" {
		reader, writer, err := os.Pipe()
		if err != nil {
			return err
		}
		defer reader.Close()
		defer writer.Close()
		cmd.Stdin = reader
		defer func() { _, _ = writer.WriteString(c.spec.Input) }() // the child may have ended
	}
	enter := c.spec.Enter
	if enter == nil {
		enter = func(start func() error) error { return start() }
	}
	if err := enter(cmd.Start); err != nil {
		return err
	}
	c.mu.Lock()
	c.cmd = cmd
	c.mu.Unlock()
	return nil
}

// keep waits for the child and starts it again, at most once a second.
func (c *Child) keep() {
	defer close(c.done)
	for {
		started := time.Now()
		err := c.current().Wait()
		if c.stopping() || c.spec.Once {
			return
		}
		c.log.Warn("process ended, starting it again", "after", time.Since(started).Round(time.Millisecond).String(), "error",
			err)
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(time.Second):
			}
			// Counted first, so that a caller that sees the new process at work also sees it
			// counted.
			c.count(1)
			if err = c.start(); err == nil {
				break
			}
			c.count(-1)
			c.log.Error("process does not start", "error", err)
		}
		if c.stopping() { // Stop may have signalled the process before this one
			c.signal(syscall.SIGKILL)
		}
	}
}

func (c *Child) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restarts += n
}

func (c *Child) current() *exec.Cmd {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd
}

func (c *Child) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

func (c *Child) signal(sig os.Signal) {
	if err := c.current().Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.log.Warn("process cannot be signalled", "signal", sig.String(), "error", err)
	}
}

// PID is the process number in the namespace of the caller.
func (c *Child) PID() int { return c.current().Process.Pid }

// Restarts counts how often the child was started again.
func (c *Child) Restarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// Done is closed when the child has ended and will not be started again.
func (c *Child) Done() <-chan struct{} { return c.done }

// Stop ends the child for good and returns when it is gone.
func (c *Child) Stop(ctx context.Context) {
	c.once.Do(func() { close(c.stop) })
	grace := c.spec.Grace
	if grace == 0 {
		grace = 5 * time.Second
	}
	c.signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return
	case <-ctx.Done():
	case <-time.After(grace):
	}
	c.Kill()
}

// Kill ends the child for good, without a warning, and returns when it is gone.
func (c *Child) Kill() {
	c.once.Do(func() { close(c.stop) })
	c.signal(syscall.SIGKILL)
	<-c.done
}

// Restart kills the running process; a new one is started in its place.
func (c *Child) Restart() { c.signal(syscall.SIGKILL) }
