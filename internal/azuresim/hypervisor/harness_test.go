package hypervisor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
)

const mib = 1 << 20

// requireMachine fails the test where the machine cannot run it; these tests prove fencing and must
// not vanish quietly.
func requireMachine(t testing.TB, programs ...string) {
	t.Helper()
	if err := hypervisor.CheckMachine(); err != nil {
		t.Fatalf("this test needs root, /dev/fuse and loop devices: %v", err)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test needs the program %s: %v", program, err)
		}
	}
}

// stateDir is a state directory of the test's own. When the test is over nothing of it may be left
// on the machine.
func stateDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { assertNothingLeaked(t, dir) })
	return dir
}

// start starts a hypervisor as a process of its own. It must not be this one: this one uses the
// devices, and a process that waits for its own FUSE file system can't be killed.
func start(t testing.TB, dir string) *hypervisor.Client {
	t.Helper()
	_, client := startHypervisor(t, dir)
	return client
}

// boundLoops returns the machine's loop devices that belong to the state directory.
func boundLoops(t testing.TB, dir string) []string {
	t.Helper()
	prefix, err := hypervisor.LoopPrefix(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(t, err)
	var found []string
	for _, file := range files {
		if backing, err := os.ReadFile(file); err == nil && strings.HasPrefix(filepath.Base(string(backing)), prefix) {
			found = append(found, file+": "+string(backing))
		}
	}
	return found
}

func assertNothingLeaked(t testing.TB, dir string) {
	t.Helper()
	if loops := boundLoops(t, dir); len(loops) > 0 {
		t.Errorf("leaked loop devices: %v", loops)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) || strings.Contains(line, "azuresim ") {
			t.Errorf("leaked mount: %s", line)
		}
	}
}

func device(dir, vm string, lun int) string {
	return filepath.Join(hypervisor.DeviceDir(dir, vm), "data", "by-lun", fmt.Sprint(lun))
}

// realDevice is where the device link points to.
func realDevice(t testing.TB, dir, vm string, lun int) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(device(dir, vm, lun))
	must(t, err)
	return real
}

// alignedBlock is memory that O_DIRECT takes.
func alignedBlock(t testing.TB, size int) []byte {
	t.Helper()
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(block)) })
	return block
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// mount mounts the device and returns where; the test unmounts it in the end.
func mount(t testing.TB, device, fsType string) string {
	t.Helper()
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(device)
	must(t, err)
	options := ""
	if fsType == "xfs" {
		options = "nouuid"
	}
	must(t, unix.Mount(real, dir, fsType, 0, options))
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// unmount may be repeated.
func unmount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil && err != unix.EINVAL {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

// writeSynced writes the file and returns when it is durable, or the error.
func writeSynced(path, content string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	return file.Sync()
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not in 20 s: %s", what)
		case <-tick.C:
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
