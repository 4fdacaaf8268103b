package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/node/usage"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// reserve makes this node hold the persistent reservation of a volume's disk, before anything else is done to the device (law 3d). It
// returns the key, or 0 if the disk is not to be reserved or cannot be. The caller must call unreserve with the key if the staging fails, also
// if reserve fails.
func (s *Server) reserve(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, grant ownership.StageDecision, device string) (provisioner.ReservationKey, error) {
	if volume.Spec.Access == apiv1.AccessMultiNode || use.Block || use.Partition != 0 || volume.Spec.Disk.MaxShares <= 1 {
		return 0, nil
	}
	own, err := s.key(use.Disk, grant.Epoch)
	if err != nil {
		return 0, err
	}
	if !s.options.Reservations || volume.Spec.Disk.PersistentReservations == apiv1.ReservationsOff {
		return 0, s.endReservation(ctx, use.Disk, device, own)
	}
	changed, err := s.reserver.Hold(ctx, device, own)
	switch {
	case errors.Is(err, provisioner.Unsupported):
		logr.FromContextOrDiscard(ctx).Info("the disk is not reserved: the device has no persistent reservations", "volumeName", use.Volume, "device", device, "reason", err.Error())
		return 0, nil
	case err != nil:
		return own, fmt.Errorf("reserve the disk of volume %s: %w", use.Volume, err)
	case !changed:
		return own, nil
	}
	// The node may have been paused since it was granted the volume, and the next owner may have used and left the disk. A fence that is
	// decided after this read has to pre-empt the reservation. The attachment is enough: see Finder.granted.
	attachment, err := s.grants.Attachment(ctx, use.Volume, s.options.NodeName)
	if err != nil {
		return own, err
	}
	if s.grants.MayStage(volume, attachment) != grant {
		return own, provisioner.Errorf(provisioner.Unavailable, "cannot stage volume %s under epoch %d: its attachment changed while the disk was being reserved; retry", use.Volume, grant.Epoch)
	}
	return own, nil
}

// key is this node's key of a disk under an epoch.
func (s *Server) key(disk volumehandle.Handle, epoch int64) (provisioner.ReservationKey, error) {
	return provisioner.NewReservationKey(epoch, s.options.NodeName, disk.String())
}

// endReservation ends a reservation that the driver made under this epoch or an earlier one, for a volume whose disk is not to be reserved any more:
// the disk would refuse this node's writes.
func (s *Server) endReservation(ctx context.Context, disk volumehandle.Handle, device string, own provisioner.ReservationKey) error {
	state, err := s.reserver.Disk.Read(ctx, device)
	switch {
	case errors.Is(err, provisioner.Unsupported):
		return nil
	case err != nil:
		return fmt.Errorf("read the reservation of volume %s: %w", disk.VolumeName(), err)
	case !state.Holder.IsDrivers():
		return nil
	}
	if _, err := s.reserver.Hold(ctx, device, own); err != nil {
		return fmt.Errorf("end the reservation of volume %s: %w", disk.VolumeName(), err)
	}
	return s.leave(ctx, disk, device, own)
}

// unreserve ends the reservation after a failed staging that has left no record of it. With a record, forget ends it, after the flush.
func (s *Server) unreserve(ctx context.Context, disk volumehandle.Handle, device string, own provisioner.ReservationKey) {
	if own == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	record, recorded, err := s.options.Records.Of(disk)
	if err == nil && recorded && record.ReservationKey == own.String() {
		return
	}
	if err = errors.Join(err, s.leave(ctx, disk, device, own)); err != nil {
		// The next node that stages the volume has a later epoch and pre-empts it.
		logr.FromContextOrDiscard(ctx).Info("the reservation of a volume that could not be staged remains", "volumeName", disk.VolumeName(), "device", device, "key", own.String(), "reason", err.Error())
	}
}

// leave ends this node's registration and the reservation. While the reservation is what keeps another node from writing, it must not
// end. If this node was asked to fence the volume, it keeps it with its fence-only key then, until that request is withdrawn (leaveFence). Otherwise
// leave fails with Unavailable.
func (s *Server) leave(ctx context.Context, disk volumehandle.Handle, device string, own provisioner.ReservationKey) error {
	volume := disk.VolumeName()
	attachments, err := s.attachments(ctx, volume)
	if err != nil {
		return err
	}
	other := plan.StillFenced(attachments, s.options.NodeName)
	if other == "" {
		return s.reserver.Leave(ctx, device, own)
	}
	requests, _, _ := s.options.Report.Fences()
	i := slices.IndexFunc(requests, func(r apiv1.FenceRequest) bool { return r.VolumeName == volume })
	if i < 0 {
		return provisioner.Errorf(provisioner.Unavailable, "cannot end the reservation of volume %s: the disk is still being detached from node %s, which was fenced; retry", volume, other)
	}
	fenceOnly, err := s.key(disk, requests[i].Epoch)
	if err != nil {
		return err
	}
	return s.reserver.Exchange(ctx, device, own, fenceOnly.FenceOnly())
}

// attachments lists the attachments of a volume at the API server.
func (s *Server) attachments(ctx context.Context, volume string) ([]*apiv1.AzVolumeAttachment, error) {
	var list apiv1.AzVolumeAttachmentList
	if err := s.options.Client.List(ctx, &list, client.InNamespace(s.options.Namespace), client.MatchingFields{"spec.volumeName": volume}); err != nil {
		return nil, fmt.Errorf("list the attachments of volume %s: %w", volume, err)
	}
	return kubeapi.Pointers(list.Items), nil
}

// leaveRecorded ends the reservation of a volume that was unmounted and flushed. A device that is gone or fails takes no command, and the
// reservation remains: the next node that stages the volume pre-empts it. So does the reservation of a record from before a reboot, whose path may
// name another device now.
func (s *Server) leaveRecorded(ctx context.Context, record nodereport.Record) error {
	if record.ReservationKey == "" || record.BootID != s.options.BootID {
		return nil
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	own, err := s.key(disk, record.Epoch)
	if err != nil {
		return err
	}
	err = s.leave(ctx, disk, record.Device, own)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, provisioner.Unsupported), errors.Is(err, provisioner.NotFound), ctx.Err() == nil && s.devices.Answers(ctx, record.Device) != nil:
		logr.FromContextOrDiscard(ctx).Info("the reservation remains on the disk", "volumeName", record.VolumeName, "device", record.Device, "key", own.String(), "reason", err.Error())
		return nil
	default:
		return fmt.Errorf("unstage volume %s: %w", record.VolumeName, err)
	}
}
