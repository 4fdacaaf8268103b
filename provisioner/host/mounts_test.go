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

func newExt4(t *testing.T) *hosttest.Disk {
	t.Helper()
	disk := hosttest.NewDisk(t, 32*hosttest.MiB)
	hosttest.Run(t, "mkfs.ext4", "-q", disk.Device)
	return disk
}

func TestMountIsIdempotentAndRefusesAnotherDevice(t *testing.T) {
	disk, other := newExt4(t), newExt4(t)
	mounts := host.New(host.Options{}).Mounts()
	target := filepath.Join(hosttest.MountDir(t), "a dir", "globalmount")
	for range 2 {
		if err := mounts.Mount(t.Context(), disk.Device, target, "ext4", []string{"noatime"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := find(t, mounts, target); len(got) != 1 || got[0].Source != disk.Device || got[0].FSType != "ext4" ||
		got[0].ReadOnly {
		t.Errorf("mounts at the target = %+v", got)
	}
	if err := mounts.Mount(t.Context(), other.Device, target, "ext4", nil); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("another device at the same place: %v, want FailedPrecondition", err)
	}
	for range 2 {
		if err := mounts.Unmount(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("the mount point is still there: %v", err)
	}
}

func TestBindADirectoryReadOnly(t *testing.T) {
	disk := newExt4(t)
	mounts := host.New(host.Options{}).Mounts()
	dir := hosttest.MountDir(t)
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "pods", "1", "mount")
	if err := mounts.Mount(t.Context(), disk.Device, staging, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	// First for writing: what a process leaves behind that is killed before the remount.
	for _, readOnly := range []bool{false, true, true} {
		if err := mounts.Bind(t.Context(), staging, target, readOnly, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := find(t, mounts, target); len(got) != 1 || !got[0].ReadOnly || got[0].Source != disk.Device {
		t.Errorf("mounts at the target = %+v", got)
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600); err == nil {
		t.Error("a read-only mount took a file")
	}
	if err := os.WriteFile(filepath.Join(staging, "file"), nil, 0o600); err != nil {
		t.Errorf("the staged mount has become read-only too: %v", err)
	}
	if err := mounts.Bind(t.Context(), dir, target, false, nil); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("another source at the same target: %v, want FailedPrecondition", err)
	}
	for _, path := range []string{target, staging} {
		if err := mounts.Unmount(t.Context(), path); err != nil {
			t.Error(err)
		}
	}
}

func TestBindADeviceNode(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	mounts := host.New(host.Options{}).Mounts()
	target := filepath.Join(hosttest.MountDir(t), "volumeDevices", "pod", "file")
	for range 2 {
		if err := mounts.Bind(t.Context(), disk.Device, target, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := find(t, mounts, target); len(got) != 1 || got[0].Source != disk.Device {
		t.Errorf("mounts at the target = %+v, want the device node %s", got, disk.Device)
	}
	if err := mounts.Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
	if err := mounts.Bind(t.Context(), "/dev/not-there", target, false, nil); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("a source that is not there: %v, want NotFound", err)
	}
}

func TestUnmountTakesAwayAllLayersAndNoFiles(t *testing.T) {
	disk := newExt4(t)
	mounts := host.New(host.Options{}).Mounts()
	dir := hosttest.MountDir(t)
	target := filepath.Join(dir, "target")
	if err := mounts.Mount(t.Context(), disk.Device, target, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	hosttest.Run(t, "mount", "--bind", target, target)
	if err := mounts.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "data"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Unmount(t.Context(), full); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("a directory with files: %v, want FailedPrecondition", err)
	}
	if _, err := os.Stat(filepath.Join(full, "data")); err != nil {
		t.Errorf("the files are gone: %v", err)
	}
}

func TestABusyMountNamesWhatIsBelow(t *testing.T) {
	h := host.New(host.Options{})
	_, target := mountedDisk(t, h)
	below := filepath.Join(target, "below")
	if err := h.Mounts().Bind(t.Context(), t.TempDir(), below, false, nil); err != nil {
		t.Fatal(err)
	}
	busy := func(what, want string) {
		t.Helper()
		err := h.Mounts().Unmount(t.Context(), target)
		if !errors.Is(err, provisioner.Conflict) || !errors.Is(err, provisioner.MountBusy) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want Conflict with the fault MountBusy that says %q", what, err, want)
		}
	}
	busy("a mount below", " is mounted at "+below)
	if err := h.Mounts().Unmount(t.Context(), below); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(target, "open"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the kernel would remove at the second question a mount that is not busy
		busy("an open file", "fuser -vm "+target)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}

// The mounts of a node plug-in are copies of the node's, and a program of the node uses those.
func TestAMountWhoseCopyIsBusyIsBusy(t *testing.T) {
	h := host.New(host.Options{})
	shared, copied := t.TempDir(), t.TempDir()
	for _, err := range []error{
		unix.Mount(shared, shared, "", unix.MS_BIND, ""), unix.Mount("", shared, "", unix.MS_SHARED, ""),
		unix.Mount(shared, copied, "", unix.MS_BIND, ""),
	} {
		if err != nil {
			t.Fatalf("share a mount: %v", err)
		}
	}
	t.Cleanup(func() {
		for _, dir := range []string{copied, shared} {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	target := filepath.Join(shared, "target")
	if err := h.Mounts().Bind(t.Context(), t.TempDir(), target, false, nil); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(copied, "target", "open"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := h.Mounts().Unmount(t.Context(), target)
		if !errors.Is(err, provisioner.MountBusy) || !strings.Contains(err.Error(), "fuser -vm "+target) {
			t.Errorf("got %v, want the fault MountBusy, and how to find the program", err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestAMountThatFailsEndsInMountsOwnWords(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	target := filepath.Join(hosttest.MountDir(t), "target")
	mounts := host.New(host.Options{}).Mounts()
	err := mounts.Mount(t.Context(), disk.Device, target, "ext4", nil)
	if err == nil || provisioner.KindOf(err) != "" || !strings.Contains(err.Error(), "wrong fs type") {
		t.Errorf("Mount of a blank device = %v, want mount's own words and no kind", err)
	}
	err = mounts.Mount(t.Context(), "/dev/no-such-device", target, "ext4", nil)
	if !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("Mount of no device = %v, want Unavailable", err)
	}
}

func TestABindThatIsReadOnlyIsNotTakenForOneWithWriting(t *testing.T) {
	dir := hosttest.MountDir(t)
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	if err := os.Mkdir(source, 0o750); err != nil {
		t.Fatal(err)
	}
	mounts := host.New(host.Options{}).Mounts()
	for range 2 {
		if err := mounts.Bind(t.Context(), source, target, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := mounts.Bind(t.Context(), source, target, false, nil); !errors.Is(err, provisioner.AlreadyExists) {
		t.Errorf("Bind with writing = %v, want AlreadyExists", err)
	}
	if err := mounts.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, mounts provisioner.Mounts, target string) []provisioner.MountPoint {
	t.Helper()
	all, err := mounts.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []provisioner.MountPoint
	for _, mount := range all {
		if mount.Target == target {
			found = append(found, mount)
		}
	}
	return found
}
