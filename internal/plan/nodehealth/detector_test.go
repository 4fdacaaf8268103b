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
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAPowerCutIsDetectedWithinTenSecondsOfTheLastHeartbeat(t *testing.T) {
	for _, phase := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1750 * time.Millisecond} {
		w := newFleet(t)
		nodes := w.add(5, fast)
		w.sleep(40*time.Second + phase)
		last := w.machines[nodes[0]].next.Add(-fast)
		cut := w.now
		w.cut(nodes[0])
		w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
		v := w.health(nodes[0])
		if took := w.now.Sub(last); took > 10*time.Second || took < 6*time.Second || !v.Fence() || v.MassLoss ||
			v.SilentFrom != cut || v.Since != w.now {
			t.Errorf("phase %s: after %s: %+v", phase, took, v)
		}
		w.sleep(time.Second)
		if got := w.health(nodes[0]).Since; got != v.Since {
			t.Errorf("phase %s: got it lost since %s a second later, want since %s", phase, got, v.Since)
		}
		for _, n := range nodes[1:] {
			if w.state(n) != nodehealth.Healthy {
				t.Errorf("%s: %+v", n, w.health(n))
			}
		}
		if w.last.Lost != 1 {
			t.Errorf("got %d nodes counted as lost, want 1", w.last.Lost)
		}
	}
}

func TestASingleLossAmongSlowNodesIsNotTakenForAMassLoss(t *testing.T) {
	w := newFleet(t)
	quiet, victim := w.add(20, slow), w.add(1, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(victim)
	took, lost := w.pass(20*time.Second, w.fence(victim))
	if !lost || took > 10*time.Second {
		t.Fatalf("after %s: %+v", took, w.health(victim))
	}
	if n := w.probes[quiet[0]]; n > 4 {
		t.Errorf("a node that is well was probed %d times", n)
	}
}

func TestAnOutageOfTheAPIServerMakesNoNodeLost(t *testing.T) {
	w := newFleet(t)
	w.add(5, fast)
	w.sleep(40 * time.Second)
	w.outage = true
	w.never(30*time.Second, notHealthy)
	w.outage = false
	w.never(30*time.Second, notHealthy)
}

func TestANodeThatDiesWhileTheAPIServerIsAwayIsLostAfterwards(t *testing.T) {
	w := newFleet(t)
	victim := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.outage = true
	w.cut(victim)
	w.never(30*time.Second, fenced)
	w.outage = false
	w.never(5*time.Second, fenced)
	if took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost)); !lost || took > 5*time.Second {
		t.Errorf("after %s: %+v", took, w.health(victim))
	}
}

func TestALostNodeStaysSilentOverAnOutageAndIsLostAgain(t *testing.T) {
	w := newFleet(t)
	victim := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(victim)
	w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	w.outage = true
	w.sleep(10 * time.Second)
	if w.state(victim) != nodehealth.Suspect {
		t.Errorf("without the API server: %+v", w.health(victim))
	}
	w.outage = false
	_, alive := w.pass(20*time.Second, w.is(victim, nodehealth.Healthy))
	if alive || w.state(victim) != nodehealth.Lost {
		t.Errorf("afterwards: %+v", w.health(victim))
	}
}

func TestAPartitionOfTheControllerIsHeldBack(t *testing.T) {
	for name, intervals := range map[string][2]int{"fast nodes": {6, 0}, "few fast nodes among slow ones": {1, 12}} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			for range intervals[0] { // out of step with each other
				w.add(1, fast)
				w.sleep(250 * time.Millisecond)
			}
			w.add(intervals[1], slow)
			w.sleep(2 * time.Minute)
			w.cut(w.names...)
			w.never(5*time.Minute, fenced)
			v := w.health(w.names[0])
			if v.State != nodehealth.Lost || !v.MassLoss || !strings.Contains(v.HeldBack, "seem lost at once") {
				t.Errorf("%+v", v)
			}
			if !w.last.Guarded {
				t.Error("got the guard inactive, want it active")
			}
			// They recover one after the other, and until then the last must not be fenced.
			for _, n := range w.names {
				w.machines[n].beats, w.machines[n].answers = true, true
				w.never(250*time.Millisecond, fenced)
			}
			w.never(time.Minute, fenced)
			for _, n := range w.names {
				if w.state(n) != nodehealth.Healthy {
					t.Errorf("%s: %+v", n, w.health(n))
				}
			}
		})
	}
}

// One of four nodes was lost and everything was taken from it. When a second one lost its power a
// minute later, the guard counted both, and nothing moved.
func TestTheGuardDoesNotCountANodeFromWhichEverythingWasTaken(t *testing.T) {
	for name, test := range map[string]struct {
		over, restart, unread bool
		fenced                bool
	}{
		"its failover is over":                            {over: true, fenced: true},
		"its failover is over, and another process leads": {over: true, restart: true, fenced: true},
		"its failover is over, and cannot be read since":  {over: true, unread: true, fenced: true},
		"its failover is not over":                        {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			nodes := w.add(4, fast)
			w.sleep(40 * time.Second)
			w.cut(nodes[0])
			w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
			w.machines[nodes[0]].failedOver = test.over
			w.sleep(time.Minute)
			w.unread = test.unread
			w.sleep(5 * time.Second)
			w.cut(nodes[1])
			if test.restart {
				w.publish()
				w.restart()
			}
			took, got := w.pass(20*time.Second, w.fence(nodes[1]))
			if got != test.fenced {
				t.Errorf("the second node may be fenced: got %t, want %t; after %s: %+v", got, test.fenced, took,
					w.health(nodes[1]))
			}
			if v := w.health(nodes[1]); v.Guarded() == test.fenced {
				t.Errorf("the guard holds the second node back: got %t, want %t: %+v", v.Guarded(), !test.fenced, v)
			}
			if !test.fenced {
				return
			}
			// Two of the three that are left: now the guard is right to doubt.
			w.cut(nodes[2])
			w.pass(20*time.Second, w.is(nodes[2], nodehealth.Lost))
			if v := w.health(nodes[2]); !v.Guarded() || !strings.Contains(v.HeldBack, "2 of 3 nodes") {
				t.Errorf("the third node: got %+v, want it held back because 2 of 3 nodes seem lost", v)
			}
			if v := w.health(nodes[0]); v.HeldBack != "" {
				t.Errorf("the node that is failed over: got held back (%s), want not", v.HeldBack)
			}
		})
	}
}

func TestAStoppedVMIsDownWithinFiveSeconds(t *testing.T) {
	for name, stop := range map[string]func(*machine){
		"stopped":     func(m *machine) { m.power = provisioner.PowerStopped },
		"deallocated": func(m *machine) { m.power = provisioner.PowerDeallocated },
		"deleted":     func(m *machine) { m.gone = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			nodes := w.add(2, fast)
			w.sleep(40 * time.Second)
			for _, n := range nodes { // both at once: the guard does not count a VM that Azure reports as down
				w.cut(n)
				stop(w.machines[n])
			}
			took, down := w.pass(20*time.Second,
				func() bool { return w.state(nodes[0]) == nodehealth.Down && w.state(nodes[1]) == nodehealth.Down })
			if v := w.health(nodes[0]); !down || took > 5*time.Second || !v.Fence() || v.Off() != (name != "stopped") {
				t.Fatalf("after %s: %+v", took, v)
			}
			// It holds as long as Azure says so, also while Azure says nothing.
			w.machines[nodes[0]].gone, w.machines[nodes[0]].power = false, ""
			w.never(time.Minute, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Down })
			w.beat(nodes[0])
			if w.state(nodes[0]) != nodehealth.Healthy {
				t.Errorf("after a heartbeat: %+v", w.health(nodes[0]))
			}
		})
	}
}

func TestAnOldAnswerOfAzureDoesNotOutliveAHeartbeat(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.machines[n].power = provisioner.PowerStopped
	w.pass(20*time.Second, w.is(n, nodehealth.Down))
	w.machines[n].power, w.machines[n].beats, w.machines[n].answers = provisioner.PowerRunning, true, true
	w.pass(5*time.Second, w.is(n, nodehealth.Healthy))
	w.never(time.Minute, notHealthy)
}

func TestANodeThatOnlyLostTheAPIServerStaysSilent(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].beats = false
	w.never(10*time.Minute, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost || v.State == nodehealth.Down })
	if v := w.health(n); v.State != nodehealth.Suspect || !strings.Contains(v.Evidence, "answers probes") {
		t.Errorf("%+v", v)
	}
	if n := w.questions[n]; n < 10 || n > 40 {
		t.Errorf("%d questions to Azure in ten minutes", n)
	}
	// If it dies then, it is nevertheless lost.
	w.cut(n)
	if took, lost := w.pass(time.Minute, w.is(n, nodehealth.Lost)); !lost || took > 10*time.Second {
		t.Errorf("after %s: %+v", took, w.health(n))
	}
}

// Three seconds without an answer of the API server are not yet a loss of contact.
func TestAShortOutageOfTheAPIServerChangesNoJudgement(t *testing.T) {
	w := newFleet(t)
	victim := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(victim)
	var pinged time.Time
	w.hold = func(look nodehealth.Look) bool {
		if look.Kind == nodehealth.LookPing && !w.outage {
			pinged = w.now
		}
		return false
	}
	w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	w.sleep(time.Second)
	w.outage = true
	away := pinged.Add(3 * time.Second)
	w.never(away.Sub(w.now)-250*time.Millisecond, func(j nodehealth.Judgement) bool { return j.State == nodehealth.Suspect })
	w.now, w.outage = away, false
	w.never(5*time.Second, func(j nodehealth.Judgement) bool { return j.State == nodehealth.Suspect })
	w.outage = true
	if w.pass(10*time.Second, w.is(victim, nodehealth.Suspect)); w.now.Sub(pinged) != 3250*time.Millisecond {
		t.Errorf("got it Suspect %s after the last answer of the API server, want 3.25 s", w.now.Sub(pinged))
	}
}

func TestTheAPIServerIsPingedOnceASecondOneRequestAtATime(t *testing.T) {
	w := newFleet(t)
	w.add(3, fast)
	pings := 0
	w.hold = func(look nodehealth.Look) bool {
		if look.Kind == nodehealth.LookPing {
			pings++
		}
		return false
	}
	if w.sleep(10 * time.Second); pings != 11 {
		t.Errorf("got %d pings in ten seconds, want 11", pings)
	}
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookPing }
	if w.sleep(10 * time.Second); len(w.held) != 1 {
		t.Errorf("got %d pings while the first one has no answer, want 1", len(w.held))
	}
}

// A node that has not answered a request is lost by the first ping after its patience.
func TestTheAPIServerIsPingedAtOnceWhenAJudgementWaitsForIt(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = 8 * time.Second })
	n := w.addProbed(3)[0]
	pings := 0
	w.hold = func(look nodehealth.Look) bool {
		if look.Kind == nodehealth.LookPing {
			pings++
		}
		return false
	}
	w.sleep(500 * time.Millisecond)
	w.cut(n)
	pings = 0
	if w.pass(20*time.Second, w.is(n, nodehealth.Lost)); pings != 9 {
		t.Errorf("got %d pings until the node is lost, want one a second, and one after the patience", pings)
	}
	pings = 0
	if w.sleep(10 * time.Second); pings > 11 {
		t.Errorf("got %d pings in ten seconds after that, want one a second", pings)
	}
	w.restore(n)
	w.sleep(10 * time.Second)
	w.cut(n)
	w.sleep(7 * time.Second)
	w.outage = true
	w.sleep(4 * time.Second)
	pings = 0
	if w.sleep(10 * time.Second); pings > 11 {
		t.Errorf("got %d pings in ten seconds without an answer, want one a second", pings)
	}
}

// The first second signal of a node that never answered a probe is its lease, whatever an earlier
// controller has published.
func TestProbesThatWereNeverAnsweredAreNoSign(t *testing.T) {
	for name, test := range map[string]struct {
		probes, published bool
		lost              bool
	}{
		"never answered, and no lease":           {probes: true},
		"not probed by this controller, a lease": {published: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t, func(c *nodehealth.Config) { c.Probes = test.probes })
			nodes := append(w.add(1, fast), w.add(4, rare)...)
			w.machines[nodes[0]].answers = false
			for _, n := range nodes {
				if test.published {
					w.change(n, func(d *apiv1.AzDriverNode) {
						d.Status.Conditions = []metav1.Condition{
							{Type: apiv1.NodeConditionProbeable, Status: metav1.ConditionTrue},
						}
					})
					w.machines[n].renewed = w.now
					w.report(n)
				}
			}
			w.sleep(40 * time.Second)
			w.machines[nodes[0]].beats = false
			if _, got := w.pass(2*time.Minute, w.fence(nodes[0])); got != test.lost {
				t.Errorf("got %+v, want that its fence may begin: %t", w.health(nodes[0]), test.lost)
			}
		})
	}
}

// It is asked when the heartbeat is half an interval late.
func TestAzureIsAskedAboutANodeThatIsLate(t *testing.T) {
	w := newFleet(t)
	n := w.add(3, fast)[0]
	w.machines[n].answers = false
	w.sleep(40 * time.Second)
	w.cut(n)
	last := w.machines[n].next.Add(-fast)
	w.pass(10*time.Second, func() bool { return w.questions[n] > 0 })
	if took := w.now.Sub(last); took != 4*time.Second {
		t.Errorf("asked %s after the last heartbeat, want at the first ping after 3 s, 4 s after it", took)
	}
}

func TestAHeartbeatOrAnAnswerBringsANodeBack(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	w.machines[n].answers = true
	if took, silent := w.pass(time.Minute, w.is(n, nodehealth.Suspect)); !silent || took > 2*time.Second {
		t.Errorf("after %s: %+v", took, w.health(n))
	}
	// Its clock may be anything after a reboot.
	w.machines[n].beats, w.machines[n].next = true, w.now
	if took, alive := w.pass(time.Minute, w.is(n, nodehealth.Healthy)); !alive || took != 0 {
		t.Errorf("after %s: %+v", took, w.health(n))
	}
}

func TestASlowPromiseIsGivenItsTime(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, slow)[0]
	w.sleep(2 * time.Minute)
	last := w.machines[n].next.Add(-slow)
	w.cut(n)
	w.pass(5*time.Minute, w.is(n, nodehealth.Lost))
	if took := w.now.Sub(last); took < 75*time.Second || took > 78*time.Second {
		t.Errorf("lost after %s", took)
	}
}

func TestANodeWithoutAHeartbeatHasItsGrace(t *testing.T) {
	w := newFleet(t)
	w.add(4, fast)
	w.sleep(40 * time.Second)
	n := w.add(1, fast)[0]
	w.machines[n].beats = false
	w.never(5*time.Second, notHealthy)
	w.sleep(3 * time.Second)
	if w.state(n) != nodehealth.Suspect {
		t.Errorf("%+v", w.health(n))
	}
	if v := w.health("unknown"); v.State != nodehealth.Healthy || v.Fence() {
		t.Errorf("a node that was never observed: %+v", v)
	}
	if c := w.detector.Conditions("unknown", w.now); len(c) > 0 {
		t.Errorf("a node that was never observed: got the conditions %+v, want none", c)
	}
}

func TestWhereProbesNeverWorkedTheLeaseDecides(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].renewed = w.now
	w.machines[n].beats = false
	for range 6 {
		w.never(10*time.Second, fenced)
		w.machines[n].renewed = w.now
	}
	if took, lost := w.pass(2*time.Minute, w.fence(n)); !lost || took < 40*time.Second || took > 60*time.Second {
		t.Errorf("after %s: %+v", took, w.health(n))
	}
}

// A lease that is created again counts from then on, whatever it says.
func TestALeaseThatIsGoneIsNoSign(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	renewed := w.now
	w.machines[n].renewed, w.machines[n].beats = renewed, false
	w.sleep(20 * time.Second)
	w.machines[n].renewed = time.Time{}
	w.never(time.Minute, fenced)
	w.machines[n].renewed = renewed
	w.never(40*time.Second, fenced)
	if took, lost := w.pass(40*time.Second, w.fence(n)); !lost {
		t.Errorf("got %+v after another %s, want it lost", w.health(n), took)
	}
}

// What the lease said before a heartbeat says nothing about the silence after it.
func TestAHeartbeatEndsWhatTheLeaseSaid(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].renewed = w.now
	w.machines[n].beats = false
	w.sleep(20 * time.Second)
	w.restore(n)
	w.sleep(2 * time.Minute)
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookLease }
	w.machines[n].beats = false
	w.never(30*time.Second, fenced)
}

func TestProbesThatHeartbeatsContradictDoNotCount(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	never := w.names[1]
	w.machines[never].answers = false
	probeable := func(n string) string {
		if c := meta.FindStatusCondition(w.detector.Conditions(n, w.now), apiv1.NodeConditionProbeable); c != nil {
			return string(c.Status) + " " + c.Reason
		}
		return ""
	}
	const unknown = "Unknown " + apiv1.ReasonNotYetKnown
	if got := probeable(n); got != unknown {
		t.Errorf("before a probe: got the condition %s, want %s", got, unknown)
	}
	w.sleep(40 * time.Second)
	w.publish()                   // that probes reach the node
	w.machines[n].answers = false // a firewall
	w.sleep(3 * time.Minute)
	if got := probeable(n); got != "False "+apiv1.ReasonProbesContradicted {
		t.Errorf("after heartbeats without answers: got the condition %s, want False %s", got, apiv1.ReasonProbesContradicted)
	}
	if got := probeable(never); got != unknown {
		t.Errorf("a node that never answered: got the condition %s, want %s", got, unknown)
	}
	w.machines[n].beats = false
	w.never(time.Minute, fenced)
}

func TestACacheThatWasCutOffMakesNoNodeLost(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].beats, w.machines[n].answers = false, false
	for range 30 { // the API server has heartbeats, but no event about them came
		w.write(n)
		w.never(time.Second, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost })
	}
}

// The heartbeats between two silences may have been missed by the cache.
func TestASecondSilenceIsConfirmedAgain(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	w.machines[n].answers = true
	w.pass(20*time.Second, w.is(n, nodehealth.Suspect))
	w.write(n)
	w.machines[n].answers = false
	w.never(5*time.Second, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost })
}

func TestAzureIsAskedOnlyForLateNodesThatHoldAPrimary(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(6, fast)
	w.machines[nodes[1]].primary = false
	w.sleep(40 * time.Second)
	w.cut(nodes[:2]...)
	w.sleep(22 * time.Second)
	if len(w.questions) != 1 || w.questions[nodes[0]] < 2 || w.questions[nodes[0]] > 3 {
		t.Errorf("questions %v", w.questions)
	}
}

func TestAzureIsAskedOfALostNodeLessOftenThanItsQuotaGrows(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	before := w.questions[n]
	w.sleep(time.Minute)
	// There are two observers, and Azure allows 12 reads of a VM in a minute.
	if asked := w.questions[n] - before; asked < 2 || asked > 4 {
		t.Errorf("asked %d times in a minute", asked)
	}
}

func TestFailoverThatIsSwitchedOffJudgesAndHoldsBack(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Enabled = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.never(20*time.Second, fenced)
	if v := w.health(n); v.State != nodehealth.Lost || !strings.Contains(v.HeldBack, "switched off") || v.MassLoss {
		t.Errorf("%+v", v)
	}
	if v := w.health(w.names[1]); v.HeldBack != "" {
		t.Errorf("a node that is well: got held back (%s), want not", v.HeldBack)
	}
	if len(w.questions) > 0 {
		t.Errorf("questions %v", w.questions)
	}
}

func TestAzureIsNotAskedIfItCannotBe(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Questions = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	if w.sleep(20 * time.Second); !w.health(n).Fence() || len(w.questions) > 0 {
		t.Errorf("got %+v after the questions %v, want that its fence may begin without one", w.health(n), w.questions)
	}
}

func TestTheCallerHearsOfEveryChangeOfAJudgement(t *testing.T) {
	mute := func(w *fleet, names ...string) {
		for _, n := range names {
			w.machines[n].beats = false
		}
	}
	stopped := func(w *fleet, nodes []string) { w.switchOff(provisioner.PowerStopped, nodes[0]) }
	for name, test := range map[string]struct {
		before, change func(*fleet, []string)
	}{
		"Suspect": {nil, func(w *fleet, nodes []string) { mute(w, nodes[0]) }},
		"one of many that are Suspect": {func(w *fleet, nodes []string) { mute(w, nodes[0]) },
			func(w *fleet, nodes []string) { mute(w, nodes[1]) }},
		"lost, and now without the guard": {func(w *fleet, nodes []string) { w.cut(nodes...) },
			func(w *fleet, nodes []string) { w.restore(nodes[1:]...) }},
		"paused, and the API server is away": {
			func(w *fleet, nodes []string) {
				w.announce(nodes[0], freezes("e", w.now.Add(35*time.Second)))
				mute(w, nodes[0])
			},
			func(w *fleet, _ []string) { w.outage = true }},
		"Down, and now deallocated": {stopped,
			func(w *fleet, nodes []string) { w.machines[nodes[0]].power = provisioner.PowerDeallocated }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			nodes := w.add(4, fast)
			w.sleep(10 * time.Second)
			if test.before != nil {
				test.before(w, nodes)
			}
			w.sleep(40 * time.Second)
			was := w.health(nodes[0])
			w.changed = nil
			test.change(w, nodes)
			w.sleep(20 * time.Second)
			if !slices.Contains(w.changed, nodes[0]) {
				t.Errorf("got the changes %v from %+v to %+v, want %s among them", w.changed, was, w.health(nodes[0]), nodes[0])
			}
		})
	}
	t.Run("several at once, in the order of their names", func(t *testing.T) {
		w := newFleet(t)
		nodes := w.add(2, fast)
		w.changed = nil
		w.take(w.detector.See(w.now, nodehealth.Removed(nodes[1]), nodehealth.Removed(nodes[0])))
		if !slices.Equal(w.changed, nodes) {
			t.Errorf("got the changes %v, want %v", w.changed, nodes)
		}
	})
}

func TestTheCallerHearsOfChangesAndOfTheEndOfTheGrace(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.changed = nil
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	if got := slices.Compact(w.changed); !slices.Equal(got, []string{n}) {
		t.Errorf("got the changes %v, want those of %s", got, n)
	}
	if got := w.detector.Doubted(); !slices.Equal(got, []string{n}) {
		t.Errorf("got the doubted nodes %v, want %s", got, n)
	}
	w.changed = nil
	w.sleep(30 * time.Second)
	if len(w.changed) != 0 {
		t.Errorf("got the changes %v while nothing happened, want none", w.changed)
	}
	w.sleep(30 * time.Second)
	if !slices.Equal(w.changed, []string{n}) {
		t.Errorf("got the changes %v at the end of the grace period, want %s", w.changed, n)
	}
	w.changed = nil
	w.see(nodehealth.Removed(n))
	if v, known := w.detector.Health(n, w.now); known || v.Fence() || !slices.Equal(w.changed, []string{n}) {
		t.Errorf("after it was removed: got %+v and the changes %v, want it unknown, and told", v, w.changed)
	}
}
