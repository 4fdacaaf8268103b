package azure

import (
	"errors"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// flight is one departure of a VM's lane: one call, made again as long as somebody had to be left behind.
//
//	         ┌────────────── somebody was guilty, or the truth had moved ─────────────┐
//	         ▼                                                                        │
//	read ▶ settle ▶ call ─ refused ▶ whose fault? ─ nobody's, several on board ▶ halves go back to the queue
//	                  │                          └─ the only one on board ▶ refused
//	               accepted ▶ poll ▶ landed: succeeded │ preempted ▶ back to the queue │ failed ▶ as refused
type flight struct {
	engine *engine
	turn   turn
	vm     vmClient
	slots  int // data disks that the VM can have; 0 if that is not known

	resumed  bool // the call was made by an earlier process
	together int  // how many disks travelled in that

	boarded []*request // who boarded a forced one on its way
}

// run brings every request to its end, or back to the queue. It returns who boarded on the way.
func (f *flight) run(rest []*request, seen view, err error) (boarded []*request) {
	for {
		if err != nil {
			f.finishAll(rest, err)
			return f.boarded
		}
		if rest = f.settle(seen, rest); len(rest) == 0 {
			return f.boarded
		}
		if f.turn.forced && f.onTheirWay(rest, seen) {
			if rest, seen, err = f.watchOut(rest, seen); len(rest) == 0 || err != nil {
				continue
			}
		}
		var p poller
		if p, err = f.vm.attachDetach(f.engine.cloud.ctx, body(rest)); err == nil {
			f.accept(p, rest)
			return f.boarded
		}
		err = translate(err, f.engine.cloud.clock.Now(), "change the disks of VM %s", f.vm.Name)
		rest, seen, err = f.refused(rest, seen, err)
	}
}

func (f *flight) finishAll(requests []*request, err error) {
	for _, r := range requests {
		f.engine.finish(r, err)
	}
}

// settle ends the requests for which the VM's own list is the answer, and returns the others.
func (f *flight) settle(seen view, requests []*request) []*request {
	free, leaving := f.slots-len(seen.DataDisks), 0
	for _, r := range requests {
		if _, listed := seen.find(r.disk); listed && r.verb != verbAttach {
			leaving++
		}
	}
	var keep, later []*request
	for _, r := range requests {
		a, listed := seen.find(r.disk)
		attach := r.verb == verbAttach
		switch {
		case seen.gone && attach:
			f.engine.finish(r, noVM(r.params.VMID))
		case !attach && !listed:
			f.engine.finish(r, nil)
		case attach && listed && a.Detaching:
			f.engine.finish(r, provisioner.Errorf(provisioner.Conflict, "disk %s is being detached from VM %s", r.params.DiskID, f.vm.Name))
		case attach && listed && seen.state == stateSucceeded:
			f.engine.finish(r, nil)
		case attach && !listed && f.slots > 0 && free <= 0 && leaving > 0:
			leaving--
			later = append(later, r)
		case attach && !listed && f.slots > 0 && free <= 0:
			f.engine.finish(r, provisioner.Errorf(provisioner.InsufficientCapacity,
				"disk %s does not fit: VM %s can have %d data disks and has %d", r.params.DiskID, f.vm.Name, f.slots, len(seen.DataDisks)))
		case attach && !listed:
			free--
			keep = append(keep, r)
		default:
			// Listed, and somebody's operation is at work on the VM: asking once more ends after it.
			keep = append(keep, r)
		}
	}
	f.engine.putBack(later)
	return keep
}

// body is the call for the requests.
func body(requests []*request) armcompute.AttachDetachDataDisksRequest {
	var b armcompute.AttachDetachDataDisksRequest
	for _, r := range requests {
		id := r.params.DiskID
		switch r.verb {
		case verbAttach:
			in := &armcompute.DataDisksToAttach{DiskID: &id}
			if r.params.CachingMode != "" {
				caching := armcompute.CachingTypes(r.params.CachingMode)
				in.Caching = &caching
			}
			if r.params.EncryptionSetID != "" {
				set := r.params.EncryptionSetID
				in.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &set}
			}
			if r.params.WriteAccelerator {
				on := true
				in.WriteAcceleratorEnabled = &on
			}
			b.DataDisksToAttach = append(b.DataDisksToAttach, in)
		case verbDetach, verbForce:
			out := &armcompute.DataDisksToDetach{DiskID: &id}
			if r.verb == verbForce {
				force := armcompute.DiskDetachOptionTypesForceDetach
				out.DetachOption = &force
			}
			b.DataDisksToDetach = append(b.DataDisksToDetach, out)
		}
	}
	return b
}

// accept answers the callers and follows the operation to its end.
func (f *flight) accept(p poller, requests []*request) {
	l := f.followed(p, requests)
	if f.turn.forced {
		requests, l = f.whileOthersBoard(requests, l)
	}
	f.landed(requests, l.wait(f.engine.cloud.ctx))
}

// followed answers the callers of a call that was accepted.
func (f *flight) followed(p poller, requests []*request) *lro {
	c := f.engine.cloud
	k := kindDetach
	for _, r := range requests {
		if r.verb == verbAttach {
			k = kindAttach
		}
	}
	if f.turn.forced {
		k = kindForceDetach
	}
	c.metrics.joined.Observe(float64(len(requests)))
	l := c.follow(k, f.vm.String(), p, false)
	for _, r := range requests {
		if l.token != "" {
			f.engine.accepted(r, token{
				Kind: map[verb]kind{verbAttach: kindAttach, verbDetach: kindDetach, verbForce: kindForceDetach}[r.verb],
				ID:   r.params.VMID, DiskID: r.params.DiskID, Shared: r.shared, SDK: l.token, Together: len(requests),
			}.text())
		}
	}
	return l
}

// read reads the VM however long it takes until the platform answers: the operation is over, and only the VM tells what came of it.
func (f *flight) read() (view, error) {
	c := f.engine.cloud
	for failures := 0; ; failures++ {
		seen, err := f.vm.get(c.ctx, false)
		if err == nil || !c.unheard(err) {
			return seen, err
		}
		if err := c.sleep(c.ctx, max(provisioner.RetryAfter(err), c.backoff(failures))); err != nil {
			return view{}, err
		}
	}
}

// landed deals with the end of an operation.
func (f *flight) landed(requests []*request, err error) {
	if err == nil || f.engine.cloud.ctx.Err() != nil {
		f.finishAll(requests, err)
		return
	}
	seen, readErr := f.read()
	if readErr != nil {
		f.finishAll(requests, errors.Join(err, readErr))
		return
	}
	var missing []*request
	for _, r := range requests {
		if reached(seen, r) {
			f.engine.finish(r, nil)
			continue
		}
		missing = append(missing, r)
	}
	switch {
	case len(missing) == 0:
	case wasPreempted(err) || codeOf(err) == codeForgotten:
		f.goOn(missing, seen, err)
	case blameless(err):
		f.finishAll(missing, err)
	default:
		f.failed(missing, seen, err)
	}
}

// reached says whether what was asked for is so. A VM whose update is under way, or failed, also lists disks that it does not have.
func reached(seen view, r *request) bool {
	a, listed := seen.find(r.disk)
	if r.verb != verbAttach {
		return !listed
	}
	return listed && !a.Detaching && seen.state == stateSucceeded
}

// goOn decides about requests whose operation was preempted. They go on only where this process itself
// preempted them, for another disk's sake. Otherwise somebody else decided about this VM, possibly a newer leader
// who fenced it off: to attach again would undo that. A forced detach goes on as long as the disk is on its way out.
func (f *flight) goOn(requests []*request, seen view, err error) {
	e := f.engine
	e.mu.Lock()
	ours := !f.resumed && !f.turn.forced && e.preempted[f.turn.vm] || len(f.boarded) > 0
	var again []*request
	for _, r := range requests {
		switch {
		case ours || r.verb == verbForce && f.onTheirWay([]*request{r}, seen):
			again = append(again, r)
		default:
			e.finishLocked(r, err)
		}
	}
	e.mu.Unlock()
	e.putBack(again)
}

// blameless says that no request can be at fault.
func blameless(err error) bool {
	switch provisioner.KindOf(err) {
	case "", provisioner.Unauthorized, provisioner.RateLimited, provisioner.Unavailable:
		return true
	}
	return false
}

// refused finds out for whose sake the call was refused, and ends those requests. It returns who shall travel in
// the next attempt, and the VM as it is now.
func (f *flight) refused(requests []*request, seen view, err error) ([]*request, view, error) {
	if blameless(err) {
		return requests, seen, err
	}
	seen, readErr := f.vm.get(f.engine.cloud.ctx, false)
	if readErr != nil {
		return requests, seen, readErr
	}
	if provisioner.KindOf(err) == provisioner.InsufficientCapacity && f.slots == 0 && !seen.gone {
		f.slots = f.engine.slotsOf(seen) // now it is worth waiting for
	}
	rest := f.settle(seen, requests)
	if len(rest) < len(requests) {
		return rest, seen, nil // the truth had moved
	}
	rest, found := f.dropGuilty(rest, seen, err)
	switch {
	case found:
		return rest, seen, nil
	case len(rest) == 1:
		f.engine.finish(rest[0], ambiguous(rest[0], err))
	case provisioner.KindOf(err) == provisioner.Conflict:
		// The VM itself is busy with what is none of ours; halves would be refused as well.
		f.finishAll(rest, err)
	default:
		f.engine.split(rest)
	}
	return nil, seen, nil
}

// failed finds out for whose sake the operation failed after it had been accepted.
func (f *flight) failed(requests []*request, seen view, err error) {
	rest, found := f.dropGuilty(requests, seen, err)
	switch {
	case len(rest) == 1 && f.resumed && f.together > 1:
		f.engine.finish(rest[0], &provisioner.Error{
			Kind: provisioner.Conflict, Code: codeOf(err), Err: err,
			Message: "the call failed, possibly for another disk's sake: " + err.Error(),
		})
	case len(rest) == 1 && !found:
		f.engine.finish(rest[0], ambiguous(rest[0], err))
	case found:
		f.engine.putBack(rest)
	default:
		f.engine.split(rest)
	}
}

// ambiguous narrows an error whose code means several things, when the truth has not told: a shared disk with a free
// share is refused only because another attach of it is under way.
func ambiguous(r *request, err error) error {
	if codeOf(err) != codeConflictingUserInput || !r.shared {
		return err
	}
	return &provisioner.Error{Kind: provisioner.Conflict, Code: codeConflictingUserInput, Message: err.Error(), Err: err}
}

// dropGuilty reads the disks and ends the requests that cannot be as things are. It returns the others, and whether there was any.
func (f *flight) dropGuilty(requests []*request, seen view, err error) ([]*request, bool) {
	reasons := make([]*provisioner.Error, len(requests))
	var all sync.WaitGroup
	some := make(chan struct{}, 8)
	for i, r := range requests {
		if r.verb != verbAttach {
			continue
		}
		all.Go(func() {
			some <- struct{}{}
			defer func() { <-some }()
			reasons[i] = f.whyNot(r, seen)
		})
	}
	all.Wait()
	var rest []*request
	for i, r := range requests {
		if reasons[i] == nil {
			rest = append(rest, r)
			continue
		}
		if len(requests) == 1 {
			// The platform's words can only be about this one.
			reasons[i].Message += " (" + err.Error() + ")"
			reasons[i].Code, reasons[i].RetryAfter, reasons[i].Err = codeOf(err), provisioner.RetryAfter(err), err
		}
		f.engine.finish(r, reasons[i])
	}
	return rest, len(rest) < len(requests)
}

// whyNot returns what forbids an attach, by the disk and the VM as they are; nil if nothing that is known of does.
func (f *flight) whyNot(r *request, seen view) *provisioner.Error {
	d, err := f.engine.cloud.readDisk(f.engine.cloud.ctx, r.params.DiskID)
	if errors.Is(err, provisioner.NotFound) {
		return provisioner.Errorf(provisioner.NotFound, "disk %s does not exist", r.params.DiskID)
	}
	if err != nil {
		return nil
	}
	var others []string
	for _, vm := range d.AttachedTo {
		if key(vm) != r.vm {
			others = append(others, vm)
		}
	}
	id, zoneRedundant := r.params.DiskID, strings.HasSuffix(d.SKUName, "_ZRS")
	switch {
	case d.state == stateDeleting:
		return provisioner.Errorf(provisioner.NotFound, "disk %s is being deleted", id)
	case !strings.EqualFold(d.Location, seen.Location):
		return provisioner.Errorf(provisioner.InvalidArgument, "disk %s is in %s, VM %s in %s", id, d.Location, f.vm.Name, seen.Location)
	case !zoneRedundant && d.Zone != seen.Zone:
		return provisioner.Errorf(provisioner.InvalidArgument, "disk %s is in zone %q, VM %s in zone %q", id, d.Zone, f.vm.Name, seen.Zone)
	case d.MaxShares > 1 && r.params.CachingMode != "" && r.params.CachingMode != "None":
		return provisioner.Errorf(provisioner.InvalidArgument, "disk %s is shared and cannot be cached as %s", id, r.params.CachingMode)
	case d.MaxShares <= 1 && len(others) > 0:
		return provisioner.Errorf(provisioner.FailedPrecondition, "disk %s is attached to %s", id, others[0])
	case len(others) >= int(d.MaxShares):
		return provisioner.Errorf(provisioner.InsufficientCapacity, "all %d shares of disk %s are taken", d.MaxShares, id)
	case d.state == stateCreating || d.state == stateUpdating:
		return provisioner.Errorf(provisioner.Conflict, "disk %s is being changed: %s", id, d.state)
	}
	return nil
}
