// Package reservation sends the commands that internal/plan/reservation decides to a shared disk: it reads the state of the disk's
// reservations, sends one command, and reads again, until the disk is as it should be.
package reservation

import (
	"context"
	"errors"

	plan "github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// maxCommands limits how many commands are sent in one call. A decision needs three at most, and others follow only if another node
// changes the state in between.
const maxCommands = 20

// Reserver changes the reservations of this node's devices. Its methods take the device of a whole disk and block until the disk has
// answered or ctx ends. They can be repeated. They return the errors of provisioner.Reservations, except Conflict: after a Conflict they read
// and decide again. If a disk refuses all commands, they return Unavailable.
type Reserver struct {
	Disk provisioner.Reservations
}

// Hold makes this node hold the reservation of a disk with its key own. If it fails, the key may be registered. Errors: FailedPrecondition
// if the node must not use the disk (plan.AtStage).
func (r Reserver) Hold(ctx context.Context, device string, own provisioner.ReservationKey) (plan.Found, error) {
	var found plan.Found
	_, _, err := r.follow(ctx, device, own, func(state provisioner.ReservationState) (plan.Step, error) {
		switch {
		case state.Type != provisioner.NoReservation && state.Holder != own:
			found = plan.FoundOther
		case found != "":
		case state.Type == provisioner.NoReservation:
			found = plan.FoundNone
		default:
			found = plan.FoundOwn
		}
		return plan.AtStage(state, own)
	})
	return found, err
}

// Leave ends the registration of this node with the key own, and the reservation that it holds with it.
func (r Reserver) Leave(ctx context.Context, device string, own provisioner.ReservationKey) error {
	_, _, err := r.follow(ctx, device, own, func(state provisioner.ReservationState) (plan.Step, error) { return plan.AtUnstage(state, own), nil })
	return err
}

// Remove ends a reservation of the driver, with the key of any node, and all registrations. Only a node that alone has the disk may do that: it registers with the
// key own for it.
func (r Reserver) Remove(ctx context.Context, device string, own provisioner.ReservationKey) error {
	state, err := r.Disk.Read(ctx, device)
	if err != nil || !state.Holder.IsDrivers() {
		return err
	}
	if err := r.Disk.Register(ctx, device, own); err != nil {
		return err
	}
	return r.Disk.Clear(ctx, device, own)
}

// Exchange registers this node with another key than own. The reservation stays. It does nothing if no node is registered with own.
func (r Reserver) Exchange(ctx context.Context, device string, own, other provisioner.ReservationKey) error {
	state, err := r.Disk.Read(ctx, device)
	if err != nil || !state.Registered(own) {
		return err
	}
	return r.Disk.Register(ctx, device, other)
}

// Fence takes the reservation from the lost node, which holds it with the key victim. own is a fence-only key. It returns the state that
// proves it. changed says that it may have sent a command, also if it fails: the key may be registered then. Errors: FailedPrecondition if there is no proof (plan.AtFence).
func (r Reserver) Fence(ctx context.Context, device string, own, victim provisioner.ReservationKey) (proof provisioner.ReservationState, changed bool, err error) {
	return r.follow(ctx, device, own, func(state provisioner.ReservationState) (plan.Step, error) { return plan.AtFence(state, own, victim) })
}

// follow reads, decides and sends until the decision is Done. It returns the state that was read last.
func (r Reserver) follow(ctx context.Context, device string, own provisioner.ReservationKey, decide func(provisioner.ReservationState) (plan.Step, error)) (state provisioner.ReservationState, changed bool, err error) {
	for range maxCommands {
		if state, err = r.Disk.Read(ctx, device); err != nil {
			return state, changed, err
		}
		step, err := decide(state)
		if err != nil || step.Command == plan.Done {
			return state, changed, err
		}
		changed = true
		if err := r.send(ctx, device, own, step); err != nil && !errors.Is(err, provisioner.Conflict) {
			return state, changed, err
		}
	}
	return state, changed, provisioner.Errorf(provisioner.Unavailable, "reserve %s with key %s: %d commands have not led to the wanted state; the disk has %s",
		device, own, maxCommands, state)
}

func (r Reserver) send(ctx context.Context, device string, own provisioner.ReservationKey, step plan.Step) error {
	switch step.Command {
	case plan.Register:
		return r.Disk.Register(ctx, device, own)
	case plan.Unregister:
		return r.Disk.Unregister(ctx, device, own)
	case plan.Reserve:
		return r.Disk.Reserve(ctx, device, own)
	case plan.Preempt:
		return r.Disk.PreemptAndAbort(ctx, device, own, step.Victim)
	case plan.Done:
	}
	return nil
}
