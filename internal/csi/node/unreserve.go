package node

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
)

// EndReservations ends the reservations of the volumes that are staged, if the node plug-in was configured to make none: the volumes remain
// mounted, and another driver may take over their disks. It does nothing otherwise.
func (s *Server) EndReservations(ctx context.Context) {
	if s.options.Reservations {
		return
	}
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "cannot list the reserved volumes")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].ReservationKey == "" {
			continue
		}
		if err := s.giveUp(ctx, name); err != nil {
			log.Info("the reservation of a volume is not ended yet", "volumeName", name, "reason", err.Error())
		}
	}
}

// giveUp ends the reservation of a volume that is staged, unless a call for the volume is running. The report follows the disk: until it
// does, a fence asks for a reservation that is gone, and the forced detach gives the proof.
func (s *Server) giveUp(ctx context.Context, volume string) error {
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	record, recorded, err := s.options.Records.Get(volume) // a call may have ended since the records were listed
	if err != nil || !recorded || record.ReservationKey == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	if err := s.leaveRecorded(ctx, record); err != nil {
		return err
	}
	record.ReservationKey = ""
	if err := s.options.Records.Put(record); err != nil {
		return err
	}
	return s.options.Report.Unreserved(ctx, volume)
}
