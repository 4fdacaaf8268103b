package host_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// device returns the kernel's data of a disk's device.
func device(t *testing.T, devices provisioner.Devices, path string) provisioner.Device {
	t.Helper()
	found, err := devices.Rescan(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// protect sets the write protection of a device, and removes it at the end of the test: the kernel
// keeps that of a loop device with its number.
func protect(t *testing.T, devices provisioner.Devices, of provisioner.Device) {
	t.Helper()
	t.Cleanup(func() { hosttest.Run(t, "blockdev", "--setrw", of.Path) })
	if err := devices.SetReadOnly(t.Context(), of, true); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// loopOver makes a loop device of a device, as a program does that is not the driver.
func loopOver(t *testing.T, path string) string {
	t.Helper()
	loop := strings.TrimSpace(hosttest.Run(t, "losetup", "--show", "-f", path))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	hosttest.Run(t, "blockdev", "--setrw", loop)
	return loop
}

func TestAProtectedDeviceTakesNoWriteOfAnOlderFile(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	devices := host.New(host.Options{}).Devices()
	file := open(t, disk.Device)
	loop := open(t, loopOver(t, disk.Device))
	protect(t, devices, device(t, devices, disk.Device))
	if _, err := file.WriteAt([]byte("by the file"), 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a write by a file that was opened before: %v, want EPERM", err)
	}
	if _, err := loop.WriteAt(bytes.Repeat([]byte("by the loop device"), 512), 0); err == nil {
		t.Error("a write by a loop device that was made before succeeded")
	}
	if content := disk.Content(t); bytes.Contains(content, []byte("by the")) {
		t.Errorf("the disk has %q", bytes.Trim(content, "\x00"))
	}
}

func TestTheProtectionStays(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	devices := host.New(host.Options{}).Devices()
	protect(t, devices, device(t, devices, disk.Device))
	for name, do := range map[string]func(){
		"repeated":                 func() { protect(t, devices, device(t, devices, disk.Device)) },
		"the size is read again":   func() { device(t, devices, disk.Device) },
		"the disk grows":           func() { disk.Grow(t, 2*hosttest.MiB) },
		"the device is flushed":    func() { hosttest.Run(t, "blockdev", "--flushbufs", disk.Device) },
		"a file is opened, closed": func() { open(t, disk.Device) },
	} {
		do()
		if got := strings.TrimSpace(hosttest.Run(t, "blockdev", "--getro", disk.Device)); got != "1" {
			t.Errorf("%s: the device is read-only: %s, want 1", name, got)
		}
	}
	if err := devices.Flush(t.Context(), disk.Device); err != nil {
		t.Errorf("flush of a protected device: %v", err)
	}
	if err := devices.SetReadOnly(t.Context(), device(t, devices, disk.Device), false); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, disk.Device).WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("a write to a device whose protection was removed: %v", err)
	}
}

func TestAPartitionIsProtectedWithItsDisk(t *testing.T) {
	disk := hosttest.NewDisk(t, 4*hosttest.MiB)
	disk.Partition(t, hosttest.MiB)
	h := host.New(host.Options{})
	part, err := h.Tuner().Partition(t.Context(), disk.Device, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hosttest.Run(t, "blockdev", "--setrw", disk.Device) })
	protect(t, h.Devices(), part)
	for _, path := range []string{disk.Device, part.Path} {
		if _, err := open(t, path).WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
			t.Errorf("a write to %s: %v, want EPERM", path, err)
		}
	}
	if err := h.Devices().SetReadOnly(t.Context(), part, false); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{disk.Device, part.Path} {
		if _, err := open(t, path).WriteAt([]byte("x"), 0); err != nil {
			t.Errorf("a write to %s, whose protection was removed: %v", path, err)
		}
	}
}

func TestOnlyTheRecordedDeviceIsProtected(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	devices := host.New(host.Options{}).Devices()
	recorded := device(t, devices, disk.Device)
	if recorded.Sequence == 0 {
		t.Fatal("the kernel has no number for the disk")
	}
	recorded.Sequence-- // of a disk whose path this was before
	if err := devices.SetReadOnly(t.Context(), recorded, true); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("another disk's device: %v, want NotFound", err)
	}
	if _, err := open(t, disk.Device).WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("another disk was protected: %v", err)
	}
	missing := provisioner.Device{Path: "/dev/no-such-device"}
	if err := devices.SetReadOnly(t.Context(), missing, true); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("no device: %v, want NotFound", err)
	}
}
