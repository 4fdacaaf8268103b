package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// superblocks is how much of a device has the fields that mountFault reads.
const superblocks = 2048

// mountFault returns why the kernel cannot mount a filesystem on a device, "" if that is not known.
// mount(8) shows only the kernel's error number: the reason is in the kernel's log.
func mountFault(ctx context.Context, device, fsType string) string {
	fault, err := bounded(ctx, func() (string, error) {
		file, err := openDevice(device, os.O_RDONLY)
		if err != nil {
			return "", err
		}
		defer file.Close()
		sector, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
		if err != nil {
			return "", err
		}
		content := make([]byte, superblocks)
		if _, err := file.ReadAt(content, 0); err != nil {
			return "", err
		}
		return unmountable(content, fsType, sector), nil
	})
	if err != nil {
		return ""
	}
	return fault
}

// unmountable decides it from the superblock and the size of the device's logical sectors.
func unmountable(content []byte, fsType string, sector int) string {
	smallest := sector
	switch {
	case fsType == "xfs" && string(content[:4]) == "XFSB":
		const (
			version    = 100 // sb_versionnum, whose low four bits are the version
			sectorSize = 102 // sb_sectsize
			current    = 5
		)
		if v := binary.BigEndian.Uint16(content[version:]) & 0xf; v < current {
			return fmt.Sprintf("its xfs has version %d, and kernels without CONFIG_XFS_SUPPORT_V4 mount only version %d; "+
				"copy the files to a new volume on a node whose kernel mounts it", v, current)
		}
		smallest = int(binary.BigEndian.Uint16(content[sectorSize:]))
	case isExt(fsType):
		const logBlockSize = 1024 + 24 // s_log_block_size of struct ext4_super_block
		if shift := binary.LittleEndian.Uint32(content[logBlockSize:]); shift <= 6 {
			smallest = 1024 << shift
		}
	}
	if smallest < sector {
		return fmt.Sprintf("its %s has units of %d bytes, and the disk has logical sectors of %d; "+
			"a copy of it needs a disk with logicalSectorSize 512", fsType, smallest, sector)
	}
	return ""
}
