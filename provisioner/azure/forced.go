package azure

import (
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// watchInterval is how often a VM is read to see somebody else's detach end.
const watchInterval = time.Second

// whileOthersBoard follows a forced call while others may still board, for half of the time that it takes. When somebody does, the
// call is made once more for everybody aboard, and the platform lets it take the place of the one in flight. Whoever was first so
// waits at most half as long again. Each further call comes twice as late as the one before, so that there are few of them. It
// returns who is aboard at last, and the operation to wait for.
func (f *flight) whileOthersBoard(requests []*request, l *lro) ([]*request, *lro) {
	c, vm := f.engine.cloud, f.turn.vm
	defer f.engine.shut(vm)
	began, next := c.clock.Now(), time.Duration(0)
	told, shut := f.engine.told(vm), c.clock.NewTimer(c.habits.of(kindForceDetach).from/2)
	defer shut.Stop()
	for {
		if !f.somebodyCame(told, l, shut.C(), began.Add(next)) {
			return requests, l
		}
		if c.pacer.wait(c.clock.Now(), scope{policy: policyUpdateVM, resource: vm}) > 0 {
			return requests, l // an update would have to wait longer than it helps
		}
		seen, boarded, err := f.letBoard()
		if err != nil {
			f.engine.putBack(boarded)
			return requests, l
		}
		if boarded = f.settle(seen, boarded); len(boarded) == 0 {
			continue
		}
		all := append(f.settle(seen, requests), boarded...)
		p, err := f.vm.attachDetach(c.ctx, body(all))
		if err != nil {
			c.log.V(1).Info("a further forced detach waits for the one in flight", "vm", f.vm.Name, "error", err.Error())
			f.engine.putBack(boarded)
			return requests, l
		}
		requests, l = all, f.followed(p, all)
		next = 2 * c.clock.Since(began)
	}
}

// somebodyCame waits until somebody could board and the time for another call has come; false if that is too late.
func (f *flight) somebodyCame(told <-chan struct{}, l *lro, shut <-chan time.Time, from time.Time) bool {
	c := f.engine.cloud
	select {
	case <-told:
	case <-l.done:
		return false
	case <-shut:
		return false
	case <-c.ctx.Done():
		return false
	}
	timer := c.clock.NewTimer(max(from.Sub(c.clock.Now()), 0))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-l.done:
	case <-shut:
	case <-c.ctx.Done():
	}
	return false
}

// letBoard reads the VM and takes everybody who has come until then.
func (f *flight) letBoard() (view, []*request, error) {
	e := f.engine
	seen, err := f.vm.get(e.cloud.ctx, false)
	boarded, settling := e.board(f.turn.vm)
	f.boarded = append(f.boarded, boarded...)
	if len(settling) > 0 && err == nil {
		for _, r := range settling {
			<-r.answered
		}
		seen, err = f.vm.get(e.cloud.ctx, false)
	}
	return seen, boarded, err
}

// onTheirWay says whether all of the disks are being detached by an operation that is at work, and that is none of this process: such a
// one is orderly, and waits for a guest that may be dead.
func (f *flight) onTheirWay(requests []*request, seen view) bool {
	for _, r := range requests {
		if a, listed := seen.find(r.disk); !listed || !a.Detaching || f.engine.changes(r) {
			return false
		}
	}
	return seen.state == stateUpdating
}

// watchOut watches disks that are on their way out by an operation that is not known, most likely by the forced detach
// of an earlier process that was killed before it could record it. Another call would take that one's place and begin its time
// anew; so it gets the time that a forced detach takes at the least. It returns who is left, also of those who came meanwhile, for a call.
func (f *flight) watchOut(rest []*request, seen view) ([]*request, view, error) {
	c := f.engine.cloud
	for _, r := range rest {
		f.engine.accepted(r, token{Kind: kindForceDetach, ID: r.params.VMID, DiskID: r.params.DiskID, Shared: r.shared}.text())
	}
	told, until := f.engine.told(f.turn.vm), c.clock.Now().Add(c.habits.of(kindForceDetach).from)
	for c.clock.Now().Before(until) {
		timer, joined := c.clock.NewTimer(watchInterval), false
		select {
		case <-c.ctx.Done():
			timer.Stop()
			return rest, seen, c.ctx.Err()
		case <-told:
			joined = true
		case <-timer.C():
		}
		timer.Stop()
		now, boarded, err := f.letBoard()
		rest = append(rest, boarded...)
		if err != nil {
			if !c.unheard(err) {
				return rest, seen, err
			}
			continue
		}
		seen = now
		if rest = f.settle(seen, rest); len(rest) == 0 || joined && !f.onTheirWay(rest, seen) || seen.state != stateUpdating {
			break
		}
	}
	return rest, seen, nil
}

// board fills a forced departure that is flying with those who came meanwhile, as take does.
func (e *engine) board(vm string) (boarded, settling []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range e.dispatcher.board(vm) {
		boarded = append(boarded, en.request)
	}
	return boarded, e.supersede(vm, boarded)
}

func (e *engine) shut(vm string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher.shut(vm)
}

// told returns the channel by which the forced departure of a VM is told that somebody could board.
func (e *engine) told(vm string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.boarding[vm]
}

// changes says whether an ordinary call of this process for the same disk is in flight.
func (e *engine) changes(r *request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.inFlight[r.vm], func(other *request) bool { return other.disk == r.disk })
}

// supersede ends earlier attaches of the disks that are cut off, and returns those whose call is being sent. The caller holds mu.
func (e *engine) supersede(vm string, forced []*request) (settling []*request) {
	for _, f := range forced {
		for _, en := range slices.Clone(e.dispatcher.lane(vm).queue) {
			if en.disk == f.disk && en.verb == verbAttach && en.request.serial < f.serial && e.dispatcher.withdraw(en) {
				e.finishLocked(en.request, superseded(en.request))
			}
		}
		for _, r := range e.inFlight[vm] {
			if r.disk == f.disk && r.verb == verbAttach {
				r.superseded = true
				settling = append(settling, r)
			}
		}
	}
	return settling
}

func superseded(r *request) error {
	return &provisioner.Error{
		Kind: provisioner.Conflict, Code: codeDataDisksForceDetached,
		Message: "the attach of " + r.params.DiskID + " to " + r.params.VMID + " gave way to a forced detach of it",
	}
}
