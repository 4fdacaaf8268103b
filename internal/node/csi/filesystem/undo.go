package filesystem

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// UndoFormat clears a device on which this node was making a filesystem when it was interrupted, so
// that another node finds it blank. It does so only while the node still has the ownership with the
// same epoch; otherwise other nodes may have used the device since.
//
// Before it writes, it calls reserve with the whole disk: a former path of this node may hold the
// reservation under which the filesystem was being made, and the disk would refuse the writes.
func (s *Stager) UndoFormat(ctx context.Context, name string, record nodereport.Record,
	reserve func(ctx context.Context, device string) error) error {
	if record.Formatting == nil {
		return nil
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", name, err)
	}
	volume, attachment, err := s.Read(ctx, disk)
	if errors.Is(err, provisioner.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	primary := volume.Status.Primary
	ours := primary != nil && primary.NodeName == s.NodeName && primary.State != apiv1.OwnershipReleased &&
		primary.Epoch == record.Epoch
	attached := attachment != nil && attachment.Status.State == apiv1.AttachmentAttached && attachment.Status.LUN != nil
	log := logr.FromContextOrDiscard(ctx).WithValues("volumeName", name, "epoch", record.Epoch)
	if ours && volume.Status.Filesystem == nil && attachment != nil && attaching(attachment) {
		return provisioner.Errorf(provisioner.Unavailable,
			"cannot clear the rest of an interrupted format on volume %s yet: waiting for its disk to be attached; the attachment is %s",
			name, attachment.Status.State)
	}
	if !ours || !attached || volume.Status.Filesystem != nil {
		log.Info("not clearing an interrupted format: this node does not hold the ownership, the disk is not attached, or a filesystem is recorded")
		return nil
	}
	device, found, err := s.FindSoon(ctx, volume, *attachment.Status.LUN)
	if err == nil && !found {
		if attachment.DeletionTimestamp != nil {
			// The disk was detached outside the driver as well. The attachment is not repaired any
			// more, and its deletion waits for this node.
			log.Info("not clearing an interrupted format: the attachment is being deleted, and its disk is not on this node")
			return nil
		}
		return provisioner.Errorf(provisioner.Unavailable,
			"cannot clear the rest of an interrupted format on volume %s yet: waiting for a device at LUN %d", name,
			*attachment.Status.LUN)
	}
	var part provisioner.Device
	if err == nil {
		part, err = s.Part(ctx, device, record.Partition)
	}
	if err == nil {
		err = s.checkFormatting(ctx, part.Path, record)
	}
	if err == nil {
		err = reserve(ctx, device.Path)
	}
	if err == nil {
		err = s.unmake(ctx, part, record)
	}
	if errors.Is(err, provisioner.FailedPrecondition) {
		log.Error(err, "not clearing an interrupted format: the device holds other content")
		return nil
	}
	return err
}

// unmake clears a device, and write-protects it after that: the record may be from before a reboot, or
// name another device.
func (s *Stager) unmake(ctx context.Context, device provisioner.Device, record nodereport.Record) error {
	devices := s.Host.Devices()
	if err := devices.SetReadOnly(ctx, device, false); err != nil {
		return fmt.Errorf("set write protection of volume %s: %w", record.VolumeName, err)
	}
	if err := s.Host.Filesystems().Unmake(ctx, device.Path, *record.Formatting); err != nil {
		return err
	}
	return devices.SetReadOnly(ctx, device, true)
}

// checkFormatting refuses a device with a filesystem that was not being made: the LUN may have
// another volume's disk, which must neither be reserved nor lose its write protection.
func (s *Stager) checkFormatting(ctx context.Context, device string, record nodereport.Record) error {
	found, _, err := s.Host.Filesystems().Probe(ctx, device)
	if found != (provisioner.Filesystem{}) && found != *record.Formatting {
		return provisioner.Errorf(provisioner.FailedPrecondition, "%s carries the filesystem %q", device, found.UUID)
	}
	return err
}

// attaching reports whether the disk will be attached, for example again after it was detached
// outside the driver. It will not be if the node was fenced.
func attaching(a *apiv1.AzVolumeAttachment) bool {
	return a.DeletionTimestamp == nil && !ownership.HasProof(a) &&
		(a.Status.State == apiv1.AttachmentPending || a.Status.State == apiv1.AttachmentAttaching)
}
