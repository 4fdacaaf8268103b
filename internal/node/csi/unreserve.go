package csi

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// EndReservations ends the reservations that this node has kept after it had unstaged the volumes,
// when no fenced node has the disks any more. If the node plug-in was configured to make no
// reservations, it also ends the reservations of staged volumes: the volumes remain mounted, and
// another driver may take over their disks.
func (s *Server) EndReservations(ctx context.Context) {
	s.endGuards(ctx)
	if s.options.Reservations {
		return
	}
	reserved := func(r nodereport.Record) bool { return r.ReservationKey != "" }
	s.eachRest(ctx, reserved, "the reservation of a volume is not ended yet", s.giveUp)
}

// giveUp ends the reservation of a volume that is staged. The report follows the disk: until it
// does, a fence asks for a reservation that is gone, and the forced detach gives the proof.
func (s *Server) giveUp(ctx context.Context, record nodereport.Record) error {
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	if err := s.leaveRecorded(ctx, record); err != nil {
		return err
	}
	// The record is last: a record without a key is not looked at again.
	if err := s.options.Report.Unreserved(ctx, record.VolumeName); err != nil {
		return err
	}
	record.ReservationKey = ""
	return s.options.Records.Put(record)
}

func (s *Server) endGuards(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	volumes, err := s.options.Records.Guards()
	if err != nil {
		log.Error(err, "cannot list the reservations that this node keeps")
		return
	}
	for _, volume := range volumes {
		if err := s.endGuard(ctx, volume); err != nil {
			log.Info("the reservation of a volume is kept", "volumeName", volume, "reason", err.Error())
		}
	}
}

// endGuard ends the reservation that this node keeps for a volume that it does not use, unless a
// fenced node still has the disk. A request to fence, and its result, come first (leaveFence).
func (s *Server) endGuard(ctx context.Context, volume string) error {
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	if s.fencing(volume) {
		return nil
	}
	kept, found, err := s.options.Records.Guard(volume) // a call may have ended since the records were listed
	if err != nil || !found {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if kept.Victim != "" {
		// Only leaveFence ends a fence: another request for the same one may arrive at any time.
		if _, own, err := s.replicaOf(ctx, volume); err != nil || own != nil {
			return err
		}
		return s.options.Records.DeleteGuard(volume)
	}
	record, _, err := s.options.Records.Get(volume)
	if err != nil {
		return err
	}
	// else the key of the volume's stage has replaced the kept one
	if record.ReservationKey == "" || record.BootID != s.options.BootID {
		attachments, err := s.attachments(ctx, volume)
		if err != nil {
			return err
		}
		if other := fencing.GuardsAgainst(attachments, s.options.NodeName); other != "" {
			return fmt.Errorf("the disk is still being detached from node %s, which was fenced", other)
		}
		err = s.leaveAttached(ctx, volume,
			func(_ volumehandle.Handle, _ *apiv1.AzVolumeAttachment) (provisioner.ReservationKey, error) {
				return provisioner.ParseReservationKey(kept.Key)
			})
		if err != nil {
			return err
		}
	}
	if err := s.options.Records.DeleteGuard(volume); err != nil || record.ReservationKey != "" {
		return err
	}
	return s.options.Report.Unreserved(ctx, volume)
}

// fencing reports whether this node is asked to fence another one from the volume, or has a result
// of that.
func (s *Server) fencing(volume string) bool {
	requests, results, _ := s.options.Report.Fences()
	return slices.ContainsFunc(requests, func(r apiv1.FenceRequest) bool { return r.VolumeName == volume }) ||
		slices.ContainsFunc(results, func(r apiv1.FenceResult) bool { return r.VolumeName == volume })
}
