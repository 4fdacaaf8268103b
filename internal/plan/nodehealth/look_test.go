package nodehealth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// late has a node be silent while looks of a kind get no answer, and then send a heartbeat. It
// returns the look at the node that is still under way.
func (w *fleet) late(node string, kind nodehealth.LookKind, silent time.Duration) nodehealth.Look {
	w.Helper()
	w.hold = func(look nodehealth.Look) bool { return look.Kind == kind }
	w.cut(node)
	w.sleep(silent)
	w.restore(node)
	w.sleep(time.Second)
	for _, look := range w.held {
		if look.Node == node && look.Kind == kind {
			return look
		}
	}
	w.Fatalf("got the looks %+v, want one of kind %d at %s", w.held, kind, node)
	return nodehealth.Look{}
}

func TestAnAnswerFromBeforeAHeartbeatIsIgnored(t *testing.T) {
	t.Run("a probe that failed", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		look := w.late(n, nodehealth.LookProbe, 250*time.Millisecond)
		w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookRequest }
		w.see(nodehealth.Probed{Look: look})
		w.held = nil
		if w.tick(); len(w.held) > 0 {
			t.Errorf("got the looks %+v, want no request for a heartbeat of a node that has just sent one", w.held)
		}
	})
	t.Run("a request that was written", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		w.see(nodehealth.HeartbeatRequested{Look: w.late(n, nodehealth.LookRequest, time.Second), Written: true})
		w.never(10*time.Second, notHealthy)
	})
	t.Run("what Azure said about the VM", func(t *testing.T) {
		for _, kind := range []nodehealth.LookKind{nodehealth.LookQuestion, nodehealth.LookReview} {
			w := newFleet(t)
			n := w.addProbed(3)[0]
			w.see(nodehealth.PowerRead{Look: w.late(n, kind, 30*time.Second), Power: provisioner.PowerDeallocated})
			w.never(10*time.Second, notHealthy)
		}
	})
	t.Run("a confirmation of the silence", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		before := w.machines[n].driver
		look := w.late(n, nodehealth.LookSilence, 5*time.Second)
		w.see(nodehealth.SilenceRead{Look: look, Report: before})
		w.cut(n)
		w.never(20*time.Second, func(j nodehealth.Judgement) bool { return j.State == nodehealth.Lost })
	})
	t.Run("a lease", func(t *testing.T) {
		w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
		n := w.add(3, fast)[0]
		w.sleep(40 * time.Second)
		w.see(nodehealth.LeaseRead{Look: w.late(n, nodehealth.LookLease, 10*time.Second), Renewed: w.now, Duration: time.Minute})
		w.cut(n)
		w.sleep(10 * time.Second)
		if got := w.health(n).Evidence; !strings.Contains(got, "nothing is known of the kubelet's lease") {
			t.Errorf("got the evidence %q, want that the lease is not known", got)
		}
	})
	t.Run("that it was failed over", func(t *testing.T) {
		w := newFleet(t)
		nodes := w.addProbed(4)
		w.see(nodehealth.StakeRead{Look: w.late(nodes[0], nodehealth.LookStake, 10*time.Second), Read: true, FailedOver: true})
		w.cut(nodes[0], nodes[1])
		w.sleep(10 * time.Second)
		if !w.health(nodes[1]).Guarded() {
			t.Errorf("got %+v, want it held back because of the other node", w.health(nodes[1]))
		}
	})
}

func TestAnAnswerAboutAnEarlierNodeOfTheNameIsIgnored(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookQuestion }
	w.cut(n)
	w.sleep(time.Second)
	if len(w.held) != 1 || w.held[0].Node != n {
		t.Fatalf("got the looks %+v, want a question about %s", w.held, n)
	}
	w.see(nodehealth.Removed(n))
	w.machines[n].connected = false
	w.report(n)
	w.restore(n)
	w.see(nodehealth.PowerRead{Look: w.held[0], Gone: true})
	w.never(10*time.Second, notHealthy)
}

func TestLooksAtOnceAreBounded(t *testing.T) {
	w := newFleet(t)
	nodes, leases := w.add(70, fast), w.add(10, fast)
	for _, n := range leases { // probes have never reached them
		w.machines[n].answers = false
	}
	w.sleep(5 * time.Second)
	w.hold = func(look nodehealth.Look) bool {
		return look.Kind != nodehealth.LookPing && look.Kind != nodehealth.LookRequest
	}
	w.cut(nodes...)
	w.cut(leases...)
	w.sleep(20 * time.Second)
	got := map[nodehealth.LookKind]int{}
	for _, look := range w.held {
		got[look.Kind]++
	}
	for kind, want := range map[nodehealth.LookKind]int{
		nodehealth.LookProbe:    64,
		nodehealth.LookQuestion: 4,
		nodehealth.LookLease:    8,
		nodehealth.LookStake:    4,
	} {
		if got[kind] != want {
			t.Errorf("got %d looks of kind %d under way, want %d", got[kind], kind, want)
		}
	}
}

// The node may have answered such a request before the process began to look.
func TestARequestFromBeforeTheStartIsNotCounted(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.request(n)
	w.machines[n].beats = false
	w.restart()
	w.never(20*time.Second, notHealthy)
}

func TestAnUnknownPowerStateIsNoAnswer(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(4)
	for _, n := range nodes {
		w.machines[n].power = provisioner.PowerUnknown
	}
	w.cut(nodes...)
	w.never(time.Minute, fenced)
	if v := w.health(nodes[0]); !v.Guarded() {
		t.Errorf("got %+v, want it held back", v)
	}
}
