package provisioner

import (
	"context"
	"fmt"
	"slices"
)

// Reservations controls which of the nodes that have a shared disk attached may write to it: SCSI-3
// persistent reservations (SPC-4, section 5.13), or the reservations of NVMe (NVM Express Base
// Specification 2.0, section 8.19). The disk keeps them, so they hold also against a node whose
// software is wrong, and they survive restarts of nodes and of the disk.
//
// A node registers a key with the disk. A registered node can reserve the disk. The type is always
// Write Exclusive: the node that holds the reservation writes, and all others read. The device
// answers the writes of the others with a reservation conflict, which programs see as EBADE or EIO.
//
// All methods take the path of the device of a whole disk, block until the disk has answered, and
// may be called concurrently. If ctx ends first, they return Unavailable, and a change may still
// take effect afterwards: read the state before you decide.
//
// Errors of all methods: Unsupported for a device that has no reservations, or not what is needed
// here; NotFound for a device that is gone; InvalidArgument for a key that is 0; Unavailable for a
// device that failed or did not answer. Conflict is an error of the changes: the disk refused the
// command because of what is registered and reserved now. errors.As finds a *ReservationConflict in
// it, which says what that is.
type Reservations interface {
	// Read returns the registered keys and the reservation. It changes nothing and needs no
	// registration.
	Read(ctx context.Context, device string) (ReservationState, error)
	// Register registers this node with the key. A key that this node had registered before is
	// replaced, and a reservation that it holds stays. Repeating it changes nothing but the
	// generation. There is no Conflict.
	Register(ctx context.Context, device string, key ReservationKey) error
	// Unregister removes the registration of this node with the key, and with it a reservation that
	// this node holds. It succeeds if this node is not registered, and if it is registered with
	// another key, which stays.
	Unregister(ctx context.Context, device string, key ReservationKey) error
	// Reserve reserves the disk for this node, which must be registered with the key. It succeeds
	// if this node holds the reservation. Conflict: another node holds one, or this node is not
	// registered with the key. Writes of other nodes that are in flight may still reach the disk
	// afterwards.
	Reserve(ctx context.Context, device string, key ReservationKey) error
	// Release gives up the reservation that this node holds with the key, and keeps the
	// registration. It succeeds if no reservation is held with the key.
	Release(ctx context.Context, device string, key ReservationKey) error
	// PreemptAndAbort removes every registration with the key victim. If that key holds the
	// reservation, this node holds it afterwards. When PreemptAndAbort returns, no write of a
	// removed node reaches the disk any more, whether it was in flight or comes later. This node
	// must be registered with own. Conflict: it is not, or no node is registered with victim; then
	// nothing was aborted. So a repetition after a success ends with Conflict, and Read shows that
	// victim is not registered.
	PreemptAndAbort(ctx context.Context, device string, own, victim ReservationKey) error
	// Aborts reports whether the disk has PREEMPT AND ABORT, which not all disks with reservations
	// have. It asks by the command itself, with a victim that no node is registered with, so that
	// nothing changes. This node must be registered with own. Conflict: it is not.
	Aborts(ctx context.Context, device string, own ReservationKey) (bool, error)
	// Preempt is as PreemptAndAbort, without the abort: writes of a removed node that are in flight
	// may still reach the disk after Preempt has returned. So it proves nothing about a node that
	// may be writing. It is for a node that is known to have stopped, and for a registration of
	// this node by a former path.
	Preempt(ctx context.Context, device string, own, victim ReservationKey) error
	// Clear removes the reservation and all registrations, whose nodes they are does not matter.
	// This node must be registered with the key. It succeeds if nothing is registered. Conflict:
	// this node is not registered with the key.
	Clear(ctx context.Context, device string, key ReservationKey) error
}

// ReservationState is what a disk says about its reservations.
type ReservationState struct {
	// Generation grows with each change of the registrations, and not with Reserve and Release.
	Generation uint32
	// Keys that are registered, one for each registered node, in the order of the disk.
	Keys []ReservationKey
	// Holder is the key of the reservation. It is 0 if there is none, and also for the types that
	// all registered nodes hold.
	Holder ReservationKey
	// Type of the reservation; NoReservation if there is none.
	Type ReservationType
}

// Registered reports whether a node is registered with the key.
func (s ReservationState) Registered(key ReservationKey) bool { return slices.Contains(s.Keys, key) }

// Registrations with the key. There are several if a node has registered with it by several paths.
func (s ReservationState) Registrations(key ReservationKey) int {
	count := 0
	for _, k := range s.Keys {
		if k == key {
			count++
		}
	}
	return count
}

// Unregistered returns a key that no node is registered with.
func (s ReservationState) Unregistered() ReservationKey {
	key := ReservationKey(keyMagic<<keyMagicShift | keyOwnerMask<<keyOwnerShift) // no node's key: its epoch is 0
	for s.Registered(key) {
		key--
	}
	return key
}

// String describes the state for messages.
func (s ReservationState) String() string {
	if s.Type == NoReservation {
		return fmt.Sprintf("no reservation, registered keys %v", s.Keys)
	}
	return fmt.Sprintf("reservation %s held by key %s, registered keys %v", s.Type, s.Holder, s.Keys)
}

// ReservationType says which nodes may read and write. The numbers are those of linux/pr.h and of
// NVMe.
type ReservationType uint8

// The types. The driver makes WriteExclusive only; other programs make the others.
const (
	NoReservation ReservationType = iota
	WriteExclusive
	ExclusiveAccess
	WriteExclusiveRegistrantsOnly
	ExclusiveAccessRegistrantsOnly
	WriteExclusiveAllRegistrants
	ExclusiveAccessAllRegistrants
)

// String is the name in the standards.
func (t ReservationType) String() string {
	names := []string{"none", "Write Exclusive", "Exclusive Access", "Write Exclusive - Registrants Only",
		"Exclusive Access - Registrants Only", "Write Exclusive - All Registrants", "Exclusive Access - All Registrants"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", t)
}

// ReservationConflict is a change that a disk refused because of its registrations and its holder.
// It is the cause of an Error of the kind Conflict.
type ReservationConflict struct {
	// Device that refused, and Command that it refused.
	Device, Command string
	// State is what the disk said after the refusal.
	State ReservationState
}

// Error says what was refused and what was found.
func (c *ReservationConflict) Error() string {
	return fmt.Sprintf("%s on %s: reservation conflict: the disk has %s", c.Command, c.Device, c.State)
}
