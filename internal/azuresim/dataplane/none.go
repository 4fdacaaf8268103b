package dataplane

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// None is a data plane without data: it remembers what it was told and makes no device. It lets the
// front end run without root, and lets tests see what the front end asked for. The zero value is
// ready to use.
type None struct {
	mu          sync.Mutex
	disks       map[string]int64
	attachments map[slot]string
	off         map[string]bool
}

type slot struct {
	vm  string
	lun int
}

var _ DataPlane = (*None)(nil)

// CreateDisk remembers the UID.
func (n *None) CreateDisk(_ context.Context, diskUID string, sizeBytes int64, _ string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disks == nil {
		n.disks = map[string]int64{}
	}
	if _, ok := n.disks[diskUID]; !ok {
		n.disks[diskUID] = sizeBytes
	}
	return nil
}

// ResizeDisk remembers the size.
func (n *None) ResizeDisk(_ context.Context, diskUID string, sizeBytes int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, ok := n.disks[diskUID]; ok && sizeBytes > old {
		n.disks[diskUID] = sizeBytes
	}
	return nil
}

// DeleteDisk forgets the UID.
func (n *None) DeleteDisk(_ context.Context, diskUID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.disks, diskUID)
	return nil
}

// Attach remembers the attachment.
func (n *None) Attach(_ context.Context, vm string, lun int, diskUID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attachments == nil {
		n.attachments = map[slot]string{}
	}
	n.attachments[slot{vm, lun}] = diskUID
	return nil
}

// Detach forgets the attachment if the LUN holds that disk.
func (n *None) Detach(_ context.Context, vm string, lun int, diskUID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attachments[slot{vm, lun}] == diskUID {
		delete(n.attachments, slot{vm, lun})
	}
	return nil
}

// PowerOff remembers that the VM is off.
func (n *None) PowerOff(_ context.Context, vm string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off == nil {
		n.off = map[string]bool{}
	}
	n.off[vm] = true
	return nil
}

// PowerOn remembers that the VM is on.
func (n *None) PowerOn(_ context.Context, vm string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.off, vm)
	return nil
}

// RemoveVM forgets the VM and its attachments.
func (n *None) RemoveVM(_ context.Context, vm string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.off, vm)
	maps.DeleteFunc(n.attachments, func(s slot, _ string) bool { return s.vm == vm })
	return nil
}

// LoseReservations does nothing: there are none.
func (n *None) LoseReservations(context.Context, string, string) error { return nil }

// List returns the attachments, by VM and LUN. Device is empty.
func (n *None) List(context.Context) ([]Attachment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]Attachment, 0, len(n.attachments))
	for s, uid := range n.attachments {
		list = append(list, Attachment{
			VM:      s.vm,
			LUN:     s.lun,
			DiskUID: uid,
		})
	}
	slices.SortFunc(list, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.LUN, b.LUN))
	})
	return list, nil
}

// ListDisks returns the UIDs, sorted.
func (n *None) ListDisks(context.Context) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]string, 0, len(n.disks))
	for uid := range n.disks {
		list = append(list, uid)
	}
	slices.Sort(list)
	return list, nil
}

// SetShared does nothing: there are no devices.
func (n *None) SetShared(context.Context, string, bool) error { return nil }

// ListReservations returns none.
func (n *None) ListReservations(context.Context) (map[string]reservations.State, error) {
	return nil, nil
}
