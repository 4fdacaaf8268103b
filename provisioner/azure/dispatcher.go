package azure

import "slices"

// dispatcher decides which requests travel in which call. It is pure: it does no I/O, has no
// clock, and its caller guards it.
//
// Each VM has a lane with a queue. A departure of a lane goes through
//
//	idle ──startable──▶ reading ──take──▶ flying ──end──▶ idle
//	                       └──take: nobody can go──▶ idle
//
// startable names idle lanes with somebody who can go; the caller then reads the VM, and take
// fills the call with all who can go at that moment. While a lane is not idle the others wait.
//
// Who can go: the first request for each disk (requests for one disk of one VM keep their order
// and never share a call); the requests of one group (see split); and an attach of a shared disk
// only if no attach of that disk is flying anywhere.
//
// There is no deadlock: a shared disk is held from take to end and only by a call that is flying, so nobody
// holds anything while waiting for something else. Whatever flies ends; then every lane is looked at
// again, and the first request of some queue can go. A VM does not keep a shared disk reserved while
// its lane is busy, since that would be holding and waiting; it may be overtaken, by at most
// as many VMs as the disk has shares.
//
// Forced detaches have a lane of their own beside the VM's: they depart although a call of that VM
// is flying. New ordinary calls wait until the forced one has ended. Who comes while it is flying may board it until boarding
// is shut: the call is then made once more for everybody, and takes the place of the one in flight. The disks of a lost
// node are so cut off in about the time of one call, and nobody waits for one of them to end before the next begins.
type dispatcher struct {
	lanes map[string]*lane
	holds map[string]int // shared disk -> attaches of it that are flying
	group int            // the last group that was given out
}

type verb string

const (
	verbAttach verb = "attach"
	verbDetach verb = "detach"
	verbForce  verb = "force-detach"
)

// entry is a request as the dispatcher sees it.
type entry struct {
	vm, disk string // keys: resource IDs in lower case
	verb     verb
	shared   bool
	group    int // 0: travels with anybody of group 0
	held     bool
	request  *request
}

type phase int

const (
	idle phase = iota
	reading
	flying
)

type lane struct {
	queue, forced []*entry
	normal, force phase
	aboard        []*entry // of the forced call, as long as others may board it
	foreign       int      // calls in flight that were begun by an earlier process
}

// turn is a departure of a lane.
type turn struct {
	vm     string
	forced bool
}

func newDispatcher() *dispatcher {
	return &dispatcher{lanes: map[string]*lane{}, holds: map[string]int{}}
}

func (d *dispatcher) lane(vm string) *lane {
	l, ok := d.lanes[vm]
	if !ok {
		l = &lane{}
		d.lanes[vm] = l
	}
	return l
}

// add puts a request at the end of its VM's queue.
func (d *dispatcher) add(e *entry) {
	l := d.lane(e.vm)
	if e.verb == verbForce {
		l.forced = append(l.forced, e)
		return
	}
	l.queue = append(l.queue, e)
}

// putBack puts requests that were taken at the front of the queue again, in their order.
func (d *dispatcher) putBack(entries ...*entry) {
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		d.release(e)
	}
	l := d.lane(entries[0].vm)
	if entries[0].verb == verbForce {
		l.forced = append(slices.Clone(entries), l.forced...)
		return
	}
	l.queue = append(slices.Clone(entries), l.queue...)
}

// split puts requests back that shall travel in two calls, each apart from everybody else.
func (d *dispatcher) split(entries ...*entry) {
	for i, e := range entries {
		e.group = d.group + 1
		if i >= len(entries)/2 {
			e.group = d.group + 2
		}
	}
	d.group += 2
	d.putBack(entries...)
}

// withdraw removes a request that has not been taken; it says whether it did.
func (d *dispatcher) withdraw(e *entry) bool {
	l, ok := d.lanes[e.vm]
	if !ok {
		return false
	}
	before := len(l.queue) + len(l.forced)
	same := func(other *entry) bool { return other == e }
	l.queue, l.forced = slices.DeleteFunc(l.queue, same), slices.DeleteFunc(l.forced, same)
	removed := len(l.queue)+len(l.forced) < before
	d.forget(e.vm)
	return removed
}

// startable returns the departures that can begin, and marks their lanes as reading.
func (d *dispatcher) startable() []turn {
	var turns []turn
	for vm, l := range d.lanes {
		if l.force == idle && len(l.forced) > 0 {
			l.force = reading
			turns = append(turns, turn{vm: vm, forced: true})
		}
		if l.normal == idle && l.force == idle && l.foreign == 0 && len(d.canGo(l)) > 0 {
			l.normal = reading
			turns = append(turns, turn{vm: vm})
		}
	}
	return turns
}

// canGo returns who could travel together now.
func (d *dispatcher) canGo(l *lane) []*entry {
	var chosen []*entry
	seen := map[string]bool{}
	for _, e := range l.queue {
		first := !seen[e.disk]
		seen[e.disk] = true
		blocked := e.verb == verbAttach && e.shared && d.holds[e.disk] > 0
		if first && !blocked && (len(chosen) == 0 || chosen[0].group == e.group) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// take returns who travels in the call for which the VM has been read, or nobody.
func (d *dispatcher) take(t turn) []*entry {
	l := d.lane(t.vm)
	if t.forced {
		chosen := l.sameGroup()
		l.forced = slices.DeleteFunc(l.forced, func(e *entry) bool { return slices.Contains(chosen, e) })
		l.aboard = slices.Clone(chosen)
		if l.force = flying; len(chosen) == 0 {
			l.force = idle
			d.forget(t.vm)
		}
		return chosen
	}
	var chosen []*entry
	if l.force == idle && l.foreign == 0 {
		chosen = d.canGo(l)
	}
	if len(chosen) == 0 {
		l.normal = idle
		d.forget(t.vm)
		return nil
	}
	l.normal = flying
	l.queue = slices.DeleteFunc(l.queue, func(e *entry) bool { return slices.Contains(chosen, e) })
	for _, e := range chosen {
		d.hold(e)
	}
	return chosen
}

// canBoard returns who waits and could board the forced call of a VM: whoever is for a disk that nobody aboard is for. Of requests that
// travel apart from others nobody boards, and nobody boards those.
func (l *lane) canBoard() []*entry {
	var chosen []*entry
	for _, e := range l.forced {
		sameDisk := func(other *entry) bool { return other.disk == e.disk }
		if len(l.aboard) > 0 && l.aboard[0].group == e.group && e.group == 0 &&
			!slices.ContainsFunc(l.aboard, sameDisk) && !slices.ContainsFunc(chosen, sameDisk) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// boardable says whether anybody could board the forced call of a VM.
func (d *dispatcher) boardable(vm string) bool {
	l, ok := d.lanes[vm]
	return ok && l.force == flying && len(l.canBoard()) > 0
}

// board lets everybody board who can.
func (d *dispatcher) board(vm string) []*entry {
	l := d.lane(vm)
	chosen := l.canBoard()
	l.aboard = append(l.aboard, chosen...)
	l.forced = slices.DeleteFunc(l.forced, func(e *entry) bool { return slices.Contains(chosen, e) })
	return chosen
}

// shut ends the boarding of the forced call of a VM.
func (d *dispatcher) shut(vm string) { d.lane(vm).aboard = nil }

// sameGroup returns the forced detaches that travel together: one for each disk, of one group.
func (l *lane) sameGroup() []*entry {
	var chosen []*entry
	for _, e := range l.forced {
		sameDisk := slices.ContainsFunc(chosen, func(other *entry) bool { return other.disk == e.disk })
		if !sameDisk && e.group == l.forced[0].group {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// settled releases what a request holds before the end of its call.
func (d *dispatcher) settled(e *entry) { d.release(e) }

// end ends a departure. Requests that were taken and not put back are over.
func (d *dispatcher) end(t turn, taken []*entry) {
	l := d.lane(t.vm)
	if t.forced {
		l.force, l.aboard = idle, nil
	} else {
		l.normal = idle
	}
	queued := append(slices.Clone(l.queue), l.forced...)
	for _, e := range taken {
		if !slices.Contains(queued, e) {
			d.release(e)
		}
	}
	d.forget(t.vm)
}

// occupy tells of a call in flight that an earlier process began.
func (d *dispatcher) occupy(e *entry) {
	d.lane(e.vm).foreign++
	d.hold(e)
}

// vacate tells that it has ended.
func (d *dispatcher) vacate(e *entry) {
	d.lane(e.vm).foreign--
	d.release(e)
	d.forget(e.vm)
}

// flyingNormally says whether an ordinary call of the VM is in flight.
func (d *dispatcher) flyingNormally(vm string) bool {
	l, ok := d.lanes[vm]
	return ok && l.normal == flying
}

func (d *dispatcher) hold(e *entry) {
	if e.verb == verbAttach && e.shared {
		e.held = true
		d.holds[e.disk]++
	}
}

func (d *dispatcher) release(e *entry) {
	if !e.held {
		return
	}
	e.held = false
	if d.holds[e.disk]--; d.holds[e.disk] == 0 {
		delete(d.holds, e.disk)
	}
}

// forget drops a lane that nobody uses.
func (d *dispatcher) forget(vm string) {
	l, ok := d.lanes[vm]
	if ok && len(l.queue)+len(l.forced) == 0 && l.normal == idle && l.force == idle && l.foreign == 0 {
		delete(d.lanes, vm)
	}
}
