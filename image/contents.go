package image

import "slices"

// Named are the packages that files are taken from. The libraries that they depend on come with
// them.
var Named = []string{"base-files", "btrfs-progs", "ca-certificates", "dash", "e2fsprogs", "libgcc-s1", "mount", "util-linux",
	"xfsprogs"}

// tools are the programs of the image besides the driver, in /usr/sbin or /usr/bin.
// provisioner/host runs them, or they run each other.
var tools = []string{
	"blkid", "blockdev", "mount", "umount", "fsck",
	"mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "e2fsck", "fsck.ext2", "fsck.ext3", "fsck.ext4", "resize2fs", "tune2fs",
	"dumpe2fs",
	"mkfs.xfs", "fsck.xfs", "xfs_admin", "xfs_db", "xfs_growfs", "xfs_io", "xfs_repair",
	"btrfs", "btrfstune", "mkfs.btrfs", "fsck.btrfs",
	"sh", "unshare",
}

// Files are the patterns of the files that are taken.
func Files() []string {
	patterns := []string{
		"etc/debian_version", "etc/mke2fs.conf", "etc/os-release", "usr/share/common-licenses/*",
		// The C library opens it when a thread ends.
		"usr/lib/TRIPLET/libgcc_s.so.1",
	}
	for _, tool := range tools {
		patterns = append(patterns, "usr/*bin/"+tool)
	}
	return slices.Sorted(slices.Values(patterns))
}
