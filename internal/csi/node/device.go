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

// ownDevice finds the device of a volume and checks that it is the volume's. Until the caller calls release, no other
// call uses the device.
func (s *Server) ownDevice(ctx context.Context, use usage, volume *apiv1.AzVolume, grant ownership.StageDecision) (provisioner.Device, ownership.StageDecision, func(), error) {
	device, grant, err := s.grantedDevice(ctx, volume, grant)
	if err != nil {
		return provisioner.Device{}, grant, nil, err
	}
	release, err := s.identify(ctx, use, volume, grant.LUN, device)
	return device, grant, release, err
}

// reportLost ends a call that found no device for a volume, and returns its failure. If the volume was staged before
// and has lost its device, the report must not say Staged any more: the controller attaches the volume's disk again
// only while the report says Staging.
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

// lost says whether a volume has lost the device with which it was staged. It is false if ctx ends before that is
// certain.
func (s *Server) lost(ctx context.Context, record nodereport.Record) bool {
	if s.answers(ctx, record.Device) != nil {
		return ctx.Err() == nil
	}
	if !record.Block {
		// A mount holds the device, so that its path cannot name another one. Without the mount it can.
		mount, mounted, err := s.mountAt(ctx, record.StagingPath)
		return err == nil && (!mounted || mount.Source != record.Device)
	}
	_, why, err := s.stagedBlockDevice(ctx, record)
	return err == nil && why != ""
}

// grantedDevice finds the device at the granted LUN, and then reads the grant again: as long as the report does not say
// that the volume is staged, the controller attaches a disk again that is not where it is recorded, possibly at another
// LUN. While the device does not appear, grantedDevice reads the grant again every rereadInterval.
func (s *Server) grantedDevice(ctx context.Context, volume *apiv1.AzVolume, grant ownership.StageDecision) (provisioner.Device, ownership.StageDecision, error) {
	for round := 0; ; round++ {
		if round == 1 {
			// If the volume was staged before, it has lost its device.
			if err := s.options.Report.Restage(ctx, volume.Name); err != nil {
				return provisioner.Device{}, grant, err
			}
		}
		device, found, err := s.findFor(ctx, volume, grant.LUN)
		if err != nil {
			return provisioner.Device{}, grant, err
		}
		if found {
			// The attachment has the LUN. The ownership need not be read for this: before another node acquires it, the
			// proof is recorded on the attachment.
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
			return provisioner.Device{}, grant, provisioner.Errorf(provisioner.Unavailable, "cannot stage volume %s under epoch %d: the node now holds the ownership with epoch %d; retry",
				volume.Name, grant.Epoch, current.Epoch)
		case found && current.LUN == grant.LUN:
			return device, current, nil
		case current.LUN != grant.LUN:
			logr.FromContextOrDiscard(ctx).Info("the disk has another LUN now", "volumeName", volume.Name, "was", grant.LUN, "lun", current.LUN)
		}
		grant = current
	}
}

// findFor looks for the device during one rereadInterval. found is false if it did not appear.
func (s *Server) findFor(ctx context.Context, volume *apiv1.AzVolume, lun int32) (device provisioner.Device, found bool, err error) {
	round, cancel := context.WithTimeout(ctx, rereadInterval)
	defer cancel()
	device, err = s.findDevice(round, volume, lun)
	if err != nil && ctx.Err() == nil && round.Err() != nil {
		return provisioner.Device{}, false, nil
	}
	return device, err == nil, err
}

// identify checks, as far as the node can know, that the device is the volume's disk. Azure identifies a device only by
// its LUN: see docs/reference/device-identity.md. Until the caller calls release, no other call uses the device.
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

// reserve reserves a device for one call.
func (s *Server) reserve(device string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved[device] {
		return nil, provisioner.Errorf(provisioner.Conflict, "cannot use device %s: another volume is being staged with it", device)
	}
	s.reserved[device] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.reserved, device)
	}, nil
}

// checkNotAnothers refuses a device with which another volume is staged on this node, according to that volume's record
// or to a mount at its staging path. The failure is not final, because one of the two LUNs is out of date and the
// controller corrects it.
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
			return usedByAnother(volume, disk, owner)
		}
	}
	own := records[volume]
	for name, record := range records {
		if name == volume || record.BootID != s.options.BootID || !s.names(ctx, record, disk) {
			continue
		}
		// If the volume itself was staged with the device, the mounts are those of its own pods.
		ours := own.Device == record.Device && own.BootID == record.BootID
		if !ours && slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool { return m.Source == record.Device }) {
			return usedByAnother(volume, disk, name)
		}
		why, err := s.outOfDate(ctx, record)
		switch {
		case errors.Is(err, errOtherDisk), errors.Is(err, provisioner.NotFound), err == nil && why == "":
			return usedByAnother(volume, disk, name)
		case err != nil:
			return err
		}
		logr.FromContextOrDiscard(ctx).Info("the device belonged to another volume before", "device", disk.Path, "volumeName", name, "reason", why)
	}
	return nil
}

// outOfDate says why the device of a record, which is not mounted, is not that volume's any more, or "" if it may be.
// After its pods have ended nothing holds a raw block device: a disk that is attached later can get its path while the
// record still names it, under an epoch that lasts. Such a record counts only while NodePublishVolume would give its
// device to a pod. Otherwise two volumes whose devices have exchanged their paths would refuse each other for ever.
func (s *Server) outOfDate(ctx context.Context, record nodereport.Record) (why string, err error) {
	if record.Block {
		_, why, err = s.stagedBlockDevice(ctx, record)
	} else {
		_, why, err = s.lasting(ctx, record)
	}
	return why, err
}

func usedByAnother(volume string, disk provisioner.Device, owner string) error {
	return provisioner.Errorf(provisioner.Unavailable, "refusing to use device %s for volume %s: volume %s is staged with it on this node. "+
		"The recorded LUN of one of them is out of date; the controller corrects it within minutes", disk.Path, volume, owner)
}

// names says whether a record names the disk or a partition of it.
func (s *Server) names(ctx context.Context, record nodereport.Record, disk provisioner.Device) bool {
	device, err := s.part(ctx, disk, record.Partition)
	return err == nil && device.Path == record.Device
}

const (
	// metadataPatience is how long a call waits until instance metadata shows an attach, and metadataInterval how often it
	// reads instance metadata.
	metadataPatience = 15 * time.Second
	metadataInterval = time.Second
)

// checkInstance compares the volume's disk with the one that instance metadata names at the LUN. Metadata may be out of
// date: checkInstance ignores a missing LUN, and waits if another disk is named. A volume with a recorded filesystem is
// identified by that.
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
			return provisioner.Errorf(provisioner.Unavailable, "refusing to use the device at LUN %d for volume %s: instance metadata says that disk %s is there; "+
				"retrying until it names the volume's disk", lun, volume.Name, other)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for instance metadata to name volume %s at LUN %d: %w", volume.Name, lun, ctx.Err())
		case <-s.options.Clock.After(metadataInterval):
		}
	}
}

// otherDiskAt returns the ID of the disk that instance metadata names at a LUN if it is another one than the given
// disk, and "" otherwise, also if instance metadata does not answer.
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

// confirmMount reads the grant after a mount, and unmounts the device if it is not the volume's any more. A filesystem
// check before the mount can take hours.
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
	if decision.Outcome == ownership.StageAllowed && decision.Epoch == record.Epoch && decision.LUN == record.LUN {
		return nil
	}
	if err := s.options.Host.Mounts().Unmount(ctx, record.StagingPath); err != nil {
		return fmt.Errorf("unmount volume %s, which the node may not use any more: %w", record.VolumeName, err)
	}
	return provisioner.Errorf(provisioner.Unavailable, "cannot stage volume %s under epoch %d at LUN %d: the grant changed while the volume was being mounted: %s",
		record.VolumeName, record.Epoch, record.LUN, decision.Reason)
}
