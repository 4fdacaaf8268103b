package host

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Grow implements provisioner.Filesystems. The kernel grows a mounted ext filesystem
// only for a process with CAP_SYS_RESOURCE, which some sandboxes take away even from privileged
// containers; there it is grown before the mount, at the cost of a full check.
func (f filesystems) Grow(ctx context.Context, device, mountPath string) error {
	if mountPath == "" {
		return f.growUnmounted(ctx, device)
	}
	mount, found, err := f.topMount(ctx, mountPath)
	if err != nil {
		return err
	}
	if !found {
		return provisioner.Errorf(provisioner.NotFound, "nothing is mounted at %s", mountPath)
	}
	if slices.Contains(mount.MountOptions, "ro") {
		return nil
	}
	switch {
	case isExt(mount.FsType):
		err = f.growMountedExt(ctx, device)
	case mount.FsType == "xfs":
		err = f.runToEnd(ctx, device, "xfs_growfs", "-d", mountPath)
	case mount.FsType == "btrfs":
		err = f.runToEnd(ctx, device, "btrfs", "filesystem", "resize", "max", mountPath)
	default:
		return provisioner.Errorf(provisioner.InvalidArgument, "filesystem type %q cannot grow", mount.FsType)
	}
	return err
}

func (f filesystems) growMountedExt(ctx context.Context, device string) error {
	if !canGrowMounted() {
		room, err := bounded(ctx, func() (bool, error) { return extLeavesRoom(device) })
		if err != nil {
			return provisioner.Errorf(provisioner.Unavailable, "read superblock of %s: %w", device, err)
		}
		if room {
			return provisioner.Errorf(provisioner.FailedPrecondition,
				"the filesystem on %s cannot grow while it is mounted: the process lacks CAP_SYS_RESOURCE; it grows when it is staged again", device)
		}
		return nil
	}
	return f.runToEnd(ctx, device, "resize2fs", device)
}

func (f filesystems) growUnmounted(ctx context.Context, device string) error {
	if canGrowMounted() {
		return nil
	}
	found, err := f.signature(ctx, device)
	if err != nil {
		return err
	}
	if !isExt(found.fs.Type) {
		return nil
	}
	smaller, err := bounded(ctx, func() (bool, error) { return extLeavesRoom(device) })
	if err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "read superblock of %s: %w", device, err)
	}
	if !smaller {
		return nil
	}
	// The resize must follow the check also when the caller has gone: the next call would start
	// with the check again.
	ctx = context.WithoutCancel(ctx)
	if err := f.runE2fsck(ctx, device, found.fs, "-f", "-p"); err != nil {
		return err
	}
	return f.runToEnd(ctx, device, "resize2fs", device)
}

func canGrowMounted() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// Offsets in the ext superblock, which is 1 KiB into the device: the layout of struct
// ext4_super_block.
const (
	extSuperblock        = 1024
	extBlocksLow         = 0x04
	extLogBlockSize      = 0x18
	extBlocksPerGroup    = 0x20
	extIncompatible      = 0x60
	extBlocksHigh        = 0x150
	extIncompatible64Bit = 0x80
)

// extLeavesRoom reports whether the device is larger than its ext filesystem by more than a block
// group. A smaller remainder may be one that resize2fs cannot use.
func extLeavesRoom(device string) (bool, error) {
	file, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	super := make([]byte, 1024)
	if _, err := file.ReadAt(super, extSuperblock); err != nil {
		return false, err
	}
	word := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(super[offset:])) }
	blockSize := int64(1024) << word(extLogBlockSize)
	blocks := word(extBlocksLow)
	if word(extIncompatible)&extIncompatible64Bit != 0 {
		blocks |= word(extBlocksHigh) << 32
	}
	return size-blocks*blockSize > word(extBlocksPerGroup)*blockSize, nil
}
