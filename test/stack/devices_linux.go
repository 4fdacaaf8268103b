package stack

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func unmount(t testing.TB, path string) {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", path, err)
	}
}

func detach(t testing.TB, loop string) {
	device, err := os.Open(loop)
	if err != nil {
		t.Error(err)
		return
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		t.Errorf("detach %s: %v", loop, err)
	}
}
