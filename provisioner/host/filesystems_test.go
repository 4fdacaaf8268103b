package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const (
	uuid      = "0b6a2c3e-9f11-4f0b-8a53-0d4f6a1c7e55"
	otherUUID = "7c9d5a10-41a3-4f6e-9b1e-3a7d2f8e6b12"
	// minimum that mkfs.xfs takes, and then some.
	diskSize = 320 * hosttest.MiB
)

func TestAFilesystemFromBlankToGrown(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			disk := hosttest.NewDisk(t, diskSize)
			h := host.New(host.Options{})
			fss := h.Filesystems()
			want := provisioner.Filesystem{Type: fsType, UUID: uuid}
			assertProbe(t, fss, disk, provisioner.Filesystem{}, true)
			if err := fss.Make(t.Context(), disk.Device, want, provisioner.FilesystemOptions{}); err != nil {
				t.Fatal(err)
			}
			assertProbe(t, fss, disk, want, false)
			other := provisioner.Filesystem{Type: fsType, UUID: otherUUID}
			if err := fss.Make(t.Context(), disk.Device, other, provisioner.FilesystemOptions{}); !errors.Is(err,
				provisioner.FailedPrecondition) {
				t.Errorf("a second Make: %v, want FailedPrecondition", err)
			}
			assertProbe(t, fss, disk, want, false)
			if err := fss.Check(t.Context(), disk.Device, want); err != nil {
				t.Errorf("Check: %v", err)
			}
			growMounted(t, h, disk, fsType)
		})
	}
}

func TestAFilesystemHasItsOptions(t *testing.T) {
	for name, test := range map[string]struct {
		fsType  string
		options provisioner.FilesystemOptions
		show    []string // the command that shows the superblock
		want    []string
	}{
		"ext4": {"ext4", provisioner.FilesystemOptions{
			BlockSizeBytes: 1024,
			InodeSizeBytes: 512,
			BytesPerInode:  8192,
		}, []string{"dumpe2fs", "-h"},
			[]string{`Block size: +1024\n`, `Inode size:\s+512\n`, `Inode count: +40960\n`}},
		"ext3 with a number of inodes": {"ext3", provisioner.FilesystemOptions{
			BlockSizeBytes: 4096,
			InodeSizeBytes: 1024,
			NumberOfInodes: 2000,
		}, []string{"dumpe2fs", "-h"},
			[]string{`Block size: +4096\n`, `Inode size:\s+1024\n`, `Inode count: +(19|20)\d\d\n`}},
		"ext2 with one inode, which is rounded up": {"ext2", provisioner.FilesystemOptions{NumberOfInodes: 1},
			[]string{"dumpe2fs", "-h"}, []string{`Inode count: +\d\d+\n`}},
		"ext4 with an inode for each block": {"ext4", provisioner.FilesystemOptions{
			BlockSizeBytes: 4096,
			InodeSizeBytes: 2048,
			BytesPerInode:  4096,
		}, []string{"dumpe2fs", "-h"}, []string{`Inode count: +819\d\d\n`}},
		"xfs": {"xfs", provisioner.FilesystemOptions{
			BlockSizeBytes: 1024,
			InodeSizeBytes: 512,
		}, []string{"xfs_db", "-r", "-c", "sb 0", "-c", "p blocksize inodesize"},
			[]string{`blocksize = 1024\n`, `inodesize = 512\n`}},
		"xfs with large inodes": {"xfs", provisioner.FilesystemOptions{InodeSizeBytes: 2048},
			[]string{"xfs_db", "-r", "-c", "sb 0", "-c", "p inodesize"}, []string{`inodesize = 2048\n`}},
	} {
		t.Run(name, func(t *testing.T) {
			disk, h := hosttest.NewDisk(t, diskSize), host.New(host.Options{})
			fs := provisioner.Filesystem{Type: test.fsType, UUID: uuid}
			if err := h.Filesystems().Make(t.Context(), disk.Device, fs, test.options); err != nil {
				t.Fatal(err)
			}
			assertProbe(t, h.Filesystems(), disk, fs, false)
			shown := hosttest.Run(t, test.show[0], append(test.show[1:], disk.Device)...)
			for _, want := range test.want {
				if !regexp.MustCompile(want).MatchString(shown) {
					t.Errorf("got %s, want %s", shown, want)
				}
			}
			growMounted(t, h, disk, test.fsType)
		})
	}
}

func TestOptionsThatAFilesystemDoesNotTakeAreRefused(t *testing.T) {
	disk, fss := hosttest.NewDisk(t, diskSize), host.New(host.Options{}).Filesystems()
	for fsType, options := range map[string]provisioner.FilesystemOptions{
		"btrfs": {BlockSizeBytes: 4096}, "xfs": {BlockSizeBytes: 4096, BytesPerInode: 8192},
	} {
		err := fss.Make(t.Context(), disk.Device, provisioner.Filesystem{Type: fsType, UUID: uuid}, options)
		if !errors.Is(err, provisioner.InvalidArgument) {
			t.Errorf("%s: got %v, want InvalidArgument", fsType, err)
		}
		assertProbe(t, fss, disk, provisioner.Filesystem{}, true)
	}
}

func growMounted(t *testing.T, h *host.Host, disk *hosttest.Disk, fsType string) {
	t.Helper()
	target := filepath.Join(hosttest.MountDir(t), "mnt")
	if err := h.Filesystems().Grow(t.Context(), disk.Device, target); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("Grow of what is not mounted: %v, want NotFound", err)
	}
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, fsType, nil); err != nil {
		t.Fatal(err)
	}
	before, err := h.Filesystems().Stats(t.Context(), target)
	if err != nil || before.TotalBytes == 0 || before.TotalInodes == 0 || before.AvailableBytes > before.TotalBytes {
		t.Errorf("Stats = %+v, %v", before, err)
	}
	if err := h.Filesystems().Grow(t.Context(), disk.Device, target); err != nil {
		t.Errorf("Grow of what is grown already: %v", err)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	disk.Grow(t, 2*diskSize)
	if err := h.Filesystems().Grow(t.Context(), disk.Device, ""); err != nil {
		t.Errorf("Grow before the mount: %v", err)
	}
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, fsType, nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Filesystems().Grow(t.Context(), disk.Device, target); err != nil {
		t.Errorf("Grow: %v", err)
	}
	after, err := h.Filesystems().Stats(t.Context(), target)
	if err != nil || after.TotalBytes < before.TotalBytes+diskSize/2 {
		t.Errorf("after Grow: %+v, %v; before: %+v", after, err, before)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotBlankIsNeverFormatted(t *testing.T) {
	tests := map[string]func(*testing.T, *hosttest.Disk){
		"a byte in the first MiB":      func(t *testing.T, d *hosttest.Disk) { d.WriteAt(t, []byte{1}, 700<<10) },
		"a byte at the very end":       func(t *testing.T, d *hosttest.Disk) { d.WriteAt(t, []byte{1}, diskSize-1) },
		"a filesystem of another kind": func(t *testing.T, d *hosttest.Disk) { hosttest.Run(t, "mkfs.ext2", "-q", d.Device) },
		"swap":                         func(t *testing.T, d *hosttest.Disk) { hosttest.Run(t, "mkswap", d.Device) },
		"a partition table": func(t *testing.T, d *hosttest.Disk) {
			// One Linux partition from sector 2048 on, and the boot signature.
			d.WriteAt(t, []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0}, 446)
			d.WriteAt(t, []byte{0x55, 0xaa}, 510)
		},
		"two filesystems at once": func(t *testing.T, d *hosttest.Disk) {
			hosttest.Run(t, "mkfs.xfs", "-q", d.Device)
			hosttest.Run(t, "mkfs.ext4", "-q", "-F", d.Device)
			d.WriteAt(t, []byte("XFSB"), 0)
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			disk := hosttest.NewDisk(t, diskSize)
			prepare(t, disk)
			fss := host.New(host.Options{}).Filesystems()
			if _, err := host.New(host.Options{}).Devices().Rescan(t.Context(), disk.Device); err != nil {
				t.Fatal(err)
			}
			if _, blank, err := fss.Probe(t.Context(), disk.Device); blank || err != nil {
				t.Errorf("Probe: blank = %v, %v", blank, err)
			}
			before := disk.Content(t)
			for _, fsType := range []string{"ext4", "xfs"} {
				err := fss.Make(t.Context(), disk.Device, provisioner.Filesystem{
					Type: fsType,
					UUID: uuid,
				}, provisioner.FilesystemOptions{})
				if !errors.Is(err, provisioner.FailedPrecondition) {
					t.Errorf("Make %s: %v, want FailedPrecondition", fsType, err)
				}
			}
			if !bytes.Equal(before, disk.Content(t)) {
				t.Error("the device was written to")
			}
		})
	}
}

func TestUnmake(t *testing.T) {
	ours := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	tests := map[string]struct {
		prepare func(*testing.T, *hosttest.Disk)
		want    error
	}{
		"a blank device stays blank": {func(*testing.T, *hosttest.Disk) {}, nil},
		"remains without a signature go": {func(t *testing.T, d *hosttest.Disk) { d.WriteAt(t, []byte("bitmap"), 8192) },
			nil},
		"the filesystem that was made goes": {func(t *testing.T,
			d *hosttest.Disk) {
			hosttest.Run(t, "mkfs.ext4", "-q", "-U", uuid, d.Device)
		}, nil},
		"a filesystem of another UUID stays": {func(t *testing.T,
			d *hosttest.Disk) {
			hosttest.Run(t, "mkfs.ext4", "-q", "-U", otherUUID, d.Device)
		}, provisioner.FailedPrecondition},
		"a filesystem of another type stays": {func(t *testing.T,
			d *hosttest.Disk) {
			hosttest.Run(t, "mkfs.xfs", "-q", "-m", "uuid="+uuid, d.Device)
		}, provisioner.FailedPrecondition},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			disk := hosttest.NewDisk(t, diskSize)
			test.prepare(t, disk)
			fss := host.New(host.Options{}).Filesystems()
			before := disk.Content(t)
			err := fss.Unmake(t.Context(), disk.Device, ours)
			if test.want != nil {
				if !errors.Is(err, test.want) || !bytes.Equal(before, disk.Content(t)) {
					t.Errorf("Unmake = %v, or the device was written to", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := fss.Make(t.Context(), disk.Device, ours, provisioner.FilesystemOptions{}); err != nil {
				t.Errorf("Make after Unmake: %v", err)
			}
		})
	}
}

func TestUnmakeLeavesAMountedFilesystemAlone(t *testing.T) {
	disk := hosttest.NewDisk(t, diskSize)
	h := host.New(host.Options{})
	ours := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	if err := h.Filesystems().Make(t.Context(), disk.Device, ours, provisioner.FilesystemOptions{}); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(hosttest.MountDir(t), "mnt")
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Filesystems().Unmake(t.Context(), disk.Device, ours); err == nil {
		t.Error("a mounted filesystem was cleared")
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if err := h.Filesystems().Check(t.Context(), disk.Device, ours); err != nil {
		t.Error(err)
	}
}

func TestCheckRepairsWhatItCanAndAsksForTheRest(t *testing.T) {
	fs := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	disk := hosttest.NewDisk(t, diskSize)
	fss := host.New(host.Options{}).Filesystems()
	if err := fss.Make(t.Context(), disk.Device, fs, provisioner.FilesystemOptions{}); err != nil {
		t.Fatal(err)
	}
	// A free-blocks count that is wrong is repaired without a question.
	hosttest.Run(t, "debugfs", "-w", "-R", "set_super_value free_blocks_count 5", disk.Device)
	hosttest.Run(t, "debugfs", "-w", "-R", "set_super_value state 0", disk.Device)
	if err := fss.Check(t.Context(), disk.Device, fs); err != nil {
		t.Errorf("what can be repaired: %v", err)
	}
	// A root directory that is gone is not.
	hosttest.Run(t, "debugfs", "-w", "-R", "clri <2>", disk.Device)
	hosttest.Run(t, "debugfs", "-w", "-R", "set_super_value state 0", disk.Device)
	if err := fss.Check(t.Context(), disk.Device, fs); !errors.Is(err, provisioner.FailedPrecondition) ||
		!errors.Is(err, provisioner.FilesystemDamaged) {
		t.Errorf("what cannot be repaired: %v, want FailedPrecondition with the fault FilesystemDamaged", err)
	}
}

func TestAFilesystemThatE2fsckDoesNotKnowIsUsedIfItIsClean(t *testing.T) {
	const (
		superblock    = 1024
		state         = superblock + 58
		featureCompat = superblock + 0x5c
		unknown       = 0x20
	)
	fs := provisioner.Filesystem{Type: "ext4", UUID: uuid}
	disk := hosttest.NewDisk(t, diskSize)
	// Without checksums, e2fsck gets to the feature.
	hosttest.Run(t, "mkfs.ext4", "-q", "-O", "^metadata_csum", "-U", uuid, disk.Device)
	device, err := os.OpenFile(disk.Device, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if _, err := device.WriteAt([]byte{unknown}, featureCompat+3); err != nil {
		t.Fatal(err)
	}
	h := host.New(host.Options{})
	if err := h.Filesystems().Check(t.Context(), disk.Device, fs); err != nil {
		t.Errorf("a clean filesystem: %v, want no error", err)
	}
	target := filepath.Join(t.TempDir(), "mount")
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, fs.Type, nil); err != nil {
		t.Errorf("the mount of it: %v", err)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	const valid, hasErrors = 1, 2
	if _, err := device.WriteAt([]byte{valid | hasErrors}, state); err != nil {
		t.Fatal(err)
	}
	if err := h.Filesystems().Check(t.Context(), disk.Device, fs); !errors.Is(err, provisioner.FilesystemDamaged) {
		t.Errorf("one with errors: %v, want the fault FilesystemDamaged", err)
	}
}

func TestBadArgumentsAndDevices(t *testing.T) {
	fss := host.New(host.Options{}).Filesystems()
	ctx := t.Context()
	if _, _, err := fss.Probe(ctx, "/dev/not-there"); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("Probe of what is not there: %v, want Unavailable", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, hosttest.MiB), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fss.Probe(ctx, file); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("Probe of a plain file: %v, want Unavailable", err)
	}
	for _, fs := range []provisioner.Filesystem{{Type: "ntfs", UUID: uuid}, {Type: "ext4"}, {Type: "../sh", UUID: uuid}} {
		if err := fss.Make(ctx, "/dev/not-there", fs, provisioner.FilesystemOptions{}); !errors.Is(err,
			provisioner.InvalidArgument) {
			t.Errorf("Make %+v: %v, want InvalidArgument", fs, err)
		}
	}
	if _, err := fss.Stats(ctx, "/not/there"); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("Stats of what is not there: %v, want NotFound", err)
	}
}

func TestACallWhoseContextHasEndedReturnsItsError(t *testing.T) {
	disk := hosttest.NewDisk(t, diskSize)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := host.New(host.Options{}).Filesystems().Make(ctx, disk.Device, provisioner.Filesystem{
		Type: "ext4",
		UUID: uuid,
	}, provisioner.FilesystemOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Make = %v, want Canceled", err)
	}
	assertProbe(t, host.New(host.Options{}).Filesystems(), disk, provisioner.Filesystem{}, true)
}

func assertProbe(t *testing.T, fss provisioner.Filesystems, disk *hosttest.Disk, want provisioner.Filesystem, wantBlank bool) {
	t.Helper()
	got, blank, err := fss.Probe(t.Context(), disk.Device)
	if err != nil || got != want || blank != wantBlank {
		t.Errorf("Probe = %+v, blank %v, %v; want %+v, blank %v", got, blank, err, want, wantBlank)
	}
}
