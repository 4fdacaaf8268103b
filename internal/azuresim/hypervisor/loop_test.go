package hypervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriteProtectionStaysWithNoLoopDevice(t *testing.T) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { control.Close() })
	// A number that is not given to others as long as lower ones are free.
	number := 10_000 + os.Getpid()
	check(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number))
	device := fmt.Sprintf("/dev/loop%d", number)
	t.Cleanup(func() {
		check(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number))
		_ = os.Remove(device) // where /dev is not a devtmpfs
	})
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	check(t, err)
	defer file.Close()
	check(t, file.Truncate(1<<20))

	protect := func() {
		t.Helper()
		fd, err := unix.Open(device, unix.O_RDONLY, 0)
		check(t, err)
		defer unix.Close(fd)
		check(t, unix.IoctlSetPointerInt(fd, unix.BLKROSET, 1))
	}
	protected := func() bool {
		t.Helper()
		fd, err := unix.Open(device, unix.O_RDONLY, 0)
		check(t, err)
		defer unix.Close(fd)
		is, err := unix.IoctlGetInt(fd, unix.BLKROGET)
		check(t, err)
		return is != 0
	}
	check(t, configureLoop(device, number, file))
	protect()
	check(t, clearLoop(device, "image"))
	if protected() {
		t.Error("the next user of the device cannot write to it")
	}
	protect() // as another program leaves it
	check(t, configureLoop(device, number, file))
	if protected() {
		t.Error("a newly attached disk cannot be written to")
	}
	check(t, clearLoop(device, "image"))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
