package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// freeze freezes a mounted filesystem, as the hook of a backup does. FIFREEZE is _IOWR('X', 119, int).
func freeze(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), 0xC0045877, 0); err != nil {
		t.Fatalf("freeze %s: %v", path, err)
	}
}

// mountedDisk returns a disk with an ext4 filesystem that is mounted at a target below a directory.
func mountedDisk(t *testing.T, h *host.Host) (disk *hosttest.Disk, target string) {
	t.Helper()
	target = filepath.Join(hosttest.MountDir(t), "mount")
	disk = hosttest.NewDisk(t, 16*hosttest.MiB)
	hosttest.Run(t, "mkfs.ext4", "-q", disk.Device)
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	return disk, target
}

func TestTheLastUnmountEndsAFreeze(t *testing.T) {
	h := host.New(host.Options{})
	disk, target := mountedDisk(t, h)
	pod := filepath.Join(filepath.Dir(target), "pod")
	if err := h.Mounts().Bind(t.Context(), target, pod, false, nil); err != nil {
		t.Fatal(err)
	}
	freeze(t, target)
	for _, path := range []string{pod, target} {
		if err := h.Mounts().Unmount(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	// Without a thaw the kernel keeps the filesystem, and the device.
	if file, err := os.OpenFile(disk.Device, os.O_RDWR|unix.O_EXCL, 0); err != nil {
		t.Errorf("the device is held after the last unmount: %v", err)
	} else {
		_ = file.Close()
	}
}

func TestAFlushEndsTheFreezeOfAFilesystemWithoutAMount(t *testing.T) {
	h := host.New(host.Options{})
	disk, target := mountedDisk(t, h)
	freeze(t, target)
	hosttest.Run(t, "umount", target)
	if err := h.Devices().Flush(t.Context(), disk.Device); err != nil {
		t.Errorf("flush: %v", err)
	}
}

func TestAHeldDeviceNamesItsHolder(t *testing.T) {
	h := host.New(host.Options{})
	disk, target := mountedDisk(t, h)
	file := filepath.Join(target, "image")
	if err := os.WriteFile(file, make([]byte, hosttest.MiB), 0o600); err != nil {
		t.Fatal(err)
	}
	loop := loopOver(t, file)
	// As the mount of a container that has ended: it has no path any more, and its file is open.
	hosttest.Run(t, "umount", "--lazy", target)
	err := h.Devices().Flush(t.Context(), disk.Device)
	if !errors.Is(err, provisioner.Conflict) || !errors.Is(err, provisioner.DeviceHeld) ||
		!strings.Contains(err.Error(), "the loop device "+loop+" over ") {
		t.Errorf("flush: %v, want Conflict that names %s", err, loop)
	}
	hosttest.Run(t, "losetup", "-d", loop)
	if err := h.Devices().Flush(t.Context(), disk.Device); err != nil {
		t.Errorf("flush without the loop device: %v", err)
	}
}
