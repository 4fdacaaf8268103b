// Package reservation sends the commands that internal/plan/fencing decides to a shared disk:
// it reads the state of the disk's reservations, sends one command, and reads again, until the disk
// is as it should be.
package reservation

import (
	"context"
	"errors"

	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// maxCommands limits how many commands are sent in one call. A decision needs six at most, and
// others follow only if another node changes the state in between.
const maxCommands = 20

// Reserver changes the reservations of this node's devices. Its methods take the device of a whole
// disk and block until the disk has answered or ctx ends. They can be repeated. They return the
// errors of provisioner.Reservations, except Conflict: after a Conflict they read and decide again.
// If a disk refuses all commands, they return Unavailable.
type Reserver struct {
	Disk provisioner.Reservations
}

// Reserve makes this node hold the reservation of a disk with the owner's key. state was just read
// from the disk. reserved is false if a fence by this disk's reservation would prove nothing; then
// no node holds one, and why says what the disk lacks. If Reserve fails, the key may be registered.
// Errors: FailedPrecondition if the node must not use the disk (fencing.AtStage), and if the disk is
// reserved and refuses a command that is needed.
func (r Reserver) Reserve(ctx context.Context, device string, state provisioner.ReservationState,
	owner fencing.Owner) (found fencing.Found, why string, err error) {
	c := &conversation{
		disk:   r.Disk,
		device: device,
		own:    owner.Key,
		state:  state,
		isRead: true,
	}
	step, err := c.follow(ctx, func() (fencing.Step, error) {
		switch holder := c.state.Holder; {
		case c.state.Type != provisioner.NoReservation && holder != owner.Key && holder != owner.Key.FenceOnly():
			found = fencing.FoundOther
		case found != "":
		case c.state.Type == provisioner.NoReservation:
			found = fencing.FoundNone
		default:
			found = fencing.FoundOwn
		}
		return fencing.AtStage(c.state, owner, c.Call)
	})
	switch {
	case errors.Is(err, provisioner.Unsupported):
		return found, err.Error(), r.giveUp(ctx, device, owner.Key, err)
	case step.Command != fencing.GiveUp:
		return found, "", err
	case c.Replaced:
		return found, "it takes different nodes for the same initiator", r.giveUp(ctx, device, owner.Key, nil)
	default:
		return found, "it has no PREEMPT AND ABORT", r.giveUp(ctx, device, owner.Key, nil)
	}
}

// giveUp ends this node's registration on a disk that is not to be reserved. failure is why a
// command was refused, nil if none was.
func (r Reserver) giveUp(ctx context.Context, device string, own provisioner.ReservationKey, failure error) error {
	err := r.Leave(ctx, device, own)
	if failure == nil {
		return err
	}
	state, err := r.Disk.Read(ctx, device)
	if err != nil || state.Type == provisioner.NoReservation {
		return err
	}
	return provisioner.Errorf(provisioner.FailedPrecondition,
		"refusing to use %s without a reservation: the disk has %s, and does not do what would end it: %s",
		device, state, failure.Error())
}

// Leave ends the registration of this node with the key own, and the reservation that it holds with
// it.
func (r Reserver) Leave(ctx context.Context, device string, own provisioner.ReservationKey) error {
	c := &conversation{
		disk:   r.Disk,
		device: device,
		own:    own,
	}
	_, err := c.follow(ctx, func() (fencing.Step, error) { return fencing.AtUnstage(c.state, own, c.Call), nil })
	return err
}

// Clear ends a reservation and all registrations. Only a node that alone has the disk may do that:
// it registers with the key own for it.
func (r Reserver) Clear(ctx context.Context, device string, own provisioner.ReservationKey) error {
	if err := r.Disk.Register(ctx, device, own); err != nil {
		return err
	}
	return r.Disk.Clear(ctx, device, own)
}

// Keep lets this node keep the reservation that it holds with the key own, with the fence-only key
// keep. It does nothing if no node is registered with own.
func (r Reserver) Keep(ctx context.Context, device string, own, keep provisioner.ReservationKey) error {
	c := &conversation{
		disk:   r.Disk,
		device: device,
		own:    keep,
	}
	_, err := c.follow(ctx, func() (fencing.Step, error) { return fencing.AtKeep(c.state, own, keep, c.Call), nil })
	return err
}

// Takeover is what Fence does with the keys of a fence.
type Takeover struct {
	// Own is a fence-only key of this node.
	Own provisioner.ReservationKey
	// Victim is the key with which the lost node holds the reservation.
	Victim provisioner.ReservationKey
	// Recorded reports whether Record has succeeded for these keys before.
	Recorded bool
	// Record records the keys on this node.
	Record func() error
}

// Fence takes the reservation from the lost node. It returns the state that proves it. changed
// reports whether Fence may have sent a command, also if it fails: the key may be registered then.
// Errors: FailedPrecondition if there is no proof (fencing.AtFence).
func (r Reserver) Fence(ctx context.Context, device string, t Takeover) (proof provisioner.ReservationState, changed bool,
	err error) {
	c := &conversation{
		disk:   r.Disk,
		device: device,
		own:    t.Own,
		record: t.Record,
	}
	c.Recorded = t.Recorded
	_, err = c.follow(ctx, func() (fencing.Step, error) { return fencing.AtFence(c.state, t.Own, t.Victim, c.Call) })
	return c.state, c.changed, err
}

// conversation is the commands of one call, and what they have shown.
type conversation struct {
	fencing.Call
	disk   provisioner.Reservations
	device string
	own    provisioner.ReservationKey
	record func() error
	// state that was read last, and whether it is not used up by a command.
	state  provisioner.ReservationState
	isRead bool
	// changed reports whether a command was sent that may change the disk.
	changed bool
}

// follow reads, decides and sends until the decision is Done or GiveUp, which it returns.
func (c *conversation) follow(ctx context.Context, decide func() (fencing.Step, error)) (fencing.Step, error) {
	for range maxCommands {
		if !c.isRead {
			state, err := c.disk.Read(ctx, c.device)
			if err != nil {
				return fencing.Step{}, err
			}
			c.state, c.isRead = state, true
		}
		step, err := decide()
		if err != nil || step.Command == fencing.Done || step.Command == fencing.GiveUp {
			return step, err
		}
		if err := c.send(ctx, step); errors.Is(err, provisioner.Conflict) {
			c.Refused, c.isRead = true, false
		} else if err != nil {
			return step, err
		}
	}
	return fencing.Step{}, provisioner.Errorf(provisioner.Unavailable,
		"reserve %s with key %s: %d commands have not led to the wanted state; the disk has %s",
		c.device, c.own, maxCommands, c.state)
}

// send sends a command, and notes what its success shows.
func (c *conversation) send(ctx context.Context, step fencing.Step) error {
	switch step.Command {
	case fencing.Record:
		if err := c.record(); err != nil {
			return err
		}
		c.Recorded = true
		return nil
	case fencing.Ask:
		aborts, err := c.disk.Aborts(ctx, c.device, c.own)
		if err == nil {
			c.Asked, c.Aborts = true, aborts
		}
		return err
	case fencing.Register:
		return c.register(ctx)
	case fencing.Unregister:
		c.changed, c.isRead = true, false
		return c.disk.Unregister(ctx, c.device, c.own)
	case fencing.Reserve:
		return c.took(c.disk.Reserve(ctx, c.device, c.own))
	case fencing.PreemptAndAbort:
		return c.took(c.disk.PreemptAndAbort(ctx, c.device, c.own, step.Victim))
	case fencing.Preempt:
		return c.took(c.disk.Preempt(ctx, c.device, c.own, step.Victim))
	case fencing.Done, fencing.GiveUp: // follow ends
	}
	return nil
}

// took notes that a command was sent that makes this node hold the reservation if it succeeds.
func (c *conversation) took(err error) error {
	c.changed, c.isRead = true, false
	if err == nil {
		c.Held = true
	}
	return err
}

// register registers this node, and finds out whether that has replaced another node's key.
func (c *conversation) register(ctx context.Context) error {
	before := c.state.Holder
	c.changed, c.isRead = true, false
	if err := c.disk.Register(ctx, c.device, c.own); err != nil {
		return err
	}
	state, err := c.disk.Read(ctx, c.device)
	if err != nil {
		return err
	}
	c.state, c.isRead, c.Registered = state, true, true
	if before != 0 && state.Holder == c.own && !before.SameNode(c.own) {
		c.Replaced = true
	}
	return nil
}
