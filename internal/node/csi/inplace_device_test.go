package csi_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// shutDown has the kernel end a filesystem without a further write, as it does itself when the
// device fails.
func shutDown(t *testing.T, path string) {
	t.Helper()
	const (
		fsIocShutdown = 0x8004587d
		noLogFlush    = 2
	)
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), fsIocShutdown, noLogFlush); err != nil {
		t.Fatalf("shut down the filesystem at %s: %v", path, err)
	}
}

// syncfs writes a filesystem back, and no other one.
func syncfs(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		t.Fatalf("sync the filesystem at %s: %v", path, err)
	}
}

// The disk was cut off the node, which is primary again. The disk has a new device, with the
// filesystem of the same UUID, and a pod of before still holds the dead one.
func TestLaw2ARealVolumeIsStagedInPlaceBesideItsDeadMount(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			before, after := hosttest.NewDisk(t, diskSize), hosttest.NewDisk(t, diskSize)
			links := t.TempDir()
			before.Link(t, links, lun)
			m := newMachine(t, host.New(host.Options{Links: links}), hosttest.MountDir(t), quiet)
			m.publish(nil)
			s, capability := m.start(), mountCapability(fsType)
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			m.must(os.WriteFile(filepath.Join(m.target(), "file"), []byte("kept"), 0o600))
			syncfs(t, m.target())
			before.CopyTo(t, after)
			shutDown(t, m.stagingPath())
			m.must(os.RemoveAll(filepath.Join(links, "data")))
			after.Link(t, links, lun)
			m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 3, 3 })

			m.must(m.publishNext(s, capability))
			next := m.target() + "-next"
			if data, err := os.ReadFile(filepath.Join(next, "file")); err != nil || string(data) != "kept" {
				t.Errorf("the next pod reads %q, %v, want what was written before", data, err)
			}
			m.must(os.WriteFile(filepath.Join(next, "other"), []byte("written"), 0o600))
			if err := os.WriteFile(filepath.Join(m.target(), "other"), []byte("written"), 0o600); err == nil {
				t.Error("the pod of before wrote to the filesystem that is dead")
			}
			if entry := m.entry(); entry == nil || entry.Epoch != 3 || entry.Device != after.Device {
				t.Errorf("entry = %+v, want epoch 3 with %s", entry, after.Device)
			}
			m.must(m.unpublishVolume(s))
			m.unpublishAt(s, next)
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}
