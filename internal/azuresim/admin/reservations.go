package admin

import (
	"fmt"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// diskReservations is how the reservations of a disk are listed. Keys are hexadecimal, as tools
// print them.
type diskReservations struct {
	Disk          string         `json:"disk"`
	ID            string         `json:"id"`
	Generation    uint32         `json:"generation"`
	Type          string         `json:"type,omitempty"`
	Holder        string         `json:"holder,omitempty"`
	Registrations []registration `json:"registrations"`
}

type registration struct {
	VM  string `json:"vm"`
	Key string `json:"key"`
}

func (a *api) reservations(w http.ResponseWriter, r *http.Request) {
	all, err := a.Cloud.Reservations(r.Context())
	if err != nil {
		refuse(w, armerror.From(err))
		return
	}
	list := make([]diskReservations, 0, len(all))
	for _, d := range all {
		entry := diskReservations{
			Disk:       d.Disk.Name,
			ID:         d.Disk.String(),
			Generation: d.State.Generation,
			Holder:     d.State.Holder,
		}
		if d.State.Type != 0 {
			entry.Type = d.State.Type.String()
		}
		for _, each := range d.State.Registrations {
			entry.Registrations = append(entry.Registrations, registration{each.Initiator, fmt.Sprintf("0x%016x", each.Key)})
		}
		list = append(list, entry)
	}
	write(w, list)
}
