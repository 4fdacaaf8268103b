package volumeparams_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestWhichFilesystemTakesWhichOptions(t *testing.T) {
	t.Parallel()
	type class = map[string]string
	for name, test := range map[string]struct {
		fsType string
		class  class
		says   []string // nothing for yes
	}{
		"every option of ext4": {"ext4", class{"blockSize": "1024", "inodeSize": "512", "bytesPerInode": "2048"}, nil},
		"every option of ext2": {
			"ext2", class{"blockSize": "4096", "inodeSize": "128", "numberOfInodes": "100000"}, nil},
		"every option of xfs":             {"xfs", class{"blockSize": "2048", "inodeSize": "1024"}, nil},
		"none is named, and ext4 is made": {"", class{"bytesPerInode": "8192"}, nil},
		"raw block":                       {"block", class{"bytesPerInode": "8192", "fsType": "btrfs"}, nil},
		"btrfs": {"btrfs", class{"blockSize": "4096"},
			[]string{"blockSize", `"4096"`, "ext2, ext3, ext4 or xfs", "btrfs"}},
		"xfs has as many inodes as it needs": {"xfs", class{"bytesPerInode": "8192", "numberOfInodes": "7"},
			[]string{"bytesPerInode", "numberOfInodes", "ext2, ext3 or ext4", "xfs"}},
		"an inode of ext3 above its block": {"ext3", class{"blockSize": "1024", "inodeSize": "2048"},
			[]string{"inodeSize", "2048", "128 to 1024"}},
		"an inode of xfs without checksums": {"xfs", class{"inodeSize": "256"}, []string{"inodeSize", "256", "512 to 2048"}},
		"an inode of xfs above half a block": {"xfs", class{"blockSize": "1024", "inodeSize": "1024"},
			[]string{"inodeSize", "1024", "512 to 512"}},
		"both numbers of inodes": {"ext4", class{"bytesPerInode": "8192", "numberOfInodes": "7"},
			[]string{"numberOfInodes", "7", "not with bytesPerInode"}},
		"more inodes than blocks": {"ext4", class{"bytesPerInode": "2048"}, []string{"bytesPerInode", "2048", "from 4096 on"}},
		"inodes that fill the disk": {"ext4", class{"bytesPerInode": "4096", "inodeSize": "4096"},
			[]string{"bytesPerInode", "from 8192 on", "inode size of 4096"}},
		"more inodes than the size has": {"ext4", class{"numberOfInodes": "268435457"},
			[]string{"numberOfInodes", "268435457", "up to 268435456", "1024 GiB"}},
		"as many as the size has": {"ext4", class{"numberOfInodes": "268435456"}, nil},
		"a block below the sectors of the disk": {"ext4", class{"skuName": "PremiumV2_LRS", "blockSize": "1024"},
			[]string{"blockSize", "1024", "from 4096 on"}},
		"a disk with small sectors": {"ext4",
			class{"skuName": "PremiumV2_LRS", "blockSize": "1024", "logicalSectorSize": "512"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := volumeparams.Parse(test.class)
			if err != nil {
				t.Fatal(err)
			}
			p.SetFilesystem(strings.TrimPrefix(test.fsType, "block"))
			if test.fsType == "" {
				p.SetFilesystem("ext4")
			}
			err = p.CheckSize(sizeBytes)
			if test.says == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatalf("got %v, want InvalidArgument", err)
			}
			for _, words := range test.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not name %q", err, words)
				}
			}
		})
	}
}
