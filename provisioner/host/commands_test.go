package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// command is a program in the place of e2fsck, mkfs and the like. It reports that it has started,
// and ends when it is told to.
type command struct {
	t                *testing.T
	started, proceed string
}

// replace puts a shell script in the place of a command. The script runs after the test has called
// release.
func replace(t *testing.T, name, script string) command {
	t.Helper()
	dir := t.TempDir()
	c := command{
		t:       t,
		started: filepath.Join(dir, "started"),
		proceed: filepath.Join(dir, "proceed"),
	}
	for _, pipe := range []string{c.started, c.proceed} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s\nread go <%s\n%s\n", c.started, c.proceed, script)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return c
}

// awaitStart returns the process ID.
func (c command) awaitStart() string {
	c.t.Helper()
	pid, err := os.ReadFile(c.started)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(pid))
}

func (c command) release() {
	c.t.Helper()
	if err := os.WriteFile(c.proceed, []byte("go\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Each call of the kubelet has two minutes. A check of a large filesystem was killed each time and
// started over with the next call.
func TestACommandOutlivesTheCall(t *testing.T) {
	ext4 := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	for name, test := range map[string]struct {
		script string
		call   func(context.Context, provisioner.Filesystems, string) error
		want   error
	}{
		"e2fsck": {"exit 1", func(ctx context.Context, f provisioner.Filesystems, device string) error {
			return f.Check(ctx, device, ext4)
		}, nil},
		"e2fsck that needs a decision": {"exit 4", func(ctx context.Context, f provisioner.Filesystems, device string) error {
			return f.Check(ctx, device, ext4)
		}, provisioner.FailedPrecondition},
		"mkfs.ext4": {"exit 0", func(ctx context.Context, f provisioner.Filesystems, device string) error {
			return f.Make(ctx, device, ext4, provisioner.FilesystemOptions{})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			disk := hosttest.NewDisk(t, hosttest.MiB)
			program, _, _ := strings.Cut(name, " ")
			c := replace(t, program, test.script)
			fss := host.New(host.Options{}).Filesystems()
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() { result <- test.call(ctx, fss, disk.Device) }()
			c.awaitStart()
			cancel()
			if err := test.call(t.Context(), fss, disk.Device); !errors.Is(err, provisioner.Conflict) {
				t.Errorf("a second call during the first: got %v, want Conflict", err)
			}
			if got := fss.Progress(disk.Device); !strings.HasPrefix(got, program+" has been running for ") {
				t.Errorf("progress = %q", got)
			}
			c.release()
			if err := <-result; !errors.Is(err, test.want) {
				t.Errorf("the result is %v, want %v", err, test.want)
			}
			if got := fss.Progress(disk.Device); got != "" {
				t.Errorf("progress at the end = %q, want none", got)
			}
		})
	}
}

func TestTheProgressOfACheckIsRead(t *testing.T) {
	c := replace(t, "e2fsck", "exit 0")
	fss := host.New(host.Options{}).Filesystems()
	// The device stands in the command line behind -C 3; the script writes to the same descriptor
	// before it waits.
	script, err := os.ReadFile(filepath.Join(filepath.Dir(c.started), "e2fsck"))
	if err != nil {
		t.Fatal(err)
	}
	written := strings.Replace(string(script), "\n", "\nprintf '1 5 100 d\\n2 43 100 d\\n' >&3\n", 1)
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.started), "e2fsck"), []byte(written), 0o755); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- fss.Check(t.Context(), "/dev/null", provisioner.Filesystem{Type: "ext4", UUID: uuid})
	}()
	c.awaitStart()
	expect.Eventually(t, "the progress is read",
		func() bool { return strings.HasSuffix(fss.Progress("/dev/null"), "pass 2 of 5, 43 %") })
	c.release()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestACheckCanBeEnded(t *testing.T) {
	for name, end := range map[string]func(*host.Host){
		"by Stop":  func(h *host.Host) { h.Filesystems().Stop("/dev/null") },
		"by Close": func(h *host.Host) { h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := replace(t, "e2fsck", "exit 0")
			h := host.New(host.Options{})
			h.Filesystems().Stop("/dev/null") // nothing runs
			check := func() error {
				return h.Filesystems().Check(t.Context(), "/dev/null", provisioner.Filesystem{Type: "ext4", UUID: uuid})
			}
			result := make(chan error, 1)
			go func() { result <- check() }()
			c.awaitStart()
			end(h)
			if err := <-result; !errors.Is(err, provisioner.Unavailable) || !strings.Contains(err.Error(), "stopped") {
				t.Errorf("Check = %v, want Unavailable because it was stopped", err)
			}
			if name == "by Close" {
				if err := check(); !errors.Is(err, provisioner.Unavailable) {
					t.Errorf("a check after Close: %v, want Unavailable", err)
				}
			}
		})
	}
}

// A third filesystem waits while two are made or checked in full. A clean one does not wait.
func TestFormatsAndFullChecksAreLimited(t *testing.T) {
	ext4 := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	blank, damaged, other, clean := hosttest.NewDisk(t, hosttest.MiB), ext4Disk(t), ext4Disk(t), ext4Disk(t)
	for _, d := range []*hosttest.Disk{damaged, other} {
		d.WriteAt(t, []byte{2, 0}, 1024+58) // s_state: not clean, with errors
	}
	mkfs, check := replace(t, "mkfs.ext4", "exit 0"), replace(t, "e2fsck", "exit 1")
	exceptOf(t, "e2fsck", clean.Device)
	fss := host.New(host.Options{MaxFormatsAndChecks: 2}).Filesystems()
	made, checked, third := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { made <- fss.Make(t.Context(), blank.Device, ext4, provisioner.FilesystemOptions{}) }()
	mkfs.awaitStart()
	go func() { checked <- fss.Check(t.Context(), damaged.Device, ext4) }()
	check.awaitStart()

	patience, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
	defer cancel()
	if err := fss.Check(patience, other.Device, ext4); !errors.Is(err, provisioner.Unavailable) ||
		!strings.Contains(err.Error(), "2 filesystems are being made or checked") {
		t.Errorf("the third, 5 s before the deadline of the call: got %v, want Unavailable that says why", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() { third <- fss.Check(ctx, other.Device, ext4) }()
	expect.Eventually(t, "the third waits",
		func() bool { return strings.HasPrefix(fss.Progress(other.Device), "e2fsck has been waiting for ") })
	if err := fss.Check(t.Context(), clean.Device, ext4); err != nil {
		t.Errorf("a clean filesystem: got %v, want it checked at once", err)
	}
	leave()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("the third, when its caller has gone: got %v, want %v", err, context.Canceled)
	}
	go func() { third <- fss.Check(t.Context(), other.Device, ext4) }()
	expect.Eventually(t, "the third waits again",
		func() bool { return strings.HasPrefix(fss.Progress(other.Device), "e2fsck has been waiting for ") })
	check.release()
	if err := <-checked; err != nil {
		t.Error(err)
	}
	check.awaitStart()
	check.release()
	if err := <-third; err != nil {
		t.Errorf("the third, after another has ended: got %v", err)
	}
	mkfs.release()
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// exceptOf lets the command of that name succeed at once for a device.
func exceptOf(t *testing.T, name, device string) {
	t.Helper()
	otherwise, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *%s) exit 0;; esac\nexec %s \"$@\"\n", device, otherwise)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAWaitingCheckCanBeEnded(t *testing.T) {
	blank, damaged := hosttest.NewDisk(t, hosttest.MiB), hosttest.NewDisk(t, hosttest.MiB)
	mkfs := replace(t, "mkfs.ext4", "exit 0")
	ext4 := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	fss := host.New(host.Options{MaxFormatsAndChecks: 1}).Filesystems()
	made, checked := make(chan error, 1), make(chan error, 1)
	go func() { made <- fss.Make(t.Context(), blank.Device, ext4, provisioner.FilesystemOptions{}) }()
	mkfs.awaitStart()
	go func() { checked <- fss.Check(t.Context(), damaged.Device, ext4) }()
	expect.Eventually(t, "the check waits", func() bool { return strings.Contains(fss.Progress(damaged.Device), "waiting") })
	fss.Stop(damaged.Device)
	if err := <-checked; !errors.Is(err, provisioner.Unavailable) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("got %v, want Unavailable because it was stopped", err)
	}
	mkfs.release()
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// ext4Disk has a clean ext4 filesystem.
func ext4Disk(t *testing.T) *hosttest.Disk {
	t.Helper()
	disk := hosttest.NewDisk(t, 4*hosttest.MiB)
	hosttest.Run(t, "mkfs.ext4", "-q", "-F", "-U", uuid, disk.Device)
	return disk
}

// TestMain lets the test binary be the process whose end is tested.
func TestMain(m *testing.M) {
	if os.Getenv("HOST_TEST_CHECK") != "" {
		_ = host.New(host.Options{}).Filesystems().Check(context.Background(), "/dev/null", provisioner.Filesystem{
			Type: "ext4",
			UUID: uuid,
		})
		return
	}
	os.Exit(m.Run())
}

func TestACheckEndsWithTheProcess(t *testing.T) {
	c := replace(t, "e2fsck", "exit 0")
	plugin := exec.CommandContext(t.Context(), os.Args[0])
	plugin.Env = append(os.Environ(), "HOST_TEST_CHECK=1")
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	pid := c.awaitStart()
	if err := plugin.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = plugin.Wait()
	expect.Eventually(t, "the check has ended", func() bool { return !runs(t, pid) })
}

// runs reports whether a process runs; one that is dead and not reaped does not.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	file, err := os.Open(filepath.Join("/proc", pid, "status"))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if state, found := strings.CutPrefix(lines.Text(), "State:"); found {
			return !strings.HasPrefix(strings.TrimSpace(state), "Z")
		}
	}
	return false
}
