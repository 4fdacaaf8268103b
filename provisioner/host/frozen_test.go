package host_test

import (
	"path/filepath"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// xfs does not show it: the answer is false, and not an error.
func TestFrozenFilesystems(t *testing.T) {
	for fsType, want := range map[string]bool{"ext4": true, "ext3": true, "ext2": false, "xfs": false} {
		t.Run(fsType, func(t *testing.T) {
			h := host.New(host.Options{})
			target := filepath.Join(hosttest.MountDir(t), "mount")
			disk := hosttest.NewDisk(t, 320*hosttest.MiB)
			hosttest.Run(t, "mkfs."+fsType, "-q", disk.Device)
			if err := h.Mounts().Mount(t.Context(), disk.Device, target, fsType, nil); err != nil {
				t.Fatal(err)
			}
			expect := func(when string, want bool) {
				t.Helper()
				if got, err := h.Filesystems().Frozen(t.Context(), disk.Device, fsType); err != nil || got != want {
					t.Errorf("%s: got frozen %t, %v; want %t", when, got, err, want)
				}
			}
			expect("mounted", false)
			freeze(t, target)
			expect("frozen", want)
			hosttest.Run(t, "fsfreeze", "--unfreeze", target)
			expect("thawed", false)
			if err := h.Mounts().Unmount(t.Context(), target); err != nil {
				t.Fatal(err)
			}
		})
	}
}
