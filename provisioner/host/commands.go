package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// work is a command that changes the filesystem on a device.
type work struct {
	command string

	mu sync.Mutex
	// started is when the command began to run, or to wait.
	started time.Time
	waits   bool
	// done describes how far the command has come; "" while it has not said so.
	done string
	// stop ends the command; nil if the command must not be interrupted.
	stop func()
}

func (w *work) setDone(done string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = done
}

// works are the commands that run now, by device.
type works struct {
	mu       sync.Mutex
	byDevice map[string]*work
	closed   bool
}

// begin registers a command until end is called. A second command on the same device is a Conflict.
func (h *Host) begin(device, command string, stop func()) (w *work, end func(), err error) {
	h.works.mu.Lock()
	defer h.works.mu.Unlock()
	if other := h.works.byDevice[device]; other != nil {
		return nil, nil, provisioner.Errorf(provisioner.Conflict, "run %s on %s: %s", command, device, h.describe(other))
	}
	if h.works.closed {
		return nil, nil, provisioner.Errorf(provisioner.Unavailable, "run %s on %s: the process is about to end", command, device)
	}
	w = &work{
		command: command,
		started: h.options.Clock.Now(),
		stop:    stop,
	}
	if h.works.byDevice == nil {
		h.works.byDevice = map[string]*work{}
	}
	h.works.byDevice[device] = w
	return w, func() {
		h.works.mu.Lock()
		defer h.works.mu.Unlock()
		delete(h.works.byDevice, device)
	}, nil
}

// Close ends the checks that run, and lets no further command begin that changes a filesystem: a
// process that is to end does not wait for them.
func (h *Host) Close() {
	h.works.mu.Lock()
	defer h.works.mu.Unlock()
	h.works.closed = true
	for _, w := range h.works.byDevice {
		if w.stop != nil {
			w.stop()
		}
	}
}

// answerTime is how long before the deadline of a call the wait for a slot ends, so that the caller
// learns the reason.
const answerTime = 5 * time.Second

// awaitSlot blocks until the format or the full check may run, and returns the function to call
// when it has ended. Until then it can be given up: the end of ctx, and Stop, end the wait.
func (h *Host) awaitSlot(ctx context.Context, w *work, stopped <-chan struct{}) (free func(), err error) {
	if h.slots == nil {
		return func() {}, nil
	}
	w.setWaits(true, h.options.Clock.Now())
	waiting := ctx
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, deadline.Add(-answerTime))
		defer cancel()
	}
	select {
	case h.slots <- struct{}{}:
		w.setWaits(false, h.options.Clock.Now())
		return func() { <-h.slots }, nil
	case <-stopped:
		return nil, provisioner.Errorf(provisioner.Unavailable, "%s was stopped before it began", w.command)
	case <-waiting.Done():
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("run %s: %w", w.command, err)
		}
		return nil, provisioner.Errorf(provisioner.Unavailable,
			"run %s: %d filesystems are being made or checked on this node, and no more are at once; it will be tried again",
			w.command, cap(h.slots))
	}
}

func (w *work) setWaits(waits bool, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits, w.started = waits, since
}

func (h *Host) describe(w *work) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits {
		return fmt.Sprintf("%s has been waiting for %s, because %d filesystems are being made or checked on this node",
			w.command, h.options.Clock.Since(w.started).Round(time.Second), cap(h.slots))
	}
	text := fmt.Sprintf("%s has been running for %s", w.command, h.options.Clock.Since(w.started).Round(time.Second))
	if w.done != "" {
		text += ", " + w.done
	}
	return text
}

// Progress implements provisioner.Filesystems.
func (f filesystems) Progress(device string) string {
	f.works.mu.Lock()
	w := f.works.byDevice[device]
	f.works.mu.Unlock()
	if w == nil {
		return ""
	}
	return f.describe(w)
}

// Stop implements provisioner.Filesystems.
func (f filesystems) Stop(device string) {
	f.works.mu.Lock()
	w := f.works.byDevice[device]
	f.works.mu.Unlock()
	if w != nil && w.stop != nil {
		w.stop()
	}
}

// runToEnd runs a command that changes the filesystem on a device. The end of ctx does not end the
// command: a command that takes longer than the caller waits would be started over by each call and
// never finish, and a resize that is cut short can destroy the filesystem.
func (h *Host) runToEnd(ctx context.Context, device, command string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("run %s: %w", command, err)
	}
	w, end, err := h.begin(device, command, nil)
	if err != nil {
		return err
	}
	defer end()
	if strings.HasPrefix(command, "mkfs.") {
		free, err := h.awaitSlot(ctx, w, nil)
		if err != nil {
			return err
		}
		defer free()
	}
	return h.runOK(context.WithoutCancel(ctx), command, args...)
}

// isQuick reports whether a check needs neither much time nor much memory. It guards the hand-over
// of a volume: a check of a few milliseconds must not wait for checks of hours. What cannot be read
// is not quick.
func (f filesystems) isQuick(ctx context.Context, device string, flags []string) bool {
	if f.slots == nil || slices.Contains(flags, "-f") {
		return false
	}
	clean, err := bounded(ctx, func() (bool, error) { return extIsClean(device) })
	return err == nil && clean
}

// progressFD is the file descriptor in e2fsck of the first of exec.Cmd.ExtraFiles.
const progressFD = "3"

// runCheck runs e2fsck to its end, or until Stop. Like runToEnd it ignores the end of ctx. e2fsck
// ends with this process, and a SIGTERM makes it stop at the next point where the filesystem is
// consistent. A quick check does not wait for the checks in full.
func (f filesystems) runCheck(ctx context.Context, device string, flags ...string) (result, error) {
	const command = "e2fsck"
	if err := ctx.Err(); err != nil {
		return result{}, fmt.Errorf("run %s: %w", command, err)
	}
	stoppable, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	w, end, err := f.begin(device, command, stop)
	if err != nil {
		return result{}, err
	}
	defer end()
	if !f.isQuick(ctx, device, flags) {
		free, err := f.awaitSlot(ctx, w, stoppable.Done())
		if err != nil {
			return result{}, err
		}
		defer free()
	}
	progress, forChild, err := os.Pipe()
	if err != nil {
		return result{}, provisioner.Errorf(provisioner.Unavailable, "run %s: %w", command, err)
	}
	defer progress.Close()
	var output bytes.Buffer
	cmd := exec.CommandContext(stoppable, command, append(append([]string{"-C", progressFD}, flags...), device)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &output, &output, []*os.File{forChild}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// The kernel sends the signal when the thread ends that started the command, so this goroutine
	// keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	_ = forChild.Close()
	if err == nil {
		go followCheck(progress, w)
		err = cmd.Wait()
	}
	text := strings.TrimSpace(output.String())
	var exit *exec.ExitError
	switch {
	case err == nil:
		return result{output: text}, nil
	case stoppable.Err() != nil:
		return result{output: text}, provisioner.Errorf(provisioner.Unavailable, "%s of %s was stopped", command, device)
	case errors.As(err, &exit) && exit.Exited():
		return result{code: exit.ExitCode(), output: text}, nil
	default:
		return result{output: text}, provisioner.Errorf(provisioner.Unavailable, "run %s: %w", command, err)
	}
}

// followCheck reads the lines "pass current maximum device" that e2fsck writes. e2fsck has five
// passes.
func followCheck(progress io.Reader, w *work) {
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		var pass, current, maximum int64
		if n, _ := fmt.Sscan(lines.Text(), &pass, &current, &maximum); n == 3 && maximum > 0 {
			w.setDone(fmt.Sprintf("pass %d of 5, %d %%", pass, 100*current/maximum))
		}
	}
}
