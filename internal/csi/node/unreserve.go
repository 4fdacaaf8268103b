package node

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
)

// EndReservations ends the reservations of the volumes that are staged, if the node plug-in was configured to make none: the volumes remain
// mounted, and another driver may take over their disks. It does nothing otherwise.
func (s *Server) EndReservations(ctx context.Context) {
	if s.options.Reservations {
		return
	}
	reserved := func(r nodereport.Record) bool { return r.ReservationKey != "" }
	s.eachRest(ctx, reserved, "the reservation of a volume is not ended yet", s.giveUp)
}

// giveUp ends the reservation of a volume that is staged. The report follows the disk: until it does, a fence asks for a reservation that is gone, and
// the forced detach gives the proof.
func (s *Server) giveUp(ctx context.Context, record nodereport.Record) error {
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
	return s.options.Report.Unreserved(ctx, record.VolumeName)
}
