package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

const (
	// lateWrites is how long writes that a command did not abort stay in flight after it.
	lateWrites = 50 * time.Millisecond
	// lateWriteWait is how long such a command waits for one of the writes in flight that it could
	// keep back.
	lateWriteWait = 5 * time.Millisecond
)

// exclusion is what an attachment knows of the commands that took away its VM's right to write.
//
// A write looks at the reservation when it arrives, and is in flight from then on. A command that
// excludes its VM does one of two things with it:
//
//   - PREEMPT AND ABORT counts up aborts after it has changed the state, and takes cutFile.mu for
//     writing. A write that has reached the file is complete then. Any other one sees the count,
//     looks at the reservation again, and is refused.
//   - Any other command lets it continue. SPC-4 does not say when such a write is complete, so for
//     a command that finds writes in flight, some of them are kept back and complete only
//     lateWrites after the answer. So a program that takes such an answer for a fence is found.
type exclusion struct {
	inFlight atomic.Int64
	aborts   atomic.Uint64
	hold     atomic.Pointer[hold]
}

// hold keeps writes back until it is released.
type hold struct {
	caught   chan struct{} // has an element when a write is kept back
	released chan struct{}
}

// linger keeps a write back if a command wants that, at most until the file is cut.
func (c *cutFile) linger() {
	h := c.fenced.hold.Load()
	if h == nil {
		return
	}
	select {
	case h.caught <- struct{}{}:
	default:
	}
	select {
	case <-h.released:
	case <-c.bar:
	}
}

// allows reports whether the disk lets a VM read or write.
func (d *disk) allows(vm string, write bool) bool {
	state := d.reserved.Load()
	return state == nil || state.Allows(vm, write)
}

// SetShared reports whether the devices of the disk have reservations.
func (h *Hypervisor) SetShared(_ context.Context, uid string, shared bool) error {
	if err := checkDisk(uid); err != nil {
		return err
	}
	was := false
	h.store.view(func(r *record) { was = r.Shared[uid] })
	if was == shared {
		return nil
	}
	return h.store.update(func(r *record) {
		if delete(r.Shared, uid); shared {
			r.Shared[uid] = true
		}
	})
}

// Execute runs a SCSI command about reservations for the VM whose device that is. The state is
// durable when it returns. After PREEMPT AND ABORT no write of a VM that was removed reaches the
// disk any more; see exclusion for other commands. Errors: ErrNotFound if the device is no
// attachment's. A command that the disk refuses is not an error.
func (h *Hypervisor) Execute(_ context.Context, device string, cdb, out []byte) (reservations.Answer, error) {
	s, a := h.attachmentOf(device)
	if a == nil {
		return reservations.Answer{}, fmt.Errorf("%w: no VM has the device %s", ErrNotFound, device)
	}
	shared := false
	h.store.view(func(r *record) { shared = r.Shared[a.uid] })
	if !shared {
		return reservations.Unsupported(), nil
	}
	d := h.shared(a.uid)
	d.commands.Lock()
	defer d.commands.Unlock()
	// A cut waits for the command, as it does for writes.
	a.file.mu.RLock()
	defer a.file.mu.RUnlock()
	if a.file.barred.Load() {
		return reservations.Answer{}, fmt.Errorf("%w: the device %s was cut off", ErrNotFound, device)
	}
	var before reservations.State
	if state := d.reserved.Load(); state != nil {
		before = *state
	}
	answer := before.Execute(s.vm, cdb, out)
	if reflect.DeepEqual(before, answer.State) {
		return answer, nil
	}
	if err := h.store.update(func(r *record) { r.Reservations[a.uid] = answer.State }); err != nil {
		return reservations.Answer{}, err
	}
	h.enforce(d, a.uid, before, answer)
	return answer, nil
}

// enforce applies a new state to the operations of all attachments.
func (h *Hypervisor) enforce(d *disk, uid string, before reservations.State, answer reservations.Answer) {
	release := make(chan struct{})
	var kept []*cutFile
	for _, a := range h.liveOf(uid) {
		excluded := before.Allows(a.file.vm, true) && !answer.State.Allows(a.file.vm, true) &&
			!slices.Contains(answer.Abort, a.file.vm)
		if excluded && h.keepBack(a.file, release) {
			kept = append(kept, a.file)
		}
	}
	d.reserved.Store(&answer.State)
	// An attachment that is not in this list yet begins with the new state.
	for _, a := range h.liveOf(uid) {
		if slices.Contains(answer.Abort, a.file.vm) {
			a.file.abort()
		}
	}
	if len(kept) == 0 {
		return
	}
	timer := h.clock.NewTimer(lateWrites)
	go func() {
		<-timer.C()
		for _, file := range kept {
			file.fenced.hold.Store(nil)
		}
		close(release)
	}()
}

// abort makes the writes in flight look at the reservation again, and returns when those that have
// reached the file are complete.
func (c *cutFile) abort() {
	c.fenced.aborts.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
}

// keepBack makes the file keep back the writes in flight until release is closed, and waits until
// it has caught one. It returns false if there are none.
func (h *Hypervisor) keepBack(file *cutFile, release chan struct{}) bool {
	keep := &hold{caught: make(chan struct{}, 1), released: release}
	if file.fenced.inFlight.Load() == 0 || !file.fenced.hold.CompareAndSwap(nil, keep) {
		return false
	}
	timer := h.clock.NewTimer(lateWriteWait)
	defer timer.Stop()
	select {
	case <-keep.caught:
	case <-timer.C():
	}
	return true
}

func (h *Hypervisor) attachmentOf(device string) (slot, *attachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, a := range h.live {
		if a.device == device {
			return s, a
		}
	}
	return slot{}, nil
}

// LoseReservations removes what a VM has registered and reserved at a disk. It is durable when it
// returns.
func (h *Hypervisor) LoseReservations(_ context.Context, vm, uid string) error {
	if err := errors.Join(checkVM(vm), checkDisk(uid)); err != nil {
		return err
	}
	d := h.shared(uid)
	d.commands.Lock()
	defer d.commands.Unlock()
	before := d.reserved.Load()
	if before == nil {
		return nil
	}
	state := before.Lose(vm)
	if reflect.DeepEqual(*before, state) {
		return nil
	}
	if err := h.store.update(func(r *record) { r.Reservations[uid] = state }); err != nil {
		return err
	}
	d.reserved.Store(&state)
	return nil
}

// ListReservations returns the reservations of the disks that have any.
func (h *Hypervisor) ListReservations(context.Context) (map[string]reservations.State, error) {
	var states map[string]reservations.State
	h.store.view(func(r *record) { states = maps.Clone(r.Reservations) })
	maps.DeleteFunc(states, func(_ string, s reservations.State) bool { return len(s.Registrations) == 0 })
	return states, nil
}

// forgetReservations is for a disk that is deleted.
func (h *Hypervisor) forgetReservations(uid string) error {
	known := false
	h.store.view(func(r *record) { _, reserved := r.Reservations[uid]; known = r.Shared[uid] || reserved })
	if !known {
		return nil
	}
	return h.store.update(func(r *record) {
		delete(r.Shared, uid)
		delete(r.Reservations, uid)
	})
}

// forgetInitiator is for a VM that is deleted: what it had registered and reserved stays, and a
// later VM of the same name is another initiator.
func (h *Hypervisor) forgetInitiator(vm string) error {
	deleted := fmt.Sprintf("%s, deleted at %s", vm, h.clock.Now().UTC().Format(time.RFC3339Nano))
	var disks []string
	h.store.view(func(r *record) {
		for uid, state := range r.Reservations {
			if !reflect.DeepEqual(state.Rename(vm, deleted), state) {
				disks = append(disks, uid)
			}
		}
	})
	for _, uid := range disks {
		d := h.shared(uid)
		d.commands.Lock()
		state := d.reserved.Load().Rename(vm, deleted)
		err := h.store.update(func(r *record) { r.Reservations[uid] = state })
		d.reserved.Store(&state)
		d.commands.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
