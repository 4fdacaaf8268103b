package nodehealth_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestAPowerCutBetweenTwoHeartbeatsIsDetectedWithinFourSeconds(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(5)
	victim, start := nodes[0], w.now
	w.cut(victim)
	took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	v := w.health(victim)
	if !lost || took > 3*time.Second || !v.Fence() || v.SilentFrom.Before(start) ||
		!strings.Contains(v.Evidence, "of a request for one") {
		t.Errorf("got %+v after %s; want it lost within 3 s of the end of the connection, by a request, and silent from then on",
			v, took)
	}
	if w.requests[victim] != 1 {
		t.Errorf("got %d requests for a heartbeat of the lost node, want 1", w.requests[victim])
	}
	for _, n := range nodes[1:] {
		if w.state(n) != nodehealth.Healthy || w.requests[n] != 0 {
			t.Errorf("%s, which is well: got %+v after %d requests, want it Healthy after none", n, w.health(n),
				w.requests[n])
		}
	}
	w.sleep(time.Minute)
	if w.requests[victim] != 1 {
		t.Errorf("got %d requests for a heartbeat of a node that is lost for long, want 1", w.requests[victim])
	}
	// The node has power again.
	w.restore(victim)
	if w.sleep(time.Second); w.state(victim) != nodehealth.Healthy {
		t.Errorf("with power again: got %+v, want it Healthy", w.health(victim))
	}
}

// The API server is pinged once a second. The judgement does not wait for that.
func TestTheTimeUntilALossIsKnownDoesNotDependOnThePings(t *testing.T) {
	for phase := range 4 {
		w := newFleet(t)
		victim := w.addProbed(5)[0]
		w.sleep(time.Duration(phase) * time.Second / 4)
		w.cut(victim)
		if took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost)); !lost || took > nodehealth.DefaultPatience+
			500*time.Millisecond {
			t.Errorf("cut %d quarters of a second after a ping: got %+v after %s, want it lost within 2.5 s", phase,
				w.health(victim), took)
		}
	}
}

// A machine that stands still for less than the patience is not lost, and one that does not go on
// is.
func TestAPauseThatIsShorterThanThePatienceIsNoLoss(t *testing.T) {
	for _, patience := range []time.Duration{2 * time.Second, 8 * time.Second} {
		w := newFleet(t, func(c *nodehealth.Config) { c.Patience = patience })
		victim := w.addProbed(5)[0]
		w.cut(victim)
		if took, lost := w.pass(patience, w.is(victim, nodehealth.Lost)); lost {
			t.Errorf("patience %s: lost after %s", patience, took)
		}
		w.restore(victim)
		w.never(time.Minute, notHealthy)
		w.cut(victim)
		if took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost)); !lost || took > patience+500*time.Millisecond {
			t.Errorf("patience %s: got %+v after %s, want it lost soon after the patience", patience, w.health(victim),
				took)
		}
	}
}

// A firewall between the controller and the node is no loss of the node: it answers the requests.
func TestANodeThatAnswersRequestsWhileProbesFailIsNeverLost(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(5)
	w.machines[nodes[0]].answers = false
	w.never(time.Minute, notHealthy)
	if n := w.requests[nodes[0]]; n != 3 {
		t.Errorf("got %d requests, want 3: after three contradictions probes are taken not to reach the node", n)
	}
}

func TestANodeWhoseKubeletEndsAConnectionIsProbedAndNotAsked(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(3)
	before := w.probes[nodes[0]]
	w.sleep(time.Minute)
	if got := w.probes[nodes[0]] - before; got != 0 {
		t.Errorf("got %d probes within a minute of a node with an open connection, want 0", got)
	}
	if w.requests[nodes[0]] != 0 {
		t.Errorf("got %d requests, want 0", w.requests[nodes[0]])
	}
}

func TestARequestThatAnotherProcessWroteCounts(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(3)[0]
	w.cut(victim)
	w.change(victim, func(d *apiv1.AzDriverNode) {
		d.Spec.Requests = &apiv1.NodeRequests{HeartbeatTime: &metav1.MicroTime{Time: w.now}}
	})
	w.report(victim)
	if took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost)); !lost || took > 3*time.Second ||
		w.requests[victim] != 0 {
		t.Errorf("after %s and %d requests of its own: got %+v; want it lost within 3 s after none", took, w.requests[victim],
			w.health(victim))
	}
}

func TestARequestThatWasWrittenCountsBeforeTheEventAboutIt(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookRequest }
	w.cut(n)
	w.tick()
	for _, look := range w.held {
		w.see(nodehealth.HeartbeatRequested{Look: look, Written: true})
	}
	if took, lost := w.pass(20*time.Second, w.is(n, nodehealth.Lost)); !lost || took > 3*time.Second || len(w.held) != 1 {
		t.Errorf("got %+v after %s and the requests %+v, want it lost within 3 s after one", w.health(n), took, w.held)
	}
}

func TestARequestThatComesWithAHeartbeatIsAnswered(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.change(n, func(d *apiv1.AzDriverNode) {
		d.Spec.Requests = &apiv1.NodeRequests{HeartbeatTime: &metav1.MicroTime{Time: w.now}}
	})
	w.beat(n)
	w.never(10*time.Second, notHealthy)
}

func TestNoRequestIsLostOverAnOutageOfTheAPIServer(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(5)
	victim := nodes[0]
	w.outage = true
	w.sleep(10 * time.Second)
	w.cut(victim)
	w.never(20*time.Second, fenced)
	if got := w.requests[victim]; got != 0 {
		t.Errorf("got %d requests while the API server does not answer, want 0", got)
	}
	w.outage = false
	took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	if !lost || took > 5*time.Second {
		t.Errorf("after %s: got %+v, want it lost within 5 s of the API server's return", took, w.health(victim))
	}
}

func TestAPartitionOfTheControllerDoesNotFloodTheAPIServer(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(300)
	for _, n := range nodes {
		w.machines[n].answers, w.machines[n].beats = false, false
	}
	w.hold = func(look nodehealth.Look) bool {
		return look.Kind == nodehealth.LookRequest && slices.Contains(nodes[:10], look.Node)
	}
	sum := func(of map[string]int) (all int) {
		for _, n := range nodes {
			all += of[n]
		}
		return all
	}
	w.never(time.Second, fenced)
	if got := sum(w.requests) + len(w.held); got != 200 {
		t.Errorf("got %d requests at once, want 200, also of those that are being written", got)
	}
	before := sum(w.probes)
	if w.sleep(time.Second); sum(w.probes) == before {
		t.Error("got no probes while many requests have no answer, want them to continue")
	}
	if w.sleep(2 * time.Second); sum(w.requests)+len(w.held) != 300 {
		t.Errorf("got %d requests after the patience of the first nodes, want one of each node", sum(w.requests)+len(w.held))
	}
}

func TestAHeartbeatIsRequestedFromANodeThatPromisesToAnswer(t *testing.T) {
	for name, onRequest := range map[string]bool{"it promises": true, "it does not, as an earlier version": false} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			node := w.addProbed(2)[0]
			w.machines[node].onRequest = onRequest
			w.beat(node)
			w.see(nodehealth.HeartbeatWanted(node))
			w.sleep(5 * time.Second)
			if got := w.requests[node]; got == 1 != onRequest || got > 1 {
				t.Errorf("got %d requests, want one only of a node that promises to answer", got)
			}
		})
	}
}

// A node must not rely on requests if an earlier controller said that it is probed, and this one is
// configured not to probe.
func TestTheConditionSaysThatTheControllerDoesNotProbe(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	n := w.add(1, fast)[0]
	w.sleep(time.Second)
	c := meta.FindStatusCondition(w.detector.Conditions(n, w.now), apiv1.NodeConditionProbeable)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != apiv1.ReasonProbesDisabled {
		t.Errorf("got %+v, want False, %s", c, apiv1.ReasonProbesDisabled)
	}
}
