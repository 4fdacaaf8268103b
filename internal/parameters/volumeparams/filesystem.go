package volumeparams

import (
	"cmp"
	"fmt"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

const (
	// defaultFSType is the filesystem that is made if none is named.
	defaultFSType = "ext4"
	// defaultBlockSize and defaultInodeSize are mkfs's defaults for disks of 1 GiB and more.
	defaultBlockSize = 4096
	defaultInodeSize = 256
	smallestExtInode = 128
	// smallestXFSInode is the smallest inode of xfs with checksums.
	smallestXFSInode = 512
	largestXFSInode  = 2048
)

// SetFilesystem sets the type of the filesystem that is made on the disk; "" for raw block, where
// the options of a filesystem have no effect.
func (p *Parameters) SetFilesystem(fsType string) {
	if p.FSType = fsType; fsType == "" {
		p.FilesystemOptions = apiv1.FilesystemOptions{}
	}
}

// Filesystem is the filesystem of the volume; nil for raw block.
func (p *Parameters) Filesystem() *apiv1.Filesystem {
	if p.FSType == "" {
		return nil
	}
	return &apiv1.Filesystem{Type: p.FSType, FilesystemOptions: p.FilesystemOptions}
}

// filesystemContradictions returns the options that mkfs would refuse for the filesystem on a disk
// of the size.
func (p *Parameters) filesystemContradictions(sizeBytes int64) []string {
	var faults []string
	fault := func(name string, value int64, format string, args ...any) {
		faults = append(faults, paramtable.Fault(name, value, fmt.Sprintf(format, args...)))
	}
	fsType := cmp.Or(p.FSType, defaultFSType)
	ext := slices.Contains([]string{"ext2", "ext3", "ext4"}, fsType)
	for _, option := range []struct {
		name  string
		value int64
		taken bool
		by    string
	}{
		{"blockSize", p.BlockSizeBytes, ext || fsType == "xfs", "ext2, ext3, ext4 or xfs"},
		{"inodeSize", p.InodeSizeBytes, ext || fsType == "xfs", "ext2, ext3, ext4 or xfs"},
		{"bytesPerInode", p.BytesPerInode, ext, "ext2, ext3 or ext4"},
		{"numberOfInodes", p.NumberOfInodes, ext, "ext2, ext3 or ext4"},
	} {
		if option.value != 0 && !option.taken {
			fault(option.name, option.value, "only with fsType %s, not with %s", option.by, fsType)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	block := cmp.Or(p.BlockSizeBytes, defaultBlockSize)
	if sector := p.sectorSize(); block < sector {
		fault("blockSize", block, "from %d on for a disk with logical sectors of that size", sector)
	}
	low, high := int64(smallestExtInode), block
	if fsType == "xfs" {
		low, high = smallestXFSInode, min(block/2, largestXFSInode)
	}
	if p.InodeSizeBytes != 0 && (p.InodeSizeBytes < low || p.InodeSizeBytes > high) {
		fault("inodeSize", p.InodeSizeBytes, "%d to %d for fsType %s and a block size of %d", low, high, fsType, block)
	}
	inode := cmp.Or(p.InodeSizeBytes, defaultInodeSize)
	switch least := max(block, 2*inode); {
	case p.BytesPerInode != 0 && p.NumberOfInodes != 0:
		fault("numberOfInodes", p.NumberOfInodes, "not with bytesPerInode")
	case p.BytesPerInode != 0 && p.BytesPerInode < least:
		fault("bytesPerInode", p.BytesPerInode, "from %d on for a block size of %d and an inode size of %d", least, block, inode)
	case p.NumberOfInodes > sizeBytes/least:
		fault("numberOfInodes", p.NumberOfInodes, "up to %d for a size of %d GiB, a block size of %d and an inode size of %d",
			sizeBytes/least, sizeBytes/GiB, block, inode)
	}
	return faults
}

// sectorSize returns the size of the disk's logical sectors.
func (p *Parameters) sectorSize() int64 {
	switch {
	case p.LogicalSectorSizeBytes != nil:
		return int64(*p.LogicalSectorSizeBytes)
	case provisioned(p.SKU()):
		return 4096
	default:
		return 512
	}
}
