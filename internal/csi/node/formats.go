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

// ClearInterval is how often to call ClearFormats, which reads a directory of the node's own disk.
const ClearInterval = time.Minute

// ClearFormats clears the rests of interrupted formats. Normally a call of the kubelet does so, but the kubelet
// unstages only a volume that it knows it may have staged. After a restart of the kubelet or the node, it does not know
// a volume whose NodeStageVolume never returned; if the pod was deleted, it does not call again. The report would name
// that volume for ever, and no other node could use it.
func (s *Server) ClearFormats(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "cannot list the interrupted formats")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Formatting == nil {
			continue
		}
		if err := s.clearFormat(ctx, name); err != nil {
			log.Info("the rest of an interrupted format is not cleared yet", "volumeName", name, "reason", err.Error())
		}
	}
}

// clearFormat undoes a NodeStageVolume that was interrupted while it made a filesystem, unless a call for the volume is
// running.
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
	return s.undoStage(ctx, disk, record.StagingPath, nil)
}

// undoFormat clears a device on which this node was making a filesystem when it was interrupted, so that another node
// finds it blank. It does so only while the node still has the ownership with the same epoch; otherwise other nodes may
// have used the device since.
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
	primary := volume.Status.Primary
	ours := primary != nil && primary.NodeName == s.options.NodeName && primary.State != apiv1.OwnershipReleased && primary.Epoch == record.Epoch
	attached := attachment != nil && attachment.Status.State == apiv1.AttachmentAttached && attachment.Status.LUN != nil
	log := logr.FromContextOrDiscard(ctx).WithValues("volumeName", name, "epoch", record.Epoch)
	if ours && volume.Status.Filesystem == nil && attachment != nil && attaching(attachment) {
		return provisioner.Errorf(provisioner.Unavailable, "cannot clear the rest of an interrupted format on volume %s yet: waiting for its disk to be attached; the attachment is %s", name, attachment.Status.State)
	}
	if !ours || !attached || volume.Status.Filesystem != nil {
		log.Info("not clearing an interrupted format: this node does not hold the ownership, the disk is not attached, or a filesystem is recorded")
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
		log.Error(err, "not clearing an interrupted format: the device holds other content")
		return nil
	}
	return err
}

// attaching says that the disk will be attached, for example again after it was detached outside the driver.
func attaching(a *apiv1.AzVolumeAttachment) bool {
	return a.DeletionTimestamp == nil && (a.Status.State == apiv1.AttachmentPending || a.Status.State == apiv1.AttachmentAttaching)
}
