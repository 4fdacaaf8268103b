package batch

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
)

const (
	// longestExpected is how long a batch waits at most for requests that are announced, and
	// longestQuiet for such that may follow. Both are short beside an update of a VM, which takes
	// more than ten seconds.
	longestExpected = 5 * time.Second
	longestQuiet    = time.Second
	// quiet is the pause between two requests after which no more of them are likely to follow. It
	// is twice the pause between the calls of Kubernetes' controller manager, which makes 20 calls
	// a second after a burst.
	quiet = 100 * time.Millisecond
)

// gathering is what is known of a batch that could be sent now.
type gathering struct {
	// waiting requests would be sent, and expected ones are announced and have not arrived yet.
	waiting, expected int
	// first and last are when the first and the last of the waiting requests arrived.
	first, last time.Time
}

// wait decides how long a batch waits for more requests: 0 if it is sent now. usual is how long an
// update of the VM takes.
//
// A request that misses the batch waits for a whole update, and needs another one from the VM's
// quota of 4 a minute. A batch that waits delays all requests in it. So the batch waits for
// expected requests as long as that delays its requests by less than the expected ones would lose,
// as in the problem of when to acknowledge TCP segments (Dooly, Goldman, Scott: On-line analysis of
// the TCP acknowledgment delay problem, 2001): there, to wait until the delay has cost as much as
// one more acknowledgment is at most twice as bad as knowing the future. If it has several
// requests, more may follow that no caller in this process has announced: it waits until none has
// arrived for a short time. A single request is sent at once if no other one is expected.
func (g gathering) wait(now time.Time, usual time.Duration) time.Duration {
	if g.waiting == 0 {
		return 0
	}
	passed, more := now.Sub(g.first), time.Duration(0)
	if g.waiting > 1 {
		more = min(g.last.Add(quiet).Sub(g.first), longestQuiet)
	}
	worth := min(usual*time.Duration(g.expected)/time.Duration(g.waiting), longestExpected)
	return max(more-passed, worth-passed, 0)
}

// expectations are the announced requests, by VM and disk: when each was announced.
type expectations map[string]map[string]time.Time

// add records an announcement.
func (x expectations) add(vm, disk string, at time.Time) {
	if x[vm] == nil {
		x[vm] = map[string]time.Time{}
	}
	x[vm][disk] = at
}

// remove ends an announcement.
func (x expectations) remove(vm, disk string) {
	delete(x[vm], disk)
	if len(x[vm]) == 0 {
		delete(x, vm)
	}
}

// count returns how many requests for a VM are expected. One that has not come for a long time
// waits for something else, and does not count.
func (x expectations) count(vm string, now time.Time) int {
	n := 0
	for _, at := range x[vm] {
		if now.Sub(at) < longestExpected {
			n++
		}
	}
	return n
}

// Expect implements provisioner.Attachments.
func (e *Engine) Expect(vmID, diskID string) (done func()) {
	vm, disk, at := operation.Key(vmID), operation.Key(diskID), e.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.last[vm+"|"+disk]; ok && before.token == "" {
		return func() {} // it has arrived
	}
	e.expected.add(vm, disk, at)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.expected[vm][disk].Equal(at) {
			e.expected.remove(vm, disk)
			e.queues.wakeGathering(vm)
		}
	}
}

// gather waits as long as it is worth it to wait for more requests for a batch, and says whether it
// waited.
func (e *Engine) gather(b *batch) (waited bool) {
	for {
		wait := e.gathering(b).wait(e.Clock.Now(), e.Platform.Usual(operation.Attach, 1).From)
		if wait == 0 || b.forced {
			return waited
		}
		waited = true
		timer := e.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-b.changed:
		case <-e.ctx.Done():
			timer.Stop()
			return waited
		}
		timer.Stop()
	}
}

func (e *Engine) gathering(b *batch) gathering {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := gathering{expected: e.expected.count(b.vm, e.Clock.Now())}
	for _, r := range e.queues.sendable(e.queues.vm(b.vm)) {
		if g.waiting++; g.waiting == 1 || r.arrived.Before(g.first) {
			g.first = r.arrived
		}
		if r.arrived.After(g.last) {
			g.last = r.arrived
		}
	}
	return g
}
