// Package host is the host side of the Provisioner Library on Linux: it finds the
// block device of an attached disk, reads and makes filesystems, and mounts them.
//
// The node plug-in is its only caller. It needs root, the tools blkid, mount, umount, mkfs.*,
// e2fsck, resize2fs and xfs_growfs on the path, and sees /dev and /sys of the host.
//
// Invariants:
//   - Nothing is ever written to a device that does not read blank, but by Unmake, whose caller
//     vouches for what is on it (law 4).
//   - Commands that change something are waited for also when their context has ended, after they
//     were killed: when a method returns, nothing that it started still runs. Only pure reads are
//     left behind.
//   - Nothing is remembered between calls.
package host
