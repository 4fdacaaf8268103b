package batch

import (
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// watchInterval is how often a VM is read to see the end of another process's detach.
const watchInterval = time.Second

// afterAnswers reads the VM after Azure has answered the requests.
func (r *run) afterAnswers(requests []*request) (VM, error) {
	for _, q := range requests {
		<-q.answered
	}
	return r.engine.Platform.VM(r.engine.ctx, r.batch.vmID)
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
// returns the requests that are left for a call.
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
		if err := e.Clock.Pause(e.ctx, watchInterval); err != nil {
			return requests, vm, err
		}
		now, err := e.Platform.VM(e.ctx, r.batch.vmID)
		if err != nil {
			if !operation.Transient(err) {
				return requests, vm, err
			}
			continue
		}
		vm = now
		requests = r.settle(vm, requests)
		if vm.State != operation.StateUpdating {
			break // before that, no disk is proved to be off the VM
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
