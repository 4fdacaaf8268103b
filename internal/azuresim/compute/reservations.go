package compute

import (
	"cmp"
	"context"
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// DiskReservations are the persistent reservations of a disk, for the operator of the simulator:
// Azure's API does not show them.
type DiskReservations struct {
	Disk  ID
	State reservations.State
}

// Reservations lists the disks that have any, by name.
func (c *Cloud) Reservations(ctx context.Context) ([]DiskReservations, error) {
	states, err := c.Plane.ListReservations(ctx)
	if err != nil {
		return nil, err
	}
	disks, err := view(c, func(tx *store.Tx) ([]*Disk, error) { return values(diskTable.All(tx, "")) })
	if err != nil {
		return nil, err
	}
	list := []DiskReservations{}
	for _, d := range disks {
		if state, ok := states[d.UID]; ok {
			list = append(list, DiskReservations{Disk: d.ID, State: state})
		}
	}
	slices.SortFunc(list, func(a, b DiskReservations) int { return cmp.Compare(a.Disk.Key(), b.Disk.Key()) })
	return list, nil
}
