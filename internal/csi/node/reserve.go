package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/node/usage"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// held is a reservation, or a registration, of this node.
type held struct {
	// key is 0 for none.
	key provisioner.ReservationKey
	// unfenced is as in nodereport.Record.
	unfenced bool
}

// reserve makes this node hold the persistent reservation of a volume's disk, before anything but reads is done to the device (law 3d). It
// returns none if the disk is not to be reserved or cannot be. The caller must call unreserve with the result if the staging fails, also
// if reserve fails.
func (s *Server) reserve(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, grant ownership.StageDecision, device string) (held, error) {
	if volume.Spec.Access == apiv1.AccessMultiNode || use.Block || use.Partition != 0 {
		return held{}, nil
	}
	key, err := s.key(use.Disk, grant.Epoch)
	if err != nil {
		return held{}, err
	}
	own := held{key: key}
	if volume.Spec.Disk.MaxShares <= 1 {
		// Another node may have taken the disk for that of a shared volume whose LUN it got.
		if err := s.reserver.Remove(ctx, device, key); err != nil && !errors.Is(err, provisioner.Unsupported) {
			logr.FromContextOrDiscard(ctx).Info("a reservation of the disk may remain", "volumeName", use.Volume, "device", device, "reason", err.Error())
		}
		return held{}, nil
	}
	if !s.options.Reservations || volume.Spec.Disk.PersistentReservations == apiv1.ReservationsOff {
		return held{}, s.endReservation(ctx, use.Disk, device, own)
	}
	record, _, err := s.options.Records.Of(use.Disk)
	if err != nil {
		return held{}, err
	}
	// The LUN may have another volume's disk, whose owner must not be pre-empted.
	if err := s.filesystems.Identify(ctx, volume, device); err != nil {
		return held{}, err
	}
	found, err := s.reserver.Hold(ctx, device, key)
	switch {
	case errors.Is(err, provisioner.Unsupported):
		logr.FromContextOrDiscard(ctx).Info("the disk is not reserved: the device has no persistent reservations", "volumeName", use.Volume, "device", device, "reason", err.Error())
		return held{}, nil
	case err != nil:
		return own, fmt.Errorf("reserve the disk of volume %s: %w", use.Volume, err)
	}
	own.unfenced = plan.Reserved{
		Found: found, Key: key.String(), RecordedKey: record.ReservationKey, RecordedUnfenced: record.Unfenced, LastRelease: volume.Status.LastRelease,
	}.Unfenced()
	if found == plan.FoundOwn {
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
	return provisioner.NewReservationKey(s.options.Cluster, epoch, s.options.NodeName, disk.String())
}

// endReservation ends a reservation that the driver made under this epoch or an earlier one, for a volume whose disk is not to be reserved any more:
// the disk would refuse this node's writes.
func (s *Server) endReservation(ctx context.Context, disk volumehandle.Handle, device string, own held) error {
	state, err := s.reserver.Disk.Read(ctx, device)
	switch {
	case errors.Is(err, provisioner.Unsupported):
		return nil
	case err != nil:
		return fmt.Errorf("read the reservation of volume %s: %w", disk.VolumeName(), err)
	case !state.Holder.IsDrivers():
		return nil
	}
	if _, err := s.reserver.Hold(ctx, device, own.key); err != nil {
		return fmt.Errorf("end the reservation of volume %s: %w", disk.VolumeName(), err)
	}
	return s.leave(ctx, disk, device, own)
}

// unreserve ends the reservation after a failed staging that has left no record of it. With a record, forget ends it, after the flush.
func (s *Server) unreserve(ctx context.Context, disk volumehandle.Handle, device string, own held) {
	if own.key == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	record, recorded, err := s.options.Records.Of(disk)
	if err == nil && recorded && record.ReservationKey == own.key.String() {
		return
	}
	if err = errors.Join(err, s.leave(ctx, disk, device, own)); err != nil {
		// The next node that stages the volume has a later epoch and pre-empts it; a disk for one VM loses it at its next staging (reservation.Reserver.Remove).
		logr.FromContextOrDiscard(ctx).Info("the reservation of a volume that could not be staged remains", "volumeName", disk.VolumeName(), "device", device, "key", own.key.String(), "reason", err.Error())
	}
}
