package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ClearInterval is how often ClearFormats is to be called. It reads a directory of the node's own disk.
const ClearInterval = time.Minute

// ClearFormats clears the remains of formats that were cut short. As a rule a call of the kubelet does so. But the kubelet unstages only a volume that
// it knows it may have staged. After it was restarted, alone or with the node, it does not know of a volume whose NodeStageVolume never returned, and
// if the pod has gone it calls no more. The report would name that volume for ever, and no other node would get it.
func (s *Server) ClearFormats(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "formats that were cut short cannot be looked for")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Formatting == nil {
			continue
		}
		if err := s.clearFormat(ctx, name); err != nil {
			log.Info("the remains of a format are not cleared yet", "volumeName", name, "reason", err.Error())
		}
	}
}

// clearFormat takes back a NodeStageVolume that was cut short while it made a filesystem, unless a call for the volume is at work.
func (s *Server) clearFormat(ctx context.Context, volume string) error {
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	record, recorded, err := s.options.Records.Get(volume) // a call may have ended since the records were listed
	if err != nil || !recorded || record.Formatting == nil {
		return err
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return s.takeBack(ctx, disk, record.StagingPath, nil)
}

// undoFormat clears a device on which this node was making a filesystem when it was cut short, so that another
// node finds it blank. It does so only while the node still has the claim under which
// it began; otherwise others may have used the device since.
func (s *Server) undoFormat(ctx context.Context, name string, record nodereport.Record) error {
	if record.Formatting == nil {
		return nil
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", name, err)
	}
	volume, attachment, err := s.read(ctx, disk)
	if errors.Is(err, provisioner.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	claim := volume.Status.Primary
	ours := claim != nil && claim.NodeName == s.options.NodeName && claim.State != apiv1.OwnershipReleased && claim.Epoch == record.Epoch
	attached := attachment != nil && attachment.Status.State == apiv1.AttachmentAttached && attachment.Status.LUN != nil
	log := logr.FromContextOrDiscard(ctx).WithValues("volumeName", name, "epoch", record.Epoch)
	if ours && volume.Status.Filesystem == nil && attachment != nil && comes(attachment) {
		return provisioner.Errorf(provisioner.Unavailable, "clear the remains of a format: the disk of volume %s is %s; waiting for it", name, attachment.Status.State)
	}
	if !ours || !attached || volume.Status.Filesystem != nil {
		log.Info("the remains of a format are left alone: the volume has moved on")
		return nil
	}
	device, err := s.findDevice(ctx, volume, *attachment.Status.LUN)
	if err == nil {
		device, err = s.part(ctx, device, record.Partition)
	}
	if err == nil {
		err = s.options.Host.Filesystems().Unmake(ctx, device.Path, *record.Formatting)
	}
	if errors.Is(err, provisioner.FailedPrecondition) {
		log.Error(err, "the remains of a format are left alone: the device carries something else")
		return nil
	}
	return err
}

// comes says that the disk is about to be attached, as it is again after it was detached outside the driver.
func comes(a *apiv1.AzVolumeAttachment) bool {
	return a.DeletionTimestamp == nil && (a.Status.State == apiv1.AttachmentPending || a.Status.State == apiv1.AttachmentAttaching)
}
