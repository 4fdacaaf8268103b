package hypervisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
)

const roleVariable = "AZURESIM_HYPERVISOR_TEST_ROLE"

// TestMain lets the test binary play the processes that the tests start and kill.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "hypervisor":
		command := hypervisor.NewCommand()
		command.SetArgs(os.Args[1:])
		err = command.Execute()
	case "frontend":
		err = playFrontEnd(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playFrontEnd does what an ARM front end does, says so, and attaches and detaches until it is
// killed.
func playFrontEnd(socket string) error {
	ctx := context.Background()
	c := hypervisor.NewClient(socket)
	err := errors.Join(c.CreateDisk(ctx, "d1", 256*mib, ""), c.Attach(ctx, "vm1", 0, "d1"), c.CreateDisk(ctx, "d2", 16*mib, ""))
	if err != nil {
		return err
	}
	fmt.Println("attached")
	for {
		if err := errors.Join(c.Attach(ctx, "vm1", 1, "d2"), c.Detach(ctx, "vm1", 1, "d2")); err != nil {
			return err
		}
	}
}

// process is a child that dies with the test.
type process struct {
	*exec.Cmd
	done chan struct{}
}

func startProcess(t testing.TB, role string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	// A program under the race detector otherwise sleeps for a second at its end.
	p.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return p
}

func (p *process) begin(t testing.TB) {
	t.Helper()
	must(t, p.Start())
	go func() {
		defer close(p.done)
		_ = p.Wait()
	}()
	t.Cleanup(func() { p.end(t, unix.SIGTERM) })
}

// end sends the signal and returns when the process is gone. It may be repeated.
func (p *process) end(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("end process: %v", err)
	}
	<-p.done
}

// startHypervisor starts the real command as a process and returns with it ready.
func startHypervisor(t testing.TB, dir string) (*process, *hypervisor.Client) {
	t.Helper()
	socket := filepath.Join(dir, "hypervisor.sock")
	p := startProcess(t, "hypervisor", "--state-dir", dir)
	p.begin(t)
	client := hypervisor.NewClient(socket)
	eventually(t, "the hypervisor answers", func() bool {
		select {
		case <-p.done:
			t.Fatal("the hypervisor process ended at start")
		default:
		}
		_, err := client.List(t.Context())
		return err == nil
	})
	return p, client
}

func TestAKilledHypervisorRestoresItsAttachments(t *testing.T) {
	requireMachine(t, "mkfs.ext4")
	ctx, dir := t.Context(), stateDir(t)
	p, c := startHypervisor(t, dir)
	must(t, c.CreateDisk(ctx, "d1", 256*mib, ""))
	must(t, c.CreateDisk(ctx, "d2", 16*mib, ""))
	must(t, c.Attach(ctx, "vm1", 3, "d1"))
	must(t, c.Attach(ctx, "vm1", 4, "d2"))
	must(t, c.Attach(ctx, "vm2", 0, "d2"))
	must(t, c.PowerOff(ctx, "vm2"))
	before, err := os.Stat(hypervisor.DeviceDir(dir, "vm1"))
	must(t, err)
	run(t, "mkfs.ext4", "-q", device(dir, "vm1", 3))
	stale := mount(t, device(dir, "vm1", 3), "ext4")
	must(t, writeSynced(filepath.Join(stale, "acknowledged"), "one"))

	foreign := foreignLoop(t)
	p.end(t, unix.SIGKILL)
	if err := writeSynced(filepath.Join(stale, "late"), "x"); err == nil {
		t.Error("a write was acknowledged while no hypervisor ran")
	}
	_, c = startHypervisor(t, dir)

	list, err := c.List(ctx)
	must(t, err)
	var got []string
	for _, a := range list {
		got = append(got, fmt.Sprintf("%s/%d=%s device=%t", a.VM, a.LUN, a.DiskUID, a.Device != ""))
	}
	want := "[vm1/3=d1 device=true vm1/4=d2 device=true vm2/0=d2 device=false]"
	if fmt.Sprint(got) != want {
		t.Errorf("attachments after the restart are %v, want %s", got, want)
	}
	if loops := boundLoops(t, dir); len(loops) != 3 {
		t.Errorf("loop devices are %v, want one for each of two attachments and the one in use by the stale mount", loops)
	}
	after, err := os.Stat(hypervisor.DeviceDir(dir, "vm1"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the VM's device directory is another one after the restart, so a bind mount of it is dead")
	}
	next := mount(t, device(dir, "vm1", 3), "ext4")
	if got := read(t, filepath.Join(next, "acknowledged")); got != "one" {
		t.Errorf("after the restart the disk has %q, want %q", got, "one")
	}
	unmount(t, stale)
	if loops := boundLoops(t, dir); len(loops) != 2 {
		t.Errorf("loop devices after the stale mount went are %v, want 2", loops)
	}
	if _, err := os.Stat(filepath.Join("/sys/block", filepath.Base(foreign), "loop")); err != nil {
		t.Errorf("a loop device of another program is gone: %v", err)
	}
}

// foreignLoop is a loop device that has nothing to do with any hypervisor.
func foreignLoop(t testing.TB) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "azuresim-foreign.img")
	must(t, os.WriteFile(image, make([]byte, mib), 0o600))
	device := strings.TrimSpace(run(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() { run(t, "losetup", "--detach", device) })
	return device
}

func TestMountedFileSystemDoesNotNoticeThatTheFrontEndIsKilled(t *testing.T) {
	requireMachine(t, "mkfs.ext4")
	dir := stateDir(t)
	_, c := startHypervisor(t, dir)
	frontEnd := startProcess(t, "frontend", filepath.Join(dir, "hypervisor.sock"))
	out, err := frontEnd.StdoutPipe()
	must(t, err)
	frontEnd.begin(t)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "attached\n" {
		t.Fatalf("front end said %q, %v, want %q", line, err, "attached\n")
	}
	run(t, "mkfs.ext4", "-q", device(dir, "vm1", 0))
	mounted := mount(t, device(dir, "vm1", 0), "ext4")

	must(t, writeSynced(filepath.Join(mounted, "before"), "1"))
	frontEnd.end(t, unix.SIGKILL)
	must(t, writeSynced(filepath.Join(mounted, "after"), "2"))

	unmount(t, mounted)
	must(t, c.Attach(t.Context(), "vm1", 1, "d2"))
	must(t, c.Detach(t.Context(), "vm1", 1, "d2"))
}

func TestOrderlyStopLeavesNoDevice(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	p, c := startHypervisor(t, dir)
	must(t, c.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	p.end(t, unix.SIGTERM)
	if !p.ProcessState.Success() {
		t.Errorf("orderly stop: %v", p.ProcessState)
	}
	if loops := boundLoops(t, dir); len(loops) > 0 {
		t.Errorf("loop devices after the stop: %v", loops)
	}
	if _, err := os.Lstat(device(dir, "vm1", 0)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("device link after the stop: %v", err)
	}
	if _, err := c.List(ctx); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("call to a stopped hypervisor: %v, want ErrUnavailable", err)
	}
}

func TestStateDirectoryServesOneHypervisorAtATime(t *testing.T) {
	requireMachine(t)
	dir := stateDir(t)
	start(t, dir)
	_, err := hypervisor.New(t.Context(), hypervisor.Options{StateDir: dir})
	if !errors.Is(err, hypervisor.ErrConflict) {
		t.Errorf("second hypervisor: %v, want ErrConflict", err)
	}
}

func TestKilledAgentIsReplaced(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	p, c := startHypervisor(t, dir)
	must(t, c.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	children := ""
	for _, task := range tasks(t, p.Process.Pid) {
		children += read(t, filepath.Join(task, "children"))
	}
	agents := strings.Fields(children)
	if len(agents) == 0 {
		t.Fatal("the hypervisor has no agent")
	}
	for _, agent := range agents {
		pid, err := strconv.Atoi(agent)
		must(t, err)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	must(t, c.Attach(ctx, "vm2", 0, "d1"))
	must(t, c.Detach(ctx, "vm1", 0, "d1"))
	writeAt(t, device(dir, "vm2", 0), []byte("still served"), 0)
	if loops := boundLoops(t, dir); len(loops) != 1 {
		t.Errorf("loop devices %v, want one", loops)
	}
}

// tasks are the /proc directories of a process's threads.
func tasks(t testing.TB, pid int) []string {
	t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	must(t, err)
	return found
}
