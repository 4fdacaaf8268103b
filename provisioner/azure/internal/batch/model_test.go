package batch

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// model drives queues through random events and checks what must always hold.
type model struct {
	t        *rapid.T
	q        *queues
	started  []*batch
	inFlight []*batch
	resumed  []*request
	order    map[string][]*request // by VM and disk: ordinary requests that have not ended, in the order of their submission
	unserved int
}

func (m *model) submit() {
	k := rapid.SampledFrom([]operation.Kind{operation.Attach, operation.Attach, operation.Detach, operation.ForceDetach}).Draw(
		m.t, "kind")
	disk := rapid.IntRange(0, 4).Draw(m.t, "disk")
	r := put(m.q, fmt.Sprintf("vm%d", rapid.IntRange(0, 3).Draw(m.t, "vm")), fmt.Sprintf("disk%d", disk), k, disk < 2)
	m.unserved++
	if k != operation.ForceDetach {
		m.order[r.pair()] = append(m.order[r.pair()], r)
	}
}

func (m *model) start() {
	for _, b := range m.q.start() {
		for _, other := range append(slices.Clone(m.started), m.inFlight...) {
			if other.vm == b.vm && other.forced == b.forced {
				m.t.Fatalf("two batches of %s (forced: %v) at once", b.vm, b.forced)
			}
		}
		m.started = append(m.started, b)
	}
}

func (m *model) fill() {
	if len(m.started) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.started)-1).Draw(m.t, "read")
	b := m.started[i]
	m.started = slices.Delete(m.started, i, i+1)
	m.q.fill(b)
	if len(b.requests) == 0 {
		return
	}
	m.inFlight = append(m.inFlight, b)
	m.checkBatch(b)
	for _, r := range b.requests {
		if line := m.order[r.pair()]; !b.forced && line[0] != r {
			m.t.Fatalf("%s of %s overtakes %s", r.kind, r.disk, line[0].kind)
		}
	}
	m.checkShared()
}

func (m *model) checkBatch(b *batch) {
	seen := map[string]bool{}
	for _, r := range b.requests {
		if r.vm != b.vm || (r.kind == operation.ForceDetach) != b.forced || seen[r.disk] {
			m.t.Fatalf("the batch of %s (forced: %v) has %s of %s at %s", b.vm, b.forced, r.kind, r.disk, r.vm)
		}
		seen[r.disk] = true
	}
}

// pick chooses a batch in flight; nil if there is none.
func (m *model) pick(forced bool) *batch {
	var some []*batch
	for _, b := range m.inFlight {
		if b.forced || !forced {
			some = append(some, b)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(m.t, "batch")
}

func (m *model) checkShared() {
	holders := map[string]int{}
	for _, b := range m.inFlight {
		for _, r := range b.requests {
			if r.attaches() && r.params.Shared {
				holders[r.disk]++
			}
		}
	}
	for disk, n := range holders {
		if n > 1 {
			m.t.Fatalf("%d attaches of shared %s at once", n, disk)
		}
	}
}

func (m *model) served(r *request) {
	m.unserved--
	m.order[r.pair()] = slices.DeleteFunc(m.order[r.pair()], func(other *request) bool { return other == r })
}

func (m *model) end(how string) {
	b := m.pick(false)
	if b == nil {
		return
	}
	m.inFlight = slices.DeleteFunc(m.inFlight, func(other *batch) bool { return other == b })
	switch still := b.requests; {
	case how == "preempted" && !b.forced:
		m.q.putBack(still...)
	case how == "refused" && len(still) > 1:
		m.q.split(still...)
	default:
		for _, r := range still {
			m.served(r)
		}
	}
	m.q.end(b)
}

func (m *model) withdraw() {
	for _, line := range m.order {
		if len(line) > 0 && m.q.withdraw(line[len(line)-1]) {
			m.served(line[len(line)-1])
			return
		}
	}
}

func (m *model) resume() {
	vm := fmt.Sprintf("vm%d", rapid.IntRange(0, 3).Draw(m.t, "vm"))
	r := newRequest(operation.Attach, provisioner.AttachRequest{VMID: vm, DiskID: "resumed", Shared: true})
	m.q.beginResumed(r)
	m.resumed = append(m.resumed, r)
}

func (m *model) endResumed() {
	if len(m.resumed) > 0 {
		m.q.endResumed(m.resumed[0])
		m.resumed = m.resumed[1:]
	}
}

// drain lets every request end, and fails if one cannot.
func (m *model) drain() {
	for len(m.resumed) > 0 {
		m.endResumed()
	}
	for m.unserved > 0 {
		m.start()
		if len(m.started) == 0 && len(m.inFlight) == 0 {
			m.t.Fatalf("%d requests wait and nothing is in flight", m.unserved)
		}
		for len(m.started) > 0 {
			m.fill()
		}
		m.end("succeeded")
	}
	for len(m.inFlight) > 0 {
		m.end("succeeded")
	}
	for m.start(); len(m.started) > 0; m.start() {
		m.fill()
	}
	if len(m.q.vms) != 0 || len(m.q.inFlightShared) != 0 {
		m.t.Fatalf("left: queues of %d VMs, and %v shared disks in flight", len(m.q.vms), m.q.inFlightShared)
	}
}

func TestEveryRequestIsServedInOrderAndNothingDeadlocks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: rt, q: newQueues(), order: map[string][]*request{}}
		events := map[string]func(){
			"submit": m.submit, "fill": m.fill, "withdraw": m.withdraw, "resume": m.resume, "end of a resumed call": m.endResumed,
			"succeeded": func() { m.end("succeeded") }, "preempted": func() { m.end("preempted") },
			"refused": func() { m.end("refused") },
		}
		names := []string{
			"submit", "submit", "submit", "fill", "fill", "succeeded", "preempted", "refused", "withdraw", "resume",
			"end of a resumed call",
		}
		for range rapid.IntRange(1, 120).Draw(rt, "events") {
			events[rapid.SampledFrom(names).Draw(rt, "event")]()
			m.start()
		}
		m.drain()
	})
}
