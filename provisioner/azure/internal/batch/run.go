package batch

import (
	"errors"
	"sync/atomic"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// run brings the requests of one batch to their end, or back to their line. It makes the call again
// as long as requests are left for it.
//
//	         ┌────────── a request was at fault, or the VM has changed ──────────┐
//	         ▼                                                                   │
//	read ▶ settle ▶ call ─ refused ▶ which request is at fault? ─ unknown, of several ▶ halves of the batch go back to the line
//	                  │                                        └─ unknown, of one ▶ the request ends with the refusal
//	               accepted ▶ poll ▶ succeeded │ preempted ▶ back to the line │ failed ▶ as refused
type run struct {
	engine *Engine
	batch  *batch
	slots  int          // data disks that the VM can have; 0 if that is not known
	calls  atomic.Int32 // that were made for the batch
}

// run brings every request to its end, or back to its line.
func (r *run) run(requests []*request, vm VM, err error) {
	for {
		if err != nil {
			r.engine.finish(err, requests...)
			return
		}
		if requests = r.settle(vm, requests); len(requests) == 0 {
			return
		}
		if r.batch.forced && r.detachingElsewhere(vm, requests...) {
			if requests, vm, err = r.watchDetaching(requests, vm); len(requests) == 0 || err != nil {
				continue
			}
		}
		var op *operation.Operation
		if op, err = r.call(requests); err == nil {
			r.follow(requests, op)
			return
		}
		requests, vm, err = r.refused(requests, vm, err)
	}
}

// leavingDisks returns how many of the VM's disks the requests detach.
func leavingDisks(vm VM, requests []*request) int {
	leaving := 0
	for _, q := range requests {
		if _, listed := vm.find(q.disk); listed && !q.attaches() {
			leaving++
		}
	}
	return leaving
}

// settle ends the requests for which the VM's list of disks is the answer, and returns the others.
func (r *run) settle(vm VM, requests []*request) []*request {
	e, free, leaving := r.engine, r.slots-len(vm.DataDisks), leavingDisks(vm, requests)
	off, faults := r.detached(vm, requests)
	on := r.attached(vm, requests)
	var keep, later []*request
	for _, q := range requests {
		a, listed := vm.find(q.disk)
		attach, full := q.attaches(), r.slots > 0 && free <= 0
		switch {
		case vm.Gone && attach:
			e.finish(provisioner.Errorf(provisioner.NotFound, "attach disk %s: VM %s does not exist", q.params.DiskID,
				q.params.VMID), q)
		case off[q]:
			e.finish(nil, q)
		case faults[q] != nil:
			e.finish(faults[q], q)
		case q.kind == operation.Detach && !listed && vm.State == operation.StateUpdating:
			e.finish(unproved(q, vm, nil), q) // an operation in flight may be what detaches the disk
		case attach && a.Detaching:
			e.finish(provisioner.Errorf(provisioner.Conflict, "attach disk %s: it is being detached from VM %s", q.params.DiskID,
				q.params.VMID), q)
		case on[q]:
			e.finish(nil, q)
		case attach && !listed && full && leaving > 0:
			leaving--
			later = append(later, q)
		case attach && !listed && full:
			e.finish(provisioner.Errorf(provisioner.InsufficientCapacity,
				"attach disk %s: VM %s can have %d data disks and has %d",
				q.params.DiskID, q.params.VMID, r.slots, len(vm.DataDisks)), q)
		case attach && !listed:
			free--
			keep = append(keep, q)
		default:
			// The disk is listed while an operation is at work on the VM: the same call made again
			// ends after that operation. Or it is not listed, and may be attached: Azure repeats
			// the detach, or refuses the call.
			keep = append(keep, q)
		}
	}
	e.putBack(later)
	return keep
}

// call makes the call for the requests.
func (r *run) call(requests []*request) (*operation.Operation, error) {
	return r.engine.Platform.Update(r.engine.ctx, r.update(requests))
}

// update returns the Update with the requests.
func (r *run) update(requests []*request) Update {
	return Update{
		VMID:    r.batch.vmID,
		Changes: changes(requests),
		Look:    r.look(requests),
	}
}

func changes(requests []*request) []Change {
	all := make([]Change, len(requests))
	for i, q := range requests {
		all[i] = Change{Kind: q.kind, AttachRequest: q.params}
	}
	return all
}

// follow answers the callers of a call that Azure has accepted, and follows the operation to its end.
func (r *run) follow(requests []*request, op *operation.Operation) {
	r.accepted(requests, op)
	r.conclude(requests, op.Wait(r.engine.ctx))
}

// accepted answers the callers of a call that Azure has accepted.
func (r *run) accepted(requests []*request, op *operation.Operation) {
	r.engine.disks.Observe(float64(len(requests)))
	if op.Token() == "" {
		return // it has ended; the requests' end answers the callers
	}
	for _, q := range requests {
		r.engine.accept(q, operation.Token{
			Kind:     q.kind,
			ID:       q.params.VMID,
			DiskID:   q.params.DiskID,
			Shared:   q.params.Shared,
			SDK:      op.Token(),
			ByList:   op.ByList,
			Together: len(requests),
		}.Text())
	}
}

// conclude deals with the end of an operation.
func (r *run) conclude(requests []*request, err error) {
	if err == nil || r.engine.ctx.Err() != nil {
		r.engine.finish(err, requests...)
		return
	}
	vm, readErr := r.readUntilAnswered()
	if readErr != nil {
		r.engine.finish(errors.Join(err, readErr), requests...)
		return
	}
	unknown := operation.Preempted(err) || operation.CodeOf(err) == operation.CodeForgotten
	for _, q := range requests {
		q.failed = q.failed || !unknown
	}
	off, _ := r.detached(vm, requests)
	on := r.attached(vm, requests)
	var missing []*request
	for _, q := range requests {
		if off[q] || on[q] {
			r.engine.finish(nil, q)
			continue
		}
		missing = append(missing, q)
	}
	switch {
	case unknown:
		r.preempted(missing, vm, err)
	case blameless(err):
		r.engine.finish(err, missing...)
	default:
		r.failed(missing, vm, err)
	}
}

// readUntilAnswered reads the VM until Azure answers. The operation is over, and only the VM tells
// its result.
func (r *run) readUntilAnswered() (VM, error) {
	e := r.engine
	for failures := 0; ; failures++ {
		vm, err := e.Platform.VM(e.ctx, r.batch.vmID)
		if !operation.Transient(err) {
			return vm, err
		}
		if err := e.Clock.Pause(e.ctx, max(provisioner.RetryAfter(err), e.Clock.Backoff(failures))); err != nil {
			return VM{}, err
		}
	}
}

// preempted decides about requests whose operation was preempted. They go back to their line only
// if this process preempted them, for another disk. Otherwise another process decided about this
// VM, possibly a newer leader that fenced it: to attach again would undo that. A forced detach goes
// on as long as the disk is being detached.
func (r *run) preempted(requests []*request, vm VM, err error) {
	e := r.engine
	e.mu.Lock()
	ours := r.batch.preempted
	e.mu.Unlock()
	var again []*request
	for _, q := range requests {
		if ours || q.kind == operation.ForceDetach && r.detachingElsewhere(vm, q) {
			again = append(again, q)
			continue
		}
		e.finish(err, q)
	}
	e.putBack(again)
}

// blameless says that no request can be at fault.
func blameless(err error) bool {
	switch provisioner.KindOf(err) {
	case "", provisioner.Unauthorized, provisioner.RateLimited, provisioner.Unavailable:
		return true
	default:
		return false
	}
}

// refused finds the requests for which the call was refused, and ends them. It returns the requests
// for the next attempt, and the VM as it is now.
func (r *run) refused(requests []*request, vm VM, err error) ([]*request, VM, error) {
	if blameless(err) {
		return requests, vm, err
	}
	vm, readErr := r.engine.Platform.VM(r.engine.ctx, r.batch.vmID)
	if readErr != nil {
		return requests, vm, readErr
	}
	if provisioner.KindOf(err) == provisioner.InsufficientCapacity && r.slots == 0 && !vm.Gone {
		r.readSlots(vm)
	}
	rest := r.settle(vm, requests)
	if len(rest) < len(requests) {
		return rest, vm, nil // the VM has changed
	}
	rest, found := r.withoutFaulty(rest, vm, err)
	switch {
	case found:
		return rest, vm, nil
	case len(rest) == 1:
		r.engine.finish(r.refusal(rest[0], vm, err), rest...)
	case provisioner.KindOf(err) == provisioner.Conflict:
		// The VM is busy with an operation of another process, so Azure would refuse the halves
		// too.
		r.engine.finish(err, rest...)
	default:
		r.engine.split(rest)
	}
	return nil, vm, nil
}

// refusal is the error with which a request ends that Azure has refused alone.
func (r *run) refusal(q *request, vm VM, err error) error {
	if _, listed := vm.find(q.disk); !listed && !q.attaches() {
		return unproved(q, vm, err)
	}
	return ambiguous(q, err)
}

// readSlots waits for the number of data disks that the VM can have.
func (r *run) readSlots(vm VM) {
	limits, err := r.engine.Sizes.VM(r.engine.ctx, vm.Location, vm.Size)
	if err != nil {
		r.engine.Logger.V(1).Info("the number of data disks is not known", "vm", vm.ID, "size", vm.Size, "reason", err.Error())
		return
	}
	r.slots = int(limits.MaxDataDisks)
}

// failed finds the requests for which the operation failed after Azure had accepted it.
func (r *run) failed(requests []*request, vm VM, err error) {
	rest, found := r.withoutFaulty(requests, vm, err)
	switch {
	case r.batch.together > 1:
		r.engine.finish(&provisioner.Error{
			Kind:    provisioner.Conflict,
			Code:    operation.CodeOf(err),
			Err:     err,
			Message: "the call failed, possibly because of another disk in the batch: " + err.Error(),
		}, rest...)
	case len(rest) == 1 && !found:
		r.engine.finish(ambiguous(rest[0], err), rest...)
	case found:
		r.engine.putBack(rest)
	default:
		r.engine.split(rest)
	}
}
