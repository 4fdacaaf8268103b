package node

import (
	"errors"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A request names a disk by its whole resource ID. The AzVolume and the record of a disk are found by a name that is a
// hash of that ID. They are used only after they were compared with the whole ID: a user may have created the object
// manually, and two IDs may have the same short hash.

// errOtherDisk is the cause of a refusal if the request found an object or a record of another disk. The request must
// neither use nor remove it.
var errOtherDisk = errors.New("the name belongs to another disk")

// checkVolume refuses an AzVolume of another disk.
func checkVolume(volume *apiv1.AzVolume, disk volumehandle.Handle) error {
	if is := volumehandle.Of(volume.Spec.Disk); !is.Same(disk) {
		return refuse("refusing to use AzVolume %s for disk %s: it describes disk %s; if it was created manually, delete it: %w",
			volume.Name, disk, is, errOtherDisk)
	}
	return nil
}

// record returns the record of a disk. Errors: errOtherDisk if the record is another disk's.
func (s *Server) record(disk volumehandle.Handle) (record nodereport.Record, recorded bool, err error) {
	record, recorded, err = s.options.Records.Get(disk.VolumeName())
	if err != nil || !recorded {
		return nodereport.Record{}, false, err
	}
	if is, err := volumehandle.Parse(record.VolumeID); err != nil || !is.Same(disk) {
		return nodereport.Record{}, false, refuse("refusing to use disk %s as volume %s: the volume is staged on this node from disk %s at %s: %w",
			disk, record.VolumeName, record.VolumeID, record.StagingPath, errOtherDisk)
	}
	return record, true, nil
}

// parseID parses a volume ID. An ID that is not a disk's names a volume that does not exist.
func parseID(id string) (volumehandle.Handle, error) {
	disk, err := volumehandle.Parse(id)
	if err != nil {
		return volumehandle.Handle{}, provisioner.Errorf(provisioner.NotFound, "%w", err)
	}
	return disk, nil
}
