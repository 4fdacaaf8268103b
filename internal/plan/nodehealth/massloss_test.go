package nodehealth_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A node whose connection ends first is not fenced before the others' connections would have ended.
func TestConnectionsThatEndLaterAreWaitedFor(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = time.Second })
	nodes := w.addProbed(4)
	for _, n := range nodes[1:] {
		w.machines[n].ends = nodehealth.ConnectionTimeout
	}
	w.cut(nodes...)
	w.never(20*time.Second, fenced)
}

// What Azure says of a VM does not wait for the other nodes.
func TestANodeThatIsDownDoesNotWaitForOtherConnections(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = 250 * time.Millisecond })
	nodes := w.addProbed(5)
	for _, n := range nodes[2:] {
		w.machines[n].ends = nodehealth.ConnectionTimeout
	}
	w.switchOff(provisioner.PowerDeallocated, nodes[1])
	w.cut(nodes...)
	w.pass(5*time.Second, w.is(nodes[1], nodehealth.Down))
	w.pass(10*time.Second, func() bool {
		if v := w.health(nodes[1]); !v.Fence() {
			t.Fatalf("got %+v, want that its fence may begin", v)
		}
		return false
	})
}

// Nodes without a connection are probed first, however long their probes take.
func TestProbesThatAreUnderWayAreWaitedFor(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = 250 * time.Millisecond })
	nodes := w.addProbed(4)
	for _, n := range nodes {
		w.machines[n].refuses = true
		w.machines[n].answers = false
	}
	w.sleep(250 * time.Millisecond) // the connections have ended
	for _, n := range nodes {
		w.machines[n].answers = true
	}
	w.sleep(time.Minute)
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookProbe && look.Node != nodes[0] }
	w.cut(nodes...)
	w.never(3*time.Second, fenced)
	for _, look := range w.held {
		w.see(nodehealth.Probed{Look: look})
	}
	w.hold = func(nodehealth.Look) bool { return false }
	w.never(20*time.Second, fenced)
}

// A heartbeat says as much as an answered probe.
func TestAHeartbeatEndsTheWaitForAProbe(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(4)
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookProbe && look.Node != nodes[0] }
	for _, n := range nodes[1:] {
		w.machines[n].connected = false
		w.see(nodehealth.ConnectionEnded{Node: n})
	}
	w.cut(nodes[0])
	w.never(4*time.Second, fenced)
	for _, n := range nodes[1:] {
		w.beat(n)
	}
	if took, ended := w.pass(4*time.Second, w.fence(nodes[0])); !ended {
		t.Errorf("got %+v %s after the heartbeats of the others, want that its fence may begin", w.health(nodes[0]), took)
	}
}

// Its last sign of life counts, and not its last heartbeat.
func TestConnectionsAreWaitedForIfTheLostNodeWasMuteForLong(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(4, fast)
	w.machines[nodes[0]].beats = false
	w.sleep(2 * time.Minute)
	for _, n := range nodes[1:] {
		w.machines[n].ends = nodehealth.ConnectionTimeout
	}
	w.cut(nodes...)
	w.never(20*time.Second, fenced)
}

// The patience may be longer than the time since its last sign of life for which it is news.
func TestProbesAreWaitedForIfTheLostNodeHadMuchPatience(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = 40 * time.Second })
	nodes := w.addProbed(4)
	for _, n := range nodes[1:] {
		w.machines[n].refuses, w.machines[n].connected = true, false
		w.see(nodehealth.ConnectionEnded{Node: n})
	}
	w.cut(nodes[0])
	w.sleep(39 * time.Second)
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookProbe && look.Node != nodes[0] }
	w.cut(nodes...)
	w.never(20*time.Second, fenced)
}

func TestNodesThatAreProbedRarelyAreProbedBeforeAFence(t *testing.T) {
	for phase := range 10 {
		w := newFleet(t)
		nodes := w.add(4, fast)
		for _, n := range nodes[:2] { // out of step with each other
			w.machines[n].refuses, w.machines[n].connected, w.machines[n].beats = true, false, false
			w.see(nodehealth.ConnectionEnded{Node: n})
			w.sleep(2500 * time.Millisecond)
		}
		w.sleep(2*time.Minute + time.Duration(phase)*time.Second/2)
		w.cut(nodes[:2]...)
		w.never(20*time.Second, fenced)
	}
}

// Its answer would be the first one.
func TestAnAlarmHasNoNodeProbedThatNeverAnswered(t *testing.T) {
	w := newFleet(t)
	quiet := w.add(1, rare)[0]
	w.machines[quiet].answers = false
	victim := w.addProbed(4)[0]
	w.sleep(5 * time.Second)
	before := w.probes[quiet]
	w.cut(victim)
	if w.sleep(10 * time.Second); w.probes[quiet] != before || !w.health(victim).Fence() {
		t.Errorf("got %d probes of the node after the loss of another one (%+v), want none", w.probes[quiet]-before,
			w.health(victim))
	}
}

// Nodes that are late and cannot be probed may turn out to be lost.
func TestNodesThatCannotBeProbedAreCountedWhenTheyAreLate(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	for _, n := range w.add(4, fast) {
		w.machines[n].renewed = w.now
		w.change(n, func(d *apiv1.AzDriverNode) { // by a controller that probed
			d.Status.Conditions = []metav1.Condition{{Type: apiv1.NodeConditionProbeable, Status: metav1.ConditionTrue}}
		})
	}
	w.restart()
	w.sleep(40 * time.Second)
	w.cut(w.names[0])
	w.sleep(10 * time.Second)
	w.cut(w.names...)
	w.never(3*time.Minute, fenced)
}

// Nodes that answer probes do not turn out to be lost, however late their heartbeats are.
func TestNodesThatAnswerProbesAreNotCounted(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(4, fast)
	w.sleep(40 * time.Second)
	w.machines[nodes[1]].beats, w.machines[nodes[2]].beats = false, false
	w.sleep(time.Minute)
	w.cut(nodes[0])
	if took, ended := w.pass(20*time.Second, w.fence(nodes[0])); !ended {
		t.Errorf("got %+v after %s, want that its fence may begin", w.health(nodes[0]), took)
	}
}

// A node that has answered without a heartbeat for long is probed rarely. An alarm has it probed, so
// that the fence of another node does not wait for its turn.
func TestAnAlarmHasEveryNodeProbed(t *testing.T) {
	for phase := range 5 {
		w := newFleet(t)
		nodes := w.addProbed(4)
		mute := w.machines[nodes[1]]
		mute.beats, mute.refuses, mute.answers = false, true, false
		w.sleep(250 * time.Millisecond)
		mute.answers = true
		w.sleep(3*time.Minute + time.Duration(phase)*time.Second)
		w.cut(nodes[0])
		if took, ended := w.pass(20*time.Second, w.fence(nodes[0])); !ended || took > 3*time.Second {
			t.Errorf("phase %d: got %+v after %s, want that its fence may begin within 3 s", phase, w.health(nodes[0]), took)
		}
	}
}

// The others need a moment to follow the first node that has recovered.
func TestTheGuardLingersAfterASuspectNodeHasRecovered(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(4)
	w.cut(nodes[0])
	w.sleep(1500 * time.Millisecond)
	w.cut(nodes[1])
	w.sleep(time.Second)
	if v := w.health(nodes[0]); !v.Guarded() || w.state(nodes[1]) != nodehealth.Healthy {
		t.Fatalf("got %+v, and the other node %s, want it held back because of the other one", v, w.state(nodes[1]))
	}
	w.restore(nodes[1])
	w.never(9*time.Second, fenced)
	if took, ended := w.pass(5*time.Second, w.fence(nodes[0])); !ended {
		t.Errorf("got %+v after another %s, want that its fence may begin", w.health(nodes[0]), took)
	}
}

// Until the other nodes are known to answer, the next loss may be one of many.
func TestTheNextAlarmHoldsBackANodeThatIsLost(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(5)
	w.cut(nodes[0])
	w.sleep(time.Minute)
	if !w.health(nodes[0]).Fence() {
		t.Fatalf("got %+v, want that its fence may begin", w.health(nodes[0]))
	}
	w.cut(nodes[1])
	if took, ended := w.pass(time.Second, func() bool { return w.health(nodes[0]).Guarded() }); !ended {
		t.Errorf("got %+v %s after another node was lost, want it held back", w.health(nodes[0]), took)
	}
	both := func() bool { return w.health(nodes[0]).Fence() && w.health(nodes[1]).Fence() }
	if took, ended := w.pass(10*time.Second, both); !ended {
		t.Errorf("got %+v and %+v after another %s, want that both fences may begin", w.health(nodes[0]), w.health(nodes[1]), took)
	}
}

// Nothing is done about Suspect nodes. Readers of the judgement learn that the fault may be elsewhere.
func TestManySuspectNodesAtOnceAreAMassLoss(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(4, fast)
	w.sleep(40 * time.Second)
	for i, n := range nodes[:2] {
		w.machines[n].beats = false
		w.sleep(10 * time.Second)
		if v := w.health(n); v.State != nodehealth.Suspect || v.MassLoss != (i == 1) {
			t.Errorf("%d nodes are Suspect: got %+v, want it Suspect, and a mass loss: %t", i+1, v, i == 1)
		}
	}
}

// A node that was failed over, sends heartbeats again and is lost again is counted again.
func TestAHeartbeatEndsWhatWasSaidAboutAFailover(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(4, fast)
	w.sleep(40 * time.Second)
	w.cut(nodes[0])
	w.machines[nodes[0]].failedOver = true
	w.sleep(time.Minute)
	w.restore(nodes[0])
	w.sleep(20 * time.Second)
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookStake }
	w.cut(nodes[0], nodes[1])
	w.never(20*time.Second, fenced)
}

func TestMassGuard(t *testing.T) {
	for name, c := range map[string]struct {
		lost, total, threshold int
		held                   bool
	}{
		"one of one is no mass":                     {1, 1, 45, false},
		"one of two is no mass":                     {1, 2, 45, false},
		"two of two is one":                         {2, 2, 45, true},
		"two of three is one":                       {2, 3, 45, true},
		"two of four is one":                        {2, 4, 45, true},
		"two of five is below":                      {2, 5, 45, false},
		"a zone of three is below":                  {33, 99, 45, false},
		"exactly the threshold is below":            {45, 100, 45, false},
		"one more is above":                         {46, 100, 45, true},
		"at 100 percent the guard is off":           {7, 7, 100, false},
		"at 1 percent two of many are enough":       {2, 150, 1, true},
		"at 1 percent one is still only one":        {1, 3, 1, false},
		"nothing is above the threshold of nothing": {0, 0, 45, false},
	} {
		t.Run(name, func(t *testing.T) {
			if held, why := nodehealth.MassGuard(c.lost, c.total, c.threshold); held != c.held || held == (why == "") {
				t.Errorf("got %v: %q; want %v and a reason only then", held, why, c.held)
			}
		})
	}
}
