package node

import (
	"errors"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A request names a disk by its whole resource ID. The AzVolume and the record of a disk are found by a name that is made of that ID, and are compared with
// it nevertheless before anything follows from them: an object may have been made by hand, and a hash is short.

// errOtherDisk ends the refusal of a request that found what belongs to another disk. The request must neither use that nor clean it up.
var errOtherDisk = errors.New("the name stands for another disk")

// checkVolume refuses an AzVolume that is not the disk's.
func checkVolume(volume *apiv1.AzVolume, disk volumehandle.Handle) error {
	if is := volumehandle.Of(volume.Spec.Disk); !is.Same(disk) {
		return refuse("disk %s was asked for, and the AzVolume of its name, %s, is of disk %s; if it was made by hand, delete it: %w", disk, volume.Name, is, errOtherDisk)
	}
	return nil
}

// record returns the record of a disk. Errors: errOtherDisk for a record that is another disk's.
func (s *Server) record(disk volumehandle.Handle) (record nodereport.Record, recorded bool, err error) {
	record, recorded, err = s.options.Records.Get(disk.VolumeName())
	if err != nil || !recorded {
		return nodereport.Record{}, false, err
	}
	if is, err := volumehandle.Parse(record.VolumeID); err != nil || !is.Same(disk) {
		return nodereport.Record{}, false, refuse("disk %s was asked for, and volume %s of its name is staged on this node from disk %s at %s: %w",
			disk, record.VolumeName, record.VolumeID, record.StagingPath, errOtherDisk)
	}
	return record, true, nil
}

// parseID reads a volume ID. An ID that is not a disk's names a volume that does not exist.
func parseID(id string) (volumehandle.Handle, error) {
	disk, err := volumehandle.Parse(id)
	if err != nil {
		return volumehandle.Handle{}, provisioner.Errorf(provisioner.NotFound, "%w", err)
	}
	return disk, nil
}
