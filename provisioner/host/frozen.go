package host

import (
	"context"
	"encoding/binary"
	"os"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Frozen implements provisioner.Filesystems. As long as ext3 and ext4 are mounted for writing, their
// superblock says that the journal has to be replayed. The kernel removes that when it freezes the
// filesystem, whose content is complete without the journal then. No call asks the kernel for it: the
// one that freezes would have to be made, and a write would wait for the end of the freeze.
func (f filesystems) Frozen(ctx context.Context, device, fsType string) (bool, error) {
	if fsType != "ext4" && fsType != "ext3" {
		return false, nil
	}
	frozen, err := bounded(ctx, func() (bool, error) {
		file, err := openDevice(device, os.O_RDONLY)
		if err != nil {
			return false, err
		}
		defer file.Close()
		const (
			compatible   = 1024 + 92 // s_feature_compat of struct ext4_super_block
			incompatible = 1024 + 96 // s_feature_incompat
			hasJournal   = 0x4
			needsReplay  = 0x4
		)
		var features [8]byte
		if _, err := file.ReadAt(features[:], compatible); err != nil {
			return false, err
		}
		return binary.LittleEndian.Uint32(features[:4])&hasJournal != 0 &&
			binary.LittleEndian.Uint32(features[incompatible-compatible:])&needsReplay == 0, nil
	})
	if err != nil {
		return false, provisioner.Errorf(provisioner.Unavailable, "read whether the filesystem on %s is frozen: %w", device, err)
	}
	return frozen, nil
}
