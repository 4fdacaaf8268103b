package stack

import (
	"testing"

	"golang.org/x/sys/unix"
)

func unmount(t *testing.T, path string) {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", path, err)
	}
}
