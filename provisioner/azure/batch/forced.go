package batch

import (
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
)

// watchInterval is how often a VM is read to see the end of another process's detach.
const watchInterval = time.Second

// whileOthersJoin follows a forced call while other requests may join, for half of the time that it
// takes. When requests join, the call is made again for the whole batch, and Azure replaces the
// call in flight. The first requests so wait at most half as long again. The pause before each
// further call doubles, so that there are few of them. It returns the requests of the last call,
// and its operation.
func (r *run) whileOthersJoin(requests []*request, op *operation.Operation) ([]*request, *operation.Operation) {
	e, began, next := r.engine, r.engine.Clock.Now(), time.Duration(0)
	defer r.close()
	closing := e.Clock.NewTimer(operation.Usual(operation.ForceDetach, 1).From / 2)
	defer closing.Stop()
	for {
		if !r.awaitJoin(op, closing.C(), began.Add(next)) {
			return requests, op
		}
		if e.Platform.UpdateDelay(r.batch.vmID) > 0 {
			return requests, op // the wait for the quota would take longer than a call of its own
		}
		vm, joined, err := r.join()
		if err != nil {
			e.putBack(joined)
			return requests, op
		}
		if joined = r.settle(vm, joined); len(joined) == 0 {
			continue
		}
		all := append(r.settle(vm, requests), joined...)
		again, err := r.call(all)
		if err != nil {
			e.Logger.V(1).Info("further forced detaches wait for the call in flight", "vm", r.batch.vmID, "error", err.Error())
			e.putBack(joined)
			return requests, op
		}
		requests, op = all, again
		r.accepted(requests, op)
		next = 2 * e.Clock.Since(began)
	}
}

// awaitJoin waits until a request could join and until the time of the next call; false if the
// operation ends or the batch closes before.
func (r *run) awaitJoin(op *operation.Operation, closing <-chan time.Time, from time.Time) bool {
	e := r.engine
	select {
	case <-r.batch.changed:
	case <-op.Done():
		return false
	case <-closing:
		return false
	case <-e.ctx.Done():
		return false
	}
	timer := e.Clock.NewTimer(max(from.Sub(e.Clock.Now()), 0))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-op.Done():
	case <-closing:
	case <-e.ctx.Done():
	}
	return false
}

// join reads the VM and adds all requests that have arrived until then.
func (r *run) join() (VM, []*request, error) {
	e := r.engine
	vm, err := e.Platform.VM(e.ctx, r.batch.vmID)
	e.mu.Lock()
	joined := e.queues.join(r.batch)
	sending := e.supersede(r.batch.vm, joined)
	e.mu.Unlock()
	if len(sending) > 0 && err == nil {
		vm, err = r.afterAnswers(sending)
	}
	return vm, joined, err
}

// afterAnswers reads the VM after Azure has answered the requests.
func (r *run) afterAnswers(requests []*request) (VM, error) {
	for _, q := range requests {
		<-q.answered
	}
	return r.engine.Platform.VM(r.engine.ctx, r.batch.vmID)
}

// close lets no more requests join.
func (r *run) close() {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	r.batch.open = false
}

// detachingElsewhere reports whether an operation in flight may detach all of the disks that is not
// an ordinary one of this process. The VM shows the disk as being detached, or not any more. An
// ordinary detach waits for the guest, which may be dead.
func (r *run) detachingElsewhere(vm VM, requests ...*request) bool {
	for _, q := range requests {
		if a, listed := vm.find(q.disk); listed && !a.Detaching || r.engine.changes(q) {
			return false
		}
	}
	return vm.State == operation.StateUpdating
}

// watchDetaching watches disks that an unknown operation detaches, most likely the forced detach of
// an earlier process that was killed before it recorded the operation. Another call would replace
// that operation and take the whole time again, so it gets the least time of a forced detach. It
// returns the requests that are left for a call, including those that joined.
func (r *run) watchDetaching(requests []*request, vm VM) ([]*request, VM, error) {
	e := r.engine
	for _, q := range requests {
		e.accept(q, operation.Token{
			Kind:   operation.ForceDetach,
			ID:     q.params.VMID,
			DiskID: q.params.DiskID,
			Shared: q.params.Shared,
		}.Text())
	}
	until := e.Clock.Now().Add(operation.Usual(operation.ForceDetach, 1).From)
	for e.Clock.Now().Before(until) {
		timer, woken := e.Clock.NewTimer(watchInterval), false
		select {
		case <-e.ctx.Done():
			timer.Stop()
			return requests, vm, e.ctx.Err()
		case <-r.batch.changed:
			woken = true
		case <-timer.C():
		}
		timer.Stop()
		now, joined, err := r.join()
		requests = append(requests, joined...)
		if err != nil {
			if !operation.Transient(err) {
				return requests, vm, err
			}
			continue
		}
		vm = now
		requests = r.settle(vm, requests)
		if len(requests) == 0 || woken && !r.detachingElsewhere(vm, requests...) || vm.State != operation.StateUpdating {
			break
		}
	}
	return requests, vm, nil
}

// changes reports whether an ordinary call of this process for the same disk is in flight.
func (e *Engine) changes(r *request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.queues.ordinaryInFlight(r.vm)
	return b != nil && slices.ContainsFunc(b.requests, func(other *request) bool { return other.disk == r.disk })
}

// supersede gives forced detaches precedence over earlier attaches of the same disks. Attaches in
// the line end. Attaches in flight are returned: once Azure has answered them, the VM has to be
// read again. The caller holds mu.
func (e *Engine) supersede(vm string, forced []*request) (sending []*request) {
	for _, f := range forced {
		for _, r := range slices.Clone(e.queues.vm(vm).ordinary.waiting) {
			if r.disk == f.disk && r.attaches() && r.serial < f.serial && e.queues.withdraw(r) {
				e.finishLocked(r, superseded(r))
			}
		}
		b := e.queues.ordinaryInFlight(vm)
		if b == nil {
			continue
		}
		for _, r := range b.requests {
			if r.disk == f.disk && r.attaches() {
				r.superseded = true
				sending = append(sending, r)
			}
		}
	}
	return sending
}

func superseded(r *request) error {
	return &provisioner.Error{
		Kind:    provisioner.Conflict,
		Code:    operation.CodeDataDisksForceDetached,
		Message: "attach disk " + r.params.DiskID + " to VM " + r.params.VMID + ": a forced detach of the disk takes precedence",
	}
}
