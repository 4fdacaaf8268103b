// Package reservation decides what a node does with the persistent reservation of a shared disk: when it stages and unstages the
// volume, and when it takes the reservation from a node that was lost (law 3d). The disk itself then refuses the writes of every other
// node. docs/adr/0027-fencing-by-persistent-reservations.md shows why this is a proof.
//
// Each decision is one command, made from the state that was just read. The caller sends it, reads the state again, and asks again,
// until the answer is Done or an error: another node can change the state between a read and a command, and the disk then refuses the
// command or the next read shows it.
package reservation

import (
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Step is a decision.
type Step struct {
	Command Command
	// Victim is the key to be pre-empted, if the command is Preempt.
	Victim provisioner.ReservationKey
}

// Command is what the node sends to the disk.
type Command string

// The commands.
const (
	// Done: the disk is as it should be.
	Done Command = "Done"
	// Register the node's key.
	Register Command = "Register"
	// Unregister the node's key, and with it the reservation that it holds.
	Unregister Command = "Unregister"
	// Reserve the disk.
	Reserve Command = "Reserve"
	// Preempt and abort the key that holds the reservation.
	Preempt Command = "PreemptAndAbort"
)

// AtStage decides how a node that was granted the volume comes to hold the reservation with its key own. A reservation of an earlier
// epoch is pre-empted: the grant proves that its node has released the volume. Errors: FailedPrecondition if the node must not use the
// disk, because a node holds it under a later epoch, another node is fencing this one, or another program has reserved it. Nothing was
// registered then.
func AtStage(state provisioner.ReservationState, own provisioner.ReservationKey) (Step, error) {
	holder := state.Holder
	switch {
	case state.Type == provisioner.NoReservation && state.Registered(own):
		return Step{Command: Reserve}, nil
	case state.Type == provisioner.NoReservation:
		return Step{Command: Register}, nil
	case state.Type != provisioner.WriteExclusive || !holder.IsDrivers():
		return Step{}, foreign(state)
	case holder == own && state.Registered(own):
		return Step{Command: Done}, nil
	case holder.Epoch() == own.Epoch() && holder.IsFenceOnly():
		return Step{}, provisioner.Errorf(provisioner.FailedPrecondition, "refusing to use the disk under epoch %d: another node has fenced this one (key %s)",
			own.Epoch(), holder)
	case holder.Epoch() >= own.Epoch() && holder != own:
		return Step{}, provisioner.Errorf(provisioner.FailedPrecondition, "refusing to use the disk under epoch %d: it is reserved under epoch %d (key %s), "+
			"by a later owner, by a node of another cluster, or under an AzVolume that was deleted; if no node uses the disk, remove the reservation with sg_persist or nvme",
			own.Epoch(), holder.Epoch(), holder)
	case !state.Registered(own):
		return Step{Command: Register}, nil
	default:
		return Step{Command: Preempt, Victim: holder}, nil
	}
}

// AtUnstage decides how a node leaves the disk after it has flushed its last write. The reservation ends with the registration. It is
// the same for the key own of an owner, and for the key of a node that only fenced.
func AtUnstage(state provisioner.ReservationState, own provisioner.ReservationKey) Step {
	if state.Registered(own) {
		return Step{Command: Unregister}
	}
	return Step{Command: Done}
}

// AtFence decides how a node takes the reservation from a lost node, which holds it with the key victim. own is a fence-only key. Done
// is a proof: no write of the lost node reaches the disk any more, because own can only hold the reservation by a PREEMPT AND ABORT of
// victim. Errors: FailedPrecondition if there can be no such proof: the lost node does not hold the reservation, so that nothing would be
// aborted. The forced detach decides then.
func AtFence(state provisioner.ReservationState, own, victim provisioner.ReservationKey) (Step, error) {
	switch {
	case state.Type == provisioner.WriteExclusive && state.Holder == own && !state.Registered(victim):
		return Step{Command: Done}, nil
	case state.Type != provisioner.WriteExclusive || state.Holder != victim:
		return Step{}, provisioner.Errorf(provisioner.FailedPrecondition, "cannot fence by the reservation of the disk: the lost node's key %s does not hold it: the disk has %s", victim, state)
	case !state.Registered(own):
		return Step{Command: Register}, nil
	default:
		return Step{Command: Preempt, Victim: victim}, nil
	}
}

// foreign is the refusal of a disk that another program has reserved.
func foreign(state provisioner.ReservationState) error {
	return provisioner.Errorf(provisioner.FailedPrecondition, "refusing to use the disk: another program has reserved it: the disk has %s; "+
		"end that program, or clear the reservation with sg_persist or nvme", state)
}
