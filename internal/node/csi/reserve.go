package csi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ownReservation is a reservation, or a registration, of this node.
type ownReservation struct {
	// key is 0 for none.
	key provisioner.ReservationKey
	// unfenced is as in nodereport.Record.
	unfenced bool
	// unreserved is as in StagedVolume.UnreservedReason.
	unreserved string
}

// reserve makes this node hold the persistent reservation of a volume's disk, before anything but
// reads is done to the device (law 3d). It returns none if the disk is not to be reserved or cannot
// be. The caller must call unreserve with the result if the staging fails, also if reserve fails.
func (s *Server) reserve(ctx context.Context, at staging, device string) (ownReservation, error) {
	use, volume, grant := at.use, at.volume, at.grant
	if volume.Spec.Access == apiv1.AccessMultiNode || use.Partition != 0 {
		return ownReservation{}, nil
	}
	key, err := s.key(use.Disk, grant.Epoch)
	if err != nil {
		return ownReservation{}, err
	}
	shared := volume.Shares() > 1
	wanted := shared && s.options.Reservations && volume.Spec.Disk.PersistentReservations != apiv1.ReservationsDisabled
	if at.earlier, _, err = s.options.Records.Of(use.Disk); err != nil {
		return ownReservation{}, err
	}
	state, why, err := s.readReservation(ctx, device, shared && everReserved(volume, at.earlier))
	switch {
	case err != nil:
		return ownReservation{}, fmt.Errorf("read the reservation of volume %s: %w", use.Volume, err)
	case !wanted && !state.Holder.IsDrivers():
		return ownReservation{}, nil
	case use.Block && ofApplication(state):
		logr.FromContextOrDiscard(ctx).Info("the disk is not reserved: the application of the raw block volume has reserved it",
			"volumeName", use.Volume, "device", device, "reservation", state.String())
		return ownReservation{}, nil
	case why != nil:
		logr.FromContextOrDiscard(ctx).Info("the disk is not reserved", "volumeName", use.Volume, "device", device, "reason",
			why.Error())
		if errors.Is(why, provisioner.Unsupported) {
			return ownReservation{}, nil
		}
		return ownReservation{unreserved: operation.ShortenTo(why.Error(), nodereport.LongestReason)}, nil
	}
	// The LUN may have another volume's disk. Its reservation must neither end nor be taken, so
	// this comes before every command.
	if err := s.filesystems.Identify(ctx, volume, device); err != nil {
		return ownReservation{}, err
	}
	owner := fencing.Owner{Key: key, Exclusive: grant.Exclusive}
	switch {
	case !shared:
		return ownReservation{}, s.clearReservation(ctx, use, device, state, owner)
	case !wanted:
		return ownReservation{}, s.endReservation(ctx, use.Disk, device, state, owner)
	default:
		return s.reserveShared(ctx, at, device, state, owner)
	}
}

// ofApplication reports whether another program than this driver has reserved a disk. The application
// of a raw block volume may do that, and takes its reservation along to the next node itself.
func ofApplication(state provisioner.ReservationState) bool {
	return state.Type != provisioner.NoReservation && !state.Holder.IsDrivers()
}

// everReserved reports whether the disk may be reserved, by this node or by another one of this
// cluster.
func everReserved(volume *apiv1.AzVolume, record nodereport.Record) bool {
	last := volume.Status.LastRelease
	return volume.Status.Fencing == apiv1.FencingPreemption || record.ReservationKey != "" || last != nil &&
		last.Proof.Type == apiv1.ProofPreempted
}

// readTries and readRetry are for a disk that does not answer the first question about its
// reservations.
const (
	readTries = 3
	readRetry = 200 * time.Millisecond
)

// readReservation reads the reservation of a disk for the first time in a call. why is set if the
// disk can be used without one: it has no reservations, or it does not answer and was never
// reserved. If another node has reserved it nevertheless, the disk refuses the writes of this one.
func (s *Server) readReservation(ctx context.Context, device string, everReserved bool) (state provisioner.ReservationState,
	why, err error) {
	for try := 1; ; try++ {
		state, err = s.reserver.Disk.Read(ctx, device)
		switch {
		case errors.Is(err, provisioner.Unsupported):
			return state, err, nil
		case err == nil, ctx.Err() != nil, errors.Is(err, provisioner.NotFound):
			return state, nil, err
		case try == readTries && everReserved:
			return state, nil, err
		case try == readTries:
			return state, err, nil
		}
		select {
		case <-s.options.Clock.After(readRetry):
		case <-ctx.Done():
			return state, nil, err
		}
	}
}

// reserveShared makes this node the holder of the reservation of a shared disk.
func (s *Server) reserveShared(ctx context.Context, at staging, device string, state provisioner.ReservationState,
	owner fencing.Owner) (ownReservation, error) {
	use, volume, grant := at.use, at.volume, at.grant
	own := ownReservation{key: owner.Key}
	found, why, err := s.reserver.Reserve(ctx, device, state, owner)
	if err != nil {
		return own, fmt.Errorf("reserve the disk of volume %s: %w", use.Volume, err)
	}
	if why != "" {
		logr.FromContextOrDiscard(ctx).Info("the disk is not reserved", "volumeName", use.Volume, "device", device, "reason", why)
		return ownReservation{}, nil
	}
	own.unfenced = fencing.Reserved{
		Found:            found,
		Key:              owner.Key.String(),
		RecordedKey:      at.earlier.ReservationKey,
		RecordedUnfenced: at.earlier.Unfenced,
		LastRelease:      volume.Status.LastRelease,
	}.Unfenced()
	if found == fencing.FoundOwn {
		return own, nil
	}
	// The node may have been paused since it was granted the volume, and the next owner may have
	// used and left the disk. A fence that is decided after this read has to pre-empt the
	// reservation. The attachment is enough: see Finder.granted.
	attachment, err := s.grants.Attachment(ctx, use.Volume, s.options.NodeName)
	if err != nil {
		return own, err
	}
	if s.grants.MayStage(volume, attachment) != grant {
		return own, provisioner.Errorf(provisioner.Unavailable,
			"cannot stage volume %s under epoch %d: its attachment changed while the disk was being reserved; retry", use.Volume,
			grant.Epoch)
	}
	return own, nil
}

// reserveRecorded returns a function that makes this node's present path hold the reservation of a
// record.
func (s *Server) reserveRecorded(record nodereport.Record) func(ctx context.Context, device string) error {
	return func(ctx context.Context, device string) error {
		if record.ReservationKey == "" {
			return nil
		}
		key, err := provisioner.ParseReservationKey(record.ReservationKey)
		if err != nil {
			return err
		}
		state, why, err := s.readReservation(ctx, device, true)
		if why == nil && err == nil {
			_, _, err = s.reserver.Reserve(ctx, device, state, fencing.Owner{Key: key})
		}
		return err
	}
}

// key is this node's key of a disk under an epoch.
func (s *Server) key(disk volumehandle.Handle, epoch int64) (provisioner.ReservationKey, error) {
	return provisioner.NewReservationKey(s.options.Cluster, epoch, s.options.NodeName, disk.String())
}

// endReservation ends a reservation that the driver made under this epoch or an earlier one, for a
// volume whose disk is not to be reserved any more: the disk would refuse this node's writes.
func (s *Server) endReservation(ctx context.Context, disk volumehandle.Handle, device string, state provisioner.ReservationState,
	owner fencing.Owner) error {
	if !state.Holder.IsDrivers() {
		return nil
	}
	if _, _, err := s.reserver.Reserve(ctx, device, state, owner); err != nil {
		return fmt.Errorf("end the reservation of volume %s: %w", disk.VolumeName(), err)
	}
	return s.leave(ctx, disk, device, ownReservation{key: owner.Key})
}

// clearReservation ends a reservation of the driver on a disk that only this node has. The disk
// could be shared before, or another node has taken it for the disk of a shared volume whose LUN it
// got. A key of another cluster stays, unless the owner is exclusive.
func (s *Server) clearReservation(ctx context.Context, use usage.Usage, device string, state provisioner.ReservationState,
	owner fencing.Owner) error {
	switch holder := state.Holder; {
	case !holder.IsDrivers():
		return nil
	case holder.Cluster() != owner.Key.Cluster() && !owner.Exclusive:
		return s.endReservation(ctx, use.Disk, device, state, owner) // it refuses that
	}
	if err := s.reserver.Clear(ctx, device, owner.Key); err != nil {
		return fmt.Errorf("end the reservation of volume %s: %w", use.Volume, err)
	}
	return nil
}

// unreserve ends the reservation after a failed staging that has left no record of it. With a
// record, forget ends it, after the flush.
func (s *Server) unreserve(ctx context.Context, disk volumehandle.Handle, device string, own ownReservation) {
	if own.key == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	record, _, err := s.options.Records.Of(disk)
	if record.ReservationKey == own.key.String() {
		return
	}
	if err = errors.Join(err, s.leave(ctx, disk, device, own)); err != nil {
		// The next node that stages the volume has a later epoch and pre-empts it; a disk for one
		// VM loses it at its next staging (clearReservation).
		logr.FromContextOrDiscard(ctx).Info("the reservation of a volume that could not be staged remains", "volumeName",
			disk.VolumeName(), "device", device, "key", own.key.String(), "reason", err.Error())
	}
}
