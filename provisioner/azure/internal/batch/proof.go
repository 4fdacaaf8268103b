package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// parallelReads is how many disks are read at once.
const parallelReads = 8

// eachAtOnce calls do for each request, for several at once.
func eachAtOnce(requests []*request, do func(i int, q *request)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, parallelReads)
	for i, q := range requests {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			do(i, q)
		})
	}
	all.Wait()
}

// detached returns the requests for a detach whose disk is proved to be off the VM. err has the
// requests whose disk could not be read.
func (r *run) detached(vm VM, requests []*request) (proved map[*request]bool, err map[*request]error) {
	proved, err = map[*request]bool{}, map[*request]error{}
	var unlisted []*request
	for _, q := range requests {
		if _, listed := vm.find(q.disk); !listed && !q.attaches() {
			unlisted = append(unlisted, q)
		}
	}
	var mu sync.Mutex
	eachAtOnce(unlisted, func(_ int, q *request) {
		is, fault := r.isOff(vm, q)
		mu.Lock()
		defer mu.Unlock()
		if proved[q] = is; fault != nil {
			err[q] = fault
		}
	})
	return proved, err
}

// isOff reports whether the disk of a detach, which the VM does not list, is off the VM.
//
// The VM's list is what the VM is to have, not what it has. Azure may take a disk off the list when
// it accepts the detach, and keep it off when the detach fails, although the host, which does not
// answer, still lets the VM write. So the list alone proves nothing:
//
//	VM           disk                            forced detach   detach
//	gone         -                               proved          proved
//	Succeeded    does not name the VM, or gone   proved          proved
//	Succeeded    names the VM                    no              no
//	other        does not name the VM, or gone   no              proved
//	other        names the VM                    no              no
//
// A forced detach is a proof for a hand-over. A detach follows one: there what the disk names is
// enough, so that a VM that another client's operation leaves Failed does not keep an object for
// ever.
func (r *run) isOff(vm VM, q *request) (bool, error) {
	switch {
	case vm.Gone:
		return true, nil
	case q.kind == operation.ForceDetach && vm.State != operation.StateSucceeded:
		return false, nil
	}
	disk, err := r.engine.Platform.Disk(r.engine.ctx, q.params.DiskID)
	if errors.Is(err, provisioner.NotFound) {
		return true, nil
	}
	return err == nil && !slices.ContainsFunc(disk.AttachedTo, func(id string) bool { return operation.Key(id) == q.vm }), err
}

const (
	// lookInterval is the least time between two reads of a VM whose operation may not be polled
	// yet, of a quota of 12 reads a minute.
	lookInterval = time.Second
	// readsForFences and readsForAll are how many of the 36 reads are left for what must read the
	// VM: looks of fences leave the first, all others the second.
	readsForFences, readsForAll = 6, 12
)

// look finds out by reads of the VM and of the disks whether a call has done what the requests ask
// for. It rests on the same proofs as everything else: see isOff and VM.has. A call that a later one
// of the batch replaces is not looked for any more.
func (r *run) look(requests []*request) *operation.Look {
	left, call := readsForAll, r.calls.Add(1)
	if slices.ContainsFunc(requests, func(q *request) bool { return q.kind == operation.ForceDetach }) {
		left = readsForFences
	}
	return &operation.Look{
		Every: lookInterval,
		Proved: func(ctx context.Context) bool {
			if r.calls.Load() != call || !r.engine.Platform.HasReads(r.batch.vmID, left) {
				return false
			}
			vm, err := r.engine.Platform.VM(ctx, r.batch.vmID)
			if err != nil || !vm.Gone && vm.State != operation.StateSucceeded {
				return false
			}
			off, _ := r.detached(vm, requests)
			on := r.attached(vm, requests)
			return !slices.ContainsFunc(requests, func(q *request) bool { return !off[q] && !on[q] })
		},
	}
}

// attached returns the attaches whose disk the VM has: it lists the disk, is Succeeded, and the disk
// names it. The list is not enough: it has a disk from the acceptance of the attach on, and between
// two operations of the VM its state may be Succeeded. No read proves an attach whose operation has
// failed: another operation may have made the VM Succeeded, and it is not recorded when Azure
// removes the VM from what the disk names.
func (r *run) attached(vm VM, requests []*request) map[*request]bool {
	proved := map[*request]bool{}
	listed := slices.DeleteFunc(slices.Clone(requests), func(q *request) bool { return !q.attaches() || q.failed || !vm.has(q) })
	var mu sync.Mutex
	eachAtOnce(listed, func(_ int, q *request) {
		disk, err := r.engine.Platform.Disk(r.engine.ctx, q.params.DiskID)
		mu.Lock()
		defer mu.Unlock()
		proved[q] = err == nil && slices.ContainsFunc(disk.AttachedTo, func(id string) bool { return operation.Key(id) == q.vm })
	})
	return proved
}

// unproved is the end of a detach whose disk the VM does not list, where it is not known whether
// the disk is off the VM. cause is Azure's refusal of a call, or nil if there was none.
func unproved(q *request, vm VM, cause error) error {
	text := "it is not proved that the detach is complete: the VM does not list the disk"
	if vm.State == operation.StateSucceeded {
		text += ", and the disk names the VM in managedBy or managedByExtended"
	} else {
		text += ", and the VM's state is " + vm.State
	}
	e := provisioner.Errorf(provisioner.Conflict, "detach disk %s from VM %s: %s", q.params.DiskID, q.params.VMID, text)
	if vm.State == operation.StateFailed {
		e.Message += "; if it remains so, run az vm reapply"
	}
	if cause != nil {
		e.Message += " (" + cause.Error() + ")"
		e.Code, e.RetryAfter, e.Err = operation.CodeOf(cause), provisioner.RetryAfter(cause), cause
	}
	return e
}
