// Package fencing decides what a node does with the persistent reservation of a shared disk:
// when it stages and unstages the volume, and when it takes the reservation from a node that was
// lost (law 3d). The disk itself then refuses the writes of every other node.
// docs/adr/0027-fencing-by-persistent-reservations.md shows why this is a proof.
//
// Each decision is one command, made from the state that was just read. The caller sends it, reads
// the state again, and asks again, until the answer is Done or an error: another node can change
// the state between a read and a command, and the disk then refuses the command or the next read
// shows it.
package fencing

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Step is a decision.
type Step struct {
	Command Command
	// Victim is the key to be pre-empted, if the command is PreemptAndAbort or Preempt.
	Victim provisioner.ReservationKey
}

// Command is what the node does next.
type Command string

// The commands.
const (
	// Done: the disk is as it should be.
	Done Command = "Done"
	// GiveUp: the disk is not to be reserved, because a fence by its reservation would prove
	// nothing. The node ends its registration.
	GiveUp Command = "GiveUp"
	// Register the node's key.
	Register Command = "Register"
	// Unregister the node's key, and with it the reservation that it holds.
	Unregister Command = "Unregister"
	// Reserve the disk.
	Reserve Command = "Reserve"
	// Ask whether the disk has PREEMPT AND ABORT.
	Ask Command = "Ask"
	// Record durably that the keys of this node and of the victim are registered at once.
	Record Command = "Record"
	// PreemptAndAbort the victim.
	PreemptAndAbort Command = "PreemptAndAbort"
	// Preempt the victim without an abort. Its node is known to have stopped, or it is a former
	// path of this node.
	Preempt Command = "Preempt"
)

// Call has the results of the commands of one call, which the state of the disk does not show.
type Call struct {
	// Registered: the disk has taken a registration by this node's path. A key of this node that
	// was registered before can be the registration of a former path: the disk was detached and
	// attached again, or the VM was moved.
	Registered bool
	// Held: the disk has accepted a RESERVE or a pre-emption by this node's path. Only the holder's
	// path can make such a command.
	Held bool
	// Refused: the disk has refused a command of this node's path although the key is registered.
	Refused bool
	// Replaced: by the registration of this node's path the reservation of another node became its
	// own. So the disk takes both nodes for one initiator.
	Replaced bool
	// Asked: the disk was asked whether it has PREEMPT AND ABORT; Aborts is the answer.
	Asked, Aborts bool
	// Recorded: there is a record that this node's key and the victim's were registered at once.
	Recorded bool
}

// Owner is a node that was granted a volume.
type Owner struct {
	// Key of the node under the grant.
	Key provisioner.ReservationKey
	// Exclusive is as in ownership.StageDecision.
	Exclusive bool
}

// AtStage decides how a node that was granted the volume comes to hold the reservation with its
// key. A reservation of an earlier epoch of this cluster is pre-empted: the grant proves that its
// node has released the volume. That proof, and not the pre-emption, says that no write is in
// flight. So a disk without PREEMPT AND ABORT can be taken over as well, and is then left without a
// reservation. Errors: FailedPrecondition if the node must not use the disk, because a node holds
// it under a later epoch, a node of another cluster may hold it, another node is fencing this one,
// or another program has reserved it.
func AtStage(state provisioner.ReservationState, owner Owner, call Call) (Step, error) {
	own, holder := owner.Key, state.Holder
	unknown := !state.Registered(own) || call.Refused && !call.Registered
	switch {
	case call.Replaced:
		return Step{Command: GiveUp}, nil
	case state.Type == provisioner.NoReservation && unknown:
		return Step{Command: Register}, nil
	case state.Type == provisioner.NoReservation:
		return reserve(call), nil
	case state.Type != provisioner.WriteExclusive || !holder.IsDrivers():
		return Step{}, otherProgram(state)
	case holder == own:
		return asHolder(state, own, call), nil
	case holder == own.FenceOnly() && !call.Registered:
		// This node keeps it since it has unstaged the volume under this epoch, or another one with
		// the same hash has fenced this one: then a registration of this node does not change it.
		return Step{Command: Register}, nil
	}
	if err := explained(holder, owner); err != nil {
		return Step{}, err
	}
	switch {
	case unknown:
		return Step{Command: Register}, nil
	case !call.Asked:
		return Step{Command: Ask}, nil
	case call.Aborts:
		return Step{Command: PreemptAndAbort, Victim: holder}, nil
	default:
		return Step{Command: Preempt, Victim: holder}, nil
	}
}

// reserve decides for a registered node and a disk without a reservation.
func reserve(call Call) Step {
	switch {
	case !call.Asked:
		return Step{Command: Ask}
	case !call.Aborts:
		return Step{Command: GiveUp}
	default:
		return Step{Command: Reserve}
	}
}

// asHolder decides for a node whose key holds the reservation.
func asHolder(state provisioner.ReservationState, own provisioner.ReservationKey, call Call) Step {
	switch {
	case !call.Held && !call.Refused:
		return Step{Command: Reserve} // a disk that this path holds already accepts it
	case !call.Held && !call.Registered:
		return Step{Command: Register}
	case !call.Held && state.Registrations(own) > 1:
		return Step{Command: Preempt, Victim: own} // a former path of this node
	case !call.Held:
		return Step{Command: Reserve}
	case !call.Asked:
		return Step{Command: Ask}
	case !call.Aborts:
		return Step{Command: GiveUp}
	default:
		return Step{Command: Done}
	}
}

// explained returns why the owner must not pre-empt the key that holds the reservation, nil if it
// may: the key is of this cluster and of an epoch before the granted one, or Azure has listed the
// disk at no VM outside of this cluster after its attach to the owner.
func explained(holder provisioner.ReservationKey, owner Owner) error {
	own := owner.Key
	switch {
	case holder.Cluster() != own.Cluster() && owner.Exclusive:
		return nil
	case holder.Cluster() != own.Cluster():
		return refusal.Errorf(apiv1.ReasonReservedElsewhere,
			"refusing to use the disk under epoch %d: a node of another cluster has reserved it (key %s, cluster %#04x; "+
				"this one is %#04x), and may still write to it; delete the pods that use the disk there, or detach it from the VMs of that cluster. "+
				"If that cluster is gone, remove the reservation with sg_persist or nvme", own.Epoch(), holder, holder.Cluster(),
			own.Cluster())
	case holder.Epoch() == own.Epoch() && holder.IsFenceOnly():
		return refusal.Errorf(apiv1.ReasonReservedElsewhere,
			"refusing to use the disk under epoch %d: another node has fenced this one (key %s)",
			own.Epoch(), holder)
	case holder.Epoch() >= own.Epoch():
		return refusal.Errorf(apiv1.ReasonReservedElsewhere,
			"refusing to use the disk under epoch %d: it is reserved under epoch %d (key %s), "+
				"by a later owner, or under an AzVolume that was deleted; if no node uses the disk, remove the reservation with sg_persist or nvme",
			own.Epoch(), holder.Epoch(), holder)
	}
	return nil
}

// AtUnstage decides how a node leaves the disk after it has flushed its last write. The reservation
// ends with the registration. It is the same for the key own of an owner, and for the key of a node
// that only fenced. A registration with the key by a former path is ended, too.
func AtUnstage(state provisioner.ReservationState, own provisioner.ReservationKey, call Call) Step {
	switch {
	case !state.Registered(own):
		return Step{Command: Done}
	case !call.Refused:
		return Step{Command: Unregister}
	case !call.Registered:
		return Step{Command: Register}
	case state.Registrations(own) > 1:
		return Step{Command: Preempt, Victim: own}
	default:
		return Step{Command: Unregister}
	}
}

// AtKeep decides how a node that has unstaged the volume keeps the reservation that it holds with
// the key own. It holds it with the fence-only key keep then.
func AtKeep(state provisioner.ReservationState, own, keep provisioner.ReservationKey, call Call) Step {
	switch {
	case state.Holder == keep, !state.Registered(own):
		return Step{Command: Done}
	case !call.Registered:
		return Step{Command: Register}
	case state.Holder == own:
		return Step{Command: Preempt, Victim: own} // a former path of this node
	default:
		return Step{Command: Done}
	}
}

// AtFence decides how a node takes the reservation from a lost node, which holds it with the key
// victim. own is a fence-only key. Done is a proof: no write of the lost node reaches the disk any
// more. Before it sends the pre-emption, the node records that own and victim are registered at
// once. So the disk takes them for two initiators, and own can only hold the reservation by a
// PREEMPT AND ABORT of victim. Without the record the registration of own may have replaced the
// victim's. Errors: FailedPrecondition if there can be no such proof. The forced detach decides
// then.
func AtFence(state provisioner.ReservationState, own, victim provisioner.ReservationKey, call Call) (Step, error) {
	switch {
	case state.Type == provisioner.WriteExclusive && state.Holder == own && !state.Registered(victim):
		if call.Recorded {
			return Step{Command: Done}, nil
		}
		return Step{}, provisioner.Errorf(provisioner.FailedPrecondition,
			"cannot fence by the reservation of the disk: key %s holds it and has pre-empted nothing, "+
				"so the disk takes this node and the lost one for the same initiator, whose writes it does not tell apart: the disk has %s", own, state)
	case state.Type != provisioner.WriteExclusive || state.Holder != victim:
		return Step{}, provisioner.Errorf(provisioner.FailedPrecondition,
			"cannot fence by the reservation of the disk: the lost node's key %s does not hold it: the disk has %s", victim,
			state)
	case !state.Registered(own) || call.Refused && !call.Registered:
		return Step{Command: Register}, nil
	case !call.Recorded:
		return Step{Command: Record}, nil
	default:
		return Step{Command: PreemptAndAbort, Victim: victim}, nil
	}
}

// otherProgram is the refusal of a disk that another program has reserved.
func otherProgram(state provisioner.ReservationState) error {
	return refusal.Errorf(apiv1.ReasonReservedElsewhere,
		"refusing to use the disk: another program has reserved it: the disk has %s; "+
			"end that program, or clear the reservation with sg_persist or nvme", state)
}
