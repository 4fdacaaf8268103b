package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ownDevice finds the device of a volume and makes sure that it is the volume's. Until release is called, no other call uses the device.
func (s *Server) ownDevice(ctx context.Context, use usage, volume *apiv1.AzVolume, grant ownership.StageDecision) (provisioner.Device, ownership.StageDecision, func(), error) {
	device, grant, err := s.grantedDevice(ctx, volume, grant)
	if err != nil {
		return provisioner.Device{}, grant, nil, err
	}
	release, err := s.identify(ctx, use, volume, grant.LUN, device)
	return device, grant, release, err
}

// reportLost ends a call that got no device for a volume, and returns its failure. If the volume was staged before and has lost its
// device, the report must not say Staged any more: the controller attaches the volume's disk again only while it is Staging.
func (s *Server) reportLost(ctx context.Context, use usage, failure error) error {
	record, recorded, err := s.record(use.disk)
	if err != nil || !recorded || record.BootID != s.options.BootID || !s.lost(ctx, record) {
		return failure
	}
	if err := s.options.Report.Restage(ctx, use.volume); err != nil {
		return fmt.Errorf("%w; %w", failure, err)
	}
	return failure
}

// lost says whether a volume has lost the device that it was staged with. It is false if ctx ends before that is certain.
func (s *Server) lost(ctx context.Context, record nodereport.Record) bool {
	if s.answers(ctx, record.Device) != nil {
		return ctx.Err() == nil
	}
	if !record.Block {
		return false // the mount holds the device, so that its path cannot mean another one
	}
	_, why, err := s.stagedBlockDevice(ctx, record)
	return err == nil && why != ""
}

// grantedDevice finds the device at the LUN that was granted, and reads the grant again after that: the controller attaches a disk again
// that is not where it is recorded, maybe under another LUN, as long as the report does not say that the volume is staged. While the
// device does not come the grant is read again from time to time.
func (s *Server) grantedDevice(ctx context.Context, volume *apiv1.AzVolume, grant ownership.StageDecision) (provisioner.Device, ownership.StageDecision, error) {
	for round := 0; ; round++ {
		if round == 1 {
			// What was staged before, if anything, has lost its device.
			if err := s.options.Report.Restage(ctx, volume.Name); err != nil {
				return provisioner.Device{}, grant, err
			}
		}
		device, came, err := s.findFor(ctx, volume, grant.LUN)
		if err != nil {
			return provisioner.Device{}, grant, err
		}
		if came {
			// The LUN is on the attachment. A claim need not be read for this: before it passes on, the proof is recorded on the attachment.
			attachment, err := s.readAttachment(ctx, volume.Name)
			if err != nil {
				return provisioner.Device{}, grant, err
			}
			if s.mayStage(volume, attachment) == grant {
				return device, grant, nil
			}
		}
		_, current, err := s.awaitGrant(ctx, volumehandle.Of(volume.Spec.Disk))
		switch {
		case err != nil:
			return provisioner.Device{}, grant, err
		case current.Epoch != grant.Epoch:
			return provisioner.Device{}, grant, provisioner.Errorf(provisioner.Unavailable, "the claim to volume %s was of epoch %d and is of epoch %d now",
				volume.Name, grant.Epoch, current.Epoch)
		case came && current.LUN == grant.LUN:
			return device, current, nil
		case current.LUN != grant.LUN:
			logr.FromContextOrDiscard(ctx).Info("the disk has another LUN now", "volumeName", volume.Name, "was", grant.LUN, "lun", current.LUN)
		}
		grant = current
	}
}

// findFor looks for the device for rereadInterval. came is false if it did not show up.
func (s *Server) findFor(ctx context.Context, volume *apiv1.AzVolume, lun int32) (device provisioner.Device, came bool, err error) {
	round, cancel := context.WithTimeout(ctx, rereadInterval)
	defer cancel()
	device, err = s.findDevice(round, volume, lun)
	if err != nil && ctx.Err() == nil && round.Err() != nil {
		return provisioner.Device{}, false, nil
	}
	return device, err == nil, err
}

// identify makes sure, as far as it can be known on the node, that the device is the volume's disk. A LUN is all that Azure tells of a
// device: see docs/reference/device-identity.md. Until release is called, no other call uses the device.
func (s *Server) identify(ctx context.Context, use usage, volume *apiv1.AzVolume, lun int32, disk provisioner.Device) (release func(), err error) {
	if release, err = s.reserve(disk.Path); err != nil {
		return nil, err
	}
	err = s.checkNotAnothers(ctx, use.volume, disk)
	if err == nil {
		err = s.checkInstance(ctx, use, volume, lun)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// reserve takes a device for one call.
func (s *Server) reserve(device string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved[device] {
		return nil, provisioner.Errorf(provisioner.Conflict, "another volume is being staged with device %s", device)
	}
	s.reserved[device] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.reserved, device)
	}, nil
}

// checkNotAnothers refuses a device that another volume is staged with on this node: by its record, or by a mount at its staging path. The
// failure is not final, because one of the two LUNs is out of date and is corrected.
func (s *Server) checkNotAnothers(ctx context.Context, volume string, disk provisioner.Device) error {
	records, err := s.options.Records.List()
	if err != nil {
		return err
	}
	entries, err := s.options.Report.Entries(ctx)
	if err != nil {
		return err
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	owners := map[string]string{} // by staging path
	for _, entry := range entries {
		owners[entry.StagingPath] = entry.VolumeName
	}
	for name, record := range records {
		owners[record.StagingPath] = name
	}
	for _, mount := range mounts {
		if owner := owners[mount.Target]; mount.Source == disk.Path && owner != "" && owner != volume {
			return anothers(volume, disk, owner)
		}
	}
	own := records[volume]
	for name, record := range records {
		if name == volume || record.BootID != s.options.BootID || !s.names(ctx, record, disk) {
			continue
		}
		// If the volume itself was staged with the device, it is its own pods that have it.
		ours := own.Device == record.Device && own.BootID == record.BootID
		if !ours && slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool { return m.Source == record.Device }) {
			return anothers(volume, disk, name)
		}
		why, err := s.outOfDate(ctx, record)
		switch {
		case errors.Is(err, errOtherDisk), errors.Is(err, provisioner.NotFound), err == nil && why == "":
			return anothers(volume, disk, name)
		case err != nil:
			return err
		}
		logr.FromContextOrDiscard(ctx).Info("the device had been another volume's", "device", disk.Path, "volumeName", name, "reason", why)
	}
	return nil
}

// outOfDate says why the device of a record, which nothing has mounted, is not that volume's any more, or "" if it may be. Nothing holds a
// raw block device once its pods have ended: a disk that is attached later can get its path while the record still names it, under an
// epoch that lasts. Such a record counts only while NodePublishVolume would give its device to a pod. Otherwise two volumes whose
// devices have exchanged their paths would refuse each other for ever.
func (s *Server) outOfDate(ctx context.Context, record nodereport.Record) (why string, err error) {
	if record.Block {
		_, why, err = s.stagedBlockDevice(ctx, record)
	} else {
		_, why, err = s.lasting(ctx, record)
	}
	return why, err
}

func anothers(volume string, disk provisioner.Device, owner string) error {
	return provisioner.Errorf(provisioner.Unavailable, "device %s was found for volume %s, and volume %s is staged with it on this node: it is not used. "+
		"The LUN of one of them is out of date; it is corrected within minutes", disk.Path, volume, owner)
}

// names says whether a record is of the disk or of a partition of it.
func (s *Server) names(ctx context.Context, record nodereport.Record, disk provisioner.Device) bool {
	device, err := s.part(ctx, disk, record.Partition)
	return err == nil && device.Path == record.Device
}

const (
	// metadataPatience is how long a call waits for instance metadata to catch up with an attach, and metadataInterval how often it asks.
	metadataPatience = 15 * time.Second
	metadataInterval = time.Second
)

// checkInstance compares the disk that instance metadata names at the LUN. Metadata may lag behind, so a LUN that is missing there means nothing,
// and a contradiction is waited out. A volume whose filesystem is on record is known by that.
func (s *Server) checkInstance(ctx context.Context, use usage, volume *apiv1.AzVolume, lun int32) error {
	if !use.block && volume.Status.Filesystem != nil {
		return nil
	}
	for waited := time.Duration(0); ; waited += metadataInterval {
		other := s.otherDiskAt(ctx, use.disk, lun)
		if other == "" {
			return nil
		}
		if waited >= metadataPatience {
			return provisioner.Errorf(provisioner.Unavailable, "volume %s is recorded at LUN %d, and instance metadata says that disk %s is there: "+
				"the device is not used before they agree", volume.Name, lun, other)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for instance metadata to name volume %s at LUN %d: %w", volume.Name, lun, ctx.Err())
		case <-s.options.Clock.After(metadataInterval):
		}
	}
}

// otherDiskAt returns the ID of the disk at a LUN if instance metadata names another one than the given, and "" otherwise, also if it does not answer.
func (s *Server) otherDiskAt(ctx context.Context, disk volumehandle.Handle, lun int32) string {
	if s.options.DiskAt == nil {
		return ""
	}
	id, err := s.options.DiskAt(ctx, lun)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("instance metadata does not say which disk is at the LUN", "volumeName", disk.VolumeName(), "lun", lun, "reason", err.Error())
		return ""
	}
	if is, err := volumehandle.Parse(id); id == "" || err == nil && is.Same(disk) {
		return ""
	}
	return id
}

// confirmMount reads the grant after a mount that was just made, and takes the mount away if the device is not the volume's any more. A check before the mount
// can take hours.
func (s *Server) confirmMount(ctx context.Context, record nodereport.Record) error {
	disk, err := parseID(record.VolumeID)
	if err != nil {
		return err
	}
	volume, attachment, err := s.read(ctx, disk)
	if err != nil {
		return err
	}
	decision := s.mayStage(volume, attachment)
	if decision.Verdict == ownership.StageAllowed && decision.Epoch == record.Epoch && decision.LUN == record.LUN {
		return nil
	}
	if err := s.options.Host.Mounts().Unmount(ctx, record.StagingPath); err != nil {
		return fmt.Errorf("unmount volume %s, which may not be used any more: %w", record.VolumeName, err)
	}
	return provisioner.Errorf(provisioner.Unavailable, "volume %s was granted under epoch %d at LUN %d, which changed while it was staged: %s",
		record.VolumeName, record.Epoch, record.LUN, decision.Reason)
}
