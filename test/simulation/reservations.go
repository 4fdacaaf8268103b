package simulation

import (
	"context"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// PlainPreempt: a node sends PREEMPT without ABORT, so that writes in flight still reach the disk.
	PlainPreempt Mutant = "plain PREEMPT"
)

// lateWrites is for how long writes in flight may reach a disk after a command that ends the right to write, and does not abort them.
const lateWrites = time.Second

// Reservations implements provisioner.Host.
func (k kernel) Reservations() provisioner.Reservations {
	return commands{sharedisk.Node{Name: k.m.name, Disk: func(ctx context.Context, path string) (*sharedisk.Disk, error) {
		if err := k.enter(ctx, "reservation of "+path, nil); err != nil {
			return nil, provisioner.Errorf(provisioner.Unavailable, "%s: %w", path, err)
		}
		d, err := k.device(path)
		if err != nil {
			return nil, err
		}
		if !k.m.w.reservations {
			return nil, provisioner.Errorf(provisioner.Unsupported, "%s has no reservations", path)
		}
		return k.m.w.sharedDisk(d.disk), nil
	}}, k}
}

// commands are the reservations of one machine. Those that take away another machine's right to write, and do not abort, let its writes in
// flight continue.
type commands struct {
	provisioner.Reservations
	k kernel
}

// Reserve implements provisioner.Reservations.
func (c commands) Reserve(ctx context.Context, path string, key provisioner.ReservationKey) error {
	return c.letContinue(path, func() error { return c.Reservations.Reserve(ctx, path, key) })
}

// PreemptAndAbort implements provisioner.Reservations.
func (c commands) PreemptAndAbort(ctx context.Context, path string, own, victim provisioner.ReservationKey) error {
	preempt := func() error { return c.Reservations.PreemptAndAbort(ctx, path, own, victim) }
	if c.k.m.w.options.Mutant == PlainPreempt {
		return c.letContinue(path, preempt)
	}
	return preempt()
}

// letContinue lets the writes in flight of the machines continue that could write to the disk before a command.
func (c commands) letContinue(path string, command func() error) error {
	w := c.k.m.w
	var writing []*device
	if d := c.k.m.devices[path]; d != nil {
		for _, m := range w.machines {
			for _, other := range m.devices {
				if m != c.k.m && other.disk == d.disk && m.works(other.path) {
					writing = append(writing, other)
				}
			}
		}
	}
	err := command()
	for _, d := range writing {
		d.late = w.now().Add(lateWrites)
	}
	return err
}

// sharedDisk has the reservations of a disk.
func (w *world) sharedDisk(disk string) *sharedisk.Disk {
	if w.shared[disk] == nil {
		w.shared[disk] = &sharedisk.Disk{}
	}
	return w.shared[disk]
}

// takes says whether the disk takes the writes of a machine.
func (m *machine) takes(d *device) bool {
	return !m.w.reservations || m.w.sharedDisk(d.disk).Allows(m.name, true) || m.w.now().Before(d.late)
}

// preemptedChanged remembers the attachments whose nodes were fenced by pre-emption, and whose disks Azure has not detached yet.
func (w *world) preemptedChanged(c memapi.Change) {
	object := c.After
	if object == nil {
		object = c.Before
	}
	a, isAttachment := object.(*apiv1.AzVolumeAttachment)
	if !isAttachment {
		return
	}
	if c.After != nil && ownership.Preempted(a) {
		if w.preempted[a.Name] == nil {
			w.note("%s is fenced from %s by pre-emption under epoch %d", a.Spec.NodeName, a.Spec.VolumeName, a.Spec.Epoch)
		}
		w.preempted[a.Name] = a
	} else {
		delete(w.preempted, a.Name)
	}
}

// stayFenced holds law 3d: a node from which the reservation was taken cannot write as long as the proof stands.
func (w *world) stayFenced() {
	for _, a := range w.preempted {
		if w.machine(a.Spec.NodeName).writes(a.Spec.VolumeName) {
			w.broken("law 3: %s was fenced from %s by pre-emption under epoch %d, and can write to it", a.Spec.NodeName, a.Spec.VolumeName, a.Spec.Epoch)
		}
	}
}
