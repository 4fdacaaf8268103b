package hypervisor

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// The protocol: each method is `POST /v1/<method>` with a request object, over a unix socket. The
// answer is 200 with a response object, or another status with a failure object. Requests may be
// repeated, whatever the outcome of the first.

// request has the arguments of every method; each uses what it needs.
type request struct {
	VM        string `json:"vm,omitempty"`
	LUN       int    `json:"lun,omitempty"`
	DiskUID   string `json:"diskUid,omitempty"`
	SizeBytes int64  `json:"sizeBytes,omitempty"`
	Source    string `json:"source,omitempty"`
	Faults    Faults `json:"faults,omitzero"`
	Shared    bool   `json:"shared,omitempty"`
	Device    string `json:"device,omitempty"`
	CDB       []byte `json:"cdb,omitempty"`
	Out       []byte `json:"out,omitempty"`
}

type response struct {
	Attachments []dataplane.Attachment `json:"attachments,omitempty"`
	Disks       []string               `json:"disks,omitempty"`
	Answer      reservations.Answer    `json:"answer,omitzero"`

	Reservations map[string]reservations.State `json:"reservations,omitempty"`
}

type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// methods are the names on the wire.
func (h *Hypervisor) methods() map[string]func(context.Context, request) (response, error) {
	plain := func(method func(context.Context, request) error) func(context.Context, request) (response, error) {
		return func(ctx context.Context, r request) (response, error) { return response{}, method(ctx, r) }
	}
	return map[string]func(context.Context, request) (response, error){
		"createDisk": plain(func(ctx context.Context,
			r request) error {
			return h.CreateDisk(ctx, r.DiskUID, r.SizeBytes, r.Source)
		}),
		"resizeDisk": plain(func(ctx context.Context, r request) error { return h.ResizeDisk(ctx, r.DiskUID, r.SizeBytes) }),
		"deleteDisk": plain(func(ctx context.Context, r request) error { return h.DeleteDisk(ctx, r.DiskUID) }),
		"setShared":  plain(func(ctx context.Context, r request) error { return h.SetShared(ctx, r.DiskUID, r.Shared) }),
		"attach":     plain(func(ctx context.Context, r request) error { return h.Attach(ctx, r.VM, r.LUN, r.DiskUID) }),
		"detach":     plain(func(ctx context.Context, r request) error { return h.Detach(ctx, r.VM, r.LUN, r.DiskUID) }),
		"powerOff":   plain(func(ctx context.Context, r request) error { return h.PowerOff(ctx, r.VM) }),
		"powerOn":    plain(func(ctx context.Context, r request) error { return h.PowerOn(ctx, r.VM) }),
		"ensureVM":   plain(func(ctx context.Context, r request) error { return h.EnsureVM(ctx, r.VM) }),
		"removeVM":   plain(func(ctx context.Context, r request) error { return h.RemoveVM(ctx, r.VM) }),
		"setFaults":  plain(func(ctx context.Context, r request) error { return h.SetFaults(ctx, r.VM, r.Faults) }),
		"list": func(ctx context.Context, _ request) (response, error) {
			attachments, err := h.List(ctx)
			return response{Attachments: attachments}, err
		},
		"listDisks": func(ctx context.Context, _ request) (response, error) {
			disks, err := h.ListDisks(ctx)
			return response{Disks: disks}, err
		},
		"execute": func(ctx context.Context, r request) (response, error) {
			answer, err := h.Execute(ctx, r.Device, r.CDB, r.Out)
			return response{Answer: answer}, err
		},
		"loseReservations": plain(func(ctx context.Context, r request) error { return h.LoseReservations(ctx, r.VM, r.DiskUID) }),
		"listReservations": func(ctx context.Context, _ request) (response, error) {
			states, err := h.ListReservations(ctx)
			return response{Reservations: states}, err
		},
	}
}
