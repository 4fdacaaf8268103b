package batch

import (
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// queues decides which requests are sent in which call. It does no I/O and has no clock. Its caller
// serializes the calls of its methods.
//
// A VM has two lines: one for ordinary requests, and one for forced detaches. At most one batch of
// each line is in flight:
//
//	idle ──start──▶ started ──fill──▶ in flight ──end──▶ idle
//	                   └──fill finds no request that can be sent──▶ idle
//
// start begins a batch for each idle line that has a request that can be sent. The caller then
// reads the VM, and fill takes all requests that can be sent at that moment. Other requests wait
// until the line is idle.
//
// Three rules say which requests can be sent together. They are the first requests for their disks:
// requests for one disk and VM keep their order, and are never in one batch. They are of one group;
// see split. And a shared disk is attached to one VM at a time.
//
// There is no deadlock: an attach holds its shared disk from fill to end and only while its batch
// is in flight, so no request holds a disk while it waits for something else. Every batch ends;
// then start looks at every line again. A VM does not reserve a shared disk while its line is busy,
// which would be holding and waiting. Other VMs may overtake it, but at most as many as the disk
// has shares.
//
// A forced batch does not wait for an ordinary batch of its VM: Azure replaces the call in flight. New
// ordinary batches, and later forced detaches, wait until the forced one has ended.
type queues struct {
	vms            map[string]*vmQueue
	inFlightShared map[string]int // by shared disk: attaches in flight
	group          int            // the last group that was given out
}

type vmQueue struct {
	ordinary, forced line
	resumed          int // calls in flight that an earlier process made
}

type line struct {
	waiting []*request
	batch   *batch // nil if the line is idle
}

// batch is the requests that are sent in one call.
type batch struct {
	vm, vmID string
	forced   bool
	requests []*request // empty until fill

	preempted bool // a forced batch of this process takes the place of the call
	together  int  // how many disks were in a call that an earlier process made; 0 for any other
	began     time.Time
	filled    time.Time // when its requests were chosen
	quotaAt   time.Time // when the VM's quota allows the call
}

func newQueues() *queues {
	return &queues{vms: map[string]*vmQueue{}, inFlightShared: map[string]int{}}
}

func (q *queues) vm(key string) *vmQueue {
	v, ok := q.vms[key]
	if !ok {
		v = &vmQueue{}
		q.vms[key] = v
	}
	return v
}

func (v *vmQueue) line(forced bool) *line {
	if forced {
		return &v.forced
	}
	return &v.ordinary
}

func (q *queues) lineOf(r *request) *line { return q.vm(r.vm).line(r.kind == operation.ForceDetach) }

// add puts a request at the end of its line.
func (q *queues) add(r *request) {
	l := q.lineOf(r)
	l.waiting = append(l.waiting, r)
}

// putBack returns requests of one batch to the front of their line, in their order.
func (q *queues) putBack(requests ...*request) {
	if len(requests) == 0 {
		return
	}
	for _, r := range requests {
		q.release(r)
		r.state = queued
	}
	l := q.lineOf(requests[0])
	l.waiting = append(slices.Clone(requests), l.waiting...)
}

// split puts requests back to be sent in two calls, each apart from all other requests.
func (q *queues) split(requests ...*request) {
	for i, r := range requests {
		r.group = q.group + 1
		if i >= len(requests)/2 {
			r.group = q.group + 2
		}
	}
	q.group += 2
	q.putBack(requests...)
}

// withdraw removes a queued request; it reports whether it did.
func (q *queues) withdraw(r *request) bool {
	if r.state != queued {
		return false
	}
	l := q.lineOf(r)
	l.waiting = slices.DeleteFunc(l.waiting, func(other *request) bool { return other == r })
	q.forget(r.vm)
	return true
}

// start begins the batches that can begin.
func (q *queues) start() []*batch {
	var started []*batch
	begin := func(vm string, forced bool) {
		l := q.vm(vm).line(forced)
		l.batch = &batch{
			vm:     vm,
			vmID:   l.waiting[0].params.VMID,
			forced: forced,
		}
		started = append(started, l.batch)
	}
	for vm, v := range q.vms {
		if v.forced.batch == nil && len(v.forced.waiting) > 0 {
			begin(vm, true)
		}
		if v.ordinary.batch == nil && len(q.chosen(v, false)) > 0 {
			begin(vm, false)
		}
	}
	return started
}

// mayUpdate reports whether ordinary calls may be made.
func (v *vmQueue) mayUpdate() bool { return v.forced.batch == nil && v.resumed == 0 }

// chosen returns the requests of a line that could be sent together now.
func (q *queues) chosen(v *vmQueue, forced bool) []*request {
	if !forced && !v.mayUpdate() {
		return nil
	}
	var chosen []*request
	seen := map[string]bool{}
	for _, r := range v.line(forced).waiting {
		first := !seen[r.disk]
		seen[r.disk] = true
		blocked := r.attaches() && r.params.Shared && q.inFlightShared[r.disk] > 0
		if first && !blocked && (len(chosen) == 0 || chosen[0].group == r.group) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// fill takes the requests for a batch whose VM has been read. If there is none, the batch has
// ended.
func (q *queues) fill(b *batch) {
	v := q.vm(b.vm)
	q.take(b, q.chosen(v, b.forced))
	if len(b.requests) == 0 {
		q.end(b)
	}
}

func (q *queues) take(b *batch, chosen []*request) {
	l := q.vm(b.vm).line(b.forced)
	l.waiting = slices.DeleteFunc(l.waiting, func(r *request) bool { return slices.Contains(chosen, r) })
	b.requests = append(b.requests, chosen...)
	for _, r := range chosen {
		q.hold(r)
	}
}

// end ends a batch, unless fill has ended it. Its requests that were not put back are over.
func (q *queues) end(b *batch) {
	if l := q.vm(b.vm).line(b.forced); l.batch == b {
		l.batch = nil
	}
	for _, r := range b.requests {
		if r.state != queued {
			q.release(r)
		}
	}
	q.forget(b.vm)
}

// beginResumed records a call in flight that an earlier process made.
func (q *queues) beginResumed(r *request) {
	q.vm(r.vm).resumed++
	q.hold(r)
}

// endResumed records that it has ended.
func (q *queues) endResumed(r *request) {
	q.vm(r.vm).resumed--
	q.release(r)
	q.forget(r.vm)
}

// ordinaryInFlight returns the ordinary batch of a VM that is in flight, or nil.
func (q *queues) ordinaryInFlight(vm string) *batch {
	if v, ok := q.vms[vm]; ok && v.ordinary.batch != nil && len(v.ordinary.batch.requests) > 0 {
		return v.ordinary.batch
	}
	return nil
}

// hold puts a request in flight.
func (q *queues) hold(r *request) {
	r.state = inFlight
	if r.attaches() && r.params.Shared {
		r.holdsDisk = true
		q.inFlightShared[r.disk]++
	}
}

// release lets other VMs attach the request's disk.
func (q *queues) release(r *request) {
	if !r.holdsDisk {
		return
	}
	r.holdsDisk = false
	if q.inFlightShared[r.disk]--; q.inFlightShared[r.disk] == 0 {
		delete(q.inFlightShared, r.disk)
	}
}

// forget drops the queue of a VM that has neither requests nor calls.
func (q *queues) forget(vm string) {
	v := q.vms[vm]
	if len(v.ordinary.waiting)+len(v.forced.waiting) == 0 && v.ordinary.batch == nil && v.forced.batch == nil &&
		v.resumed == 0 {
		delete(q.vms, vm)
	}
}
