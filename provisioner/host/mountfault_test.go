package host_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// The kernel says in its log only why it does not mount these filesystems.
func TestAMountThatTheKernelRefusesSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		fsType, mkfs string
		arguments    []string
		sector       int
		want         string
		// unless is set if some kernels mount the filesystem.
		unless bool
	}{
		"an xfs of a disk with smaller sectors": {fsType: "xfs", mkfs: "mkfs.xfs", arguments: []string{"-q"}, sector: 4096,
			want: "logicalSectorSize 512"},
		"an ext4 with blocks smaller than the sectors": {fsType: "ext4", mkfs: "mkfs.ext4",
			arguments: []string{"-q", "-b", "1024"}, sector: 4096, want: "logicalSectorSize 512"},
		"an xfs of version 4": {fsType: "xfs", mkfs: "mkfs.xfs", arguments: []string{"-q", "-m", "crc=0"}, sector: 512,
			want: "version 4", unless: true},
		"an xfs of version 4 and of smaller sectors": {fsType: "xfs", mkfs: "mkfs.xfs", arguments: []string{"-q", "-m", "crc=0"},
			sector: 4096, want: "version 4"},
		"an ext4 of a disk with smaller sectors mounts": {fsType: "ext4", mkfs: "mkfs.ext4",
			arguments: []string{"-q", "-b", "4096"}, sector: 4096},
		"an xfs with an option that it does not know": {fsType: "xfs", mkfs: "mkfs.xfs", arguments: []string{"-q"}, sector: 512},
	} {
		t.Run(name, func(t *testing.T) {
			disk := hosttest.NewDisk(t, 400*hosttest.MiB)
			hosttest.Run(t, test.mkfs, append(test.arguments, disk.Device)...)
			disk.SetSectorSize(t, test.sector)
			mounts, target := host.New(host.Options{}).Mounts(), filepath.Join(hosttest.MountDir(t), "target")
			var options []string
			if strings.Contains(name, "option") {
				options = []string{"no-such-option"}
			}
			err := mounts.Mount(t.Context(), disk.Device, target, test.fsType, options)
			switch {
			case err == nil:
				if test.want != "" && !test.unless {
					t.Errorf("mounted, want a refusal that says %q", test.want)
				}
				if err := mounts.Unmount(t.Context(), target); err != nil {
					t.Error(err)
				}
			case test.want == "":
				if options == nil || errors.Is(err, provisioner.FailedPrecondition) {
					t.Errorf("got %v, want a mount or the words of mount", err)
				}
			case !errors.Is(err, provisioner.FailedPrecondition) || !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v, want FailedPrecondition that says %q", err, test.want)
			}
		})
	}
}
