// Package sharedisk has the persistent reservations of shared disks in memory, for the hosts of
// tests. The semantics are those of azuresim's disks.
package sharedisk

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Disk is the reservations of one disk. The zero value has none. It is safe for concurrent use.
type Disk struct {
	// NoAbort is a disk without PREEMPT AND ABORT. It is set before the disk is used.
	NoAbort bool

	mu    sync.Mutex
	state reservations.State
}

// Allows reports whether the disk takes the reads, or the writes, of a node.
func (d *Disk) Allows(node string, write bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Allows(node, write)
}

// Lose removes what a node has registered and reserved, as a platform may do that has detached the
// disk from the node.
func (d *Disk) Lose(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = d.state.Lose(node)
}

// State is the state of the disk's reservations.
func (d *Disk) State() provisioner.ReservationState {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := provisioner.ReservationState{Generation: d.state.Generation, Type: types[d.state.Type]}
	for _, r := range d.state.Registrations {
		state.Keys = append(state.Keys, provisioner.ReservationKey(r.Key))
		if r.Initiator == d.state.Holder {
			state.Holder = provisioner.ReservationKey(r.Key)
		}
	}
	return state
}

// ChangePath gives the registration of a node to another initiator: the node has the disk by a new
// path, and the disk keeps the registration of the former one.
func (d *Disk) ChangePath(node, former string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = d.state.Rename(node, former)
}

// types are SCSI's numbers of reservations.
var types = map[reservations.Type]provisioner.ReservationType{
	reservations.WriteExclusive:                 provisioner.WriteExclusive,
	reservations.ExclusiveAccess:                provisioner.ExclusiveAccess,
	reservations.WriteExclusiveRegistrantsOnly:  provisioner.WriteExclusiveRegistrantsOnly,
	reservations.ExclusiveAccessRegistrantsOnly: provisioner.ExclusiveAccessRegistrantsOnly,
	reservations.WriteExclusiveAllRegistrants:   provisioner.WriteExclusiveAllRegistrants,
	reservations.ExclusiveAccessAllRegistrants:  provisioner.ExclusiveAccessAllRegistrants,
}

// Node is the reservations of disks as one node sees them.
type Node struct {
	Name string
	// Disk returns the disk of a device. Its error is returned for each call on that device.
	Disk func(ctx context.Context, device string) (*Disk, error)
}

var _ provisioner.Reservations = Node{}

// Read implements provisioner.Reservations.
func (n Node) Read(ctx context.Context, device string) (provisioner.ReservationState, error) {
	disk, err := n.Disk(ctx, device)
	if err != nil {
		return provisioner.ReservationState{}, err
	}
	return disk.State(), nil
}

// Register implements provisioner.Reservations.
func (n Node) Register(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.RegisterAndIgnore, 0, key, nil)
}

// Unregister implements provisioner.Reservations.
func (n Node) Unregister(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.Register, key, 0,
		func(s provisioner.ReservationState) bool { return !slices.Contains(s.Keys, key) })
}

// Reserve implements provisioner.Reservations.
func (n Node) Reserve(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.Reserve, key, 0, nil)
}

// Release implements provisioner.Reservations.
func (n Node) Release(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.Release, key, 0,
		func(s provisioner.ReservationState) bool { return s.Holder != key })
}

// PreemptAndAbort implements provisioner.Reservations.
func (n Node) PreemptAndAbort(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.PreemptAndAbort, own, victim, nil)
}

// Preempt implements provisioner.Reservations.
func (n Node) Preempt(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.Preempt, own, victim, nil)
}

// Aborts implements provisioner.Reservations.
func (n Node) Aborts(ctx context.Context, device string, own provisioner.ReservationKey) (bool, error) {
	disk, err := n.Disk(ctx, device)
	if err != nil {
		return false, err
	}
	var conflict *provisioner.ReservationConflict
	err = n.PreemptAndAbort(ctx, device, own, disk.State().Unregistered())
	switch {
	case errors.As(err, &conflict) && conflict.State.Registered(own):
		return true, nil
	case errors.Is(err, provisioner.Unsupported):
		return false, nil
	}
	return err == nil, err
}

// Clear implements provisioner.Reservations.
func (n Node) Clear(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return n.change(ctx, device, reservations.Clear, key, 0,
		func(s provisioner.ReservationState) bool { return len(s.Keys) == 0 })
}

// change sends PERSISTENT RESERVE OUT. done says of the state after a conflict whether it is as the
// caller wants it.
func (n Node) change(ctx context.Context, device string, action byte, own, other provisioner.ReservationKey,
	done func(provisioner.ReservationState) bool) error {
	disk, err := n.Disk(ctx, device)
	if err != nil {
		return err
	}
	if disk.NoAbort && action == reservations.PreemptAndAbort {
		return provisioner.Errorf(provisioner.Unsupported, "PREEMPT AND ABORT on %s: the disk does not know the command", device)
	}
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list, uint64(own))
	binary.BigEndian.PutUint64(list[8:], uint64(other))
	cdb := []byte{reservations.OpOut, action, byte(reservations.WriteExclusive), 0, 0, 0, 0, 0, byte(len(list)), 0}
	disk.mu.Lock()
	answer := disk.state.Execute(n.Name, cdb, list)
	disk.state = answer.State
	disk.mu.Unlock()
	switch answer.Status {
	case reservations.Good:
		return nil
	case reservations.Conflict:
		state := disk.State()
		if done != nil && done(state) {
			return nil
		}
		refused := &provisioner.ReservationConflict{
			Device:  device,
			Command: "PERSISTENT RESERVE OUT",
			State:   state,
		}
		return provisioner.Errorf(provisioner.Conflict, "%w", refused)
	default:
		return provisioner.Errorf(provisioner.Unavailable, "PERSISTENT RESERVE OUT on %s: status %d, sense % x", device,
			answer.Status, answer.Sense)
	}
}
