package nodehealth_test

import (
	"slices"
	"strings"
	"testing"
	"time"

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
		if took := w.now.Sub(last); took > 10*time.Second || took < 6*time.Second || !v.Fence() || v.SilentFrom != cut {
			t.Errorf("phase %s: after %s: %+v", phase, took, v)
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
		over, restart bool
		fenced        bool
	}{
		"its failover is over":                            {over: true, fenced: true},
		"its failover is over, and another process leads": {over: true, restart: true, fenced: true},
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
			if !down || took > 5*time.Second || !w.health(nodes[0]).Fence() {
				t.Fatalf("after %s: %+v", took, w.health(nodes[0]))
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
	if took, lost := w.pass(2*time.Minute, w.is(n, nodehealth.Lost)); !lost || took < 40*time.Second || took > 60*time.Second {
		t.Errorf("after %s: %+v", took, w.health(n))
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
	w.sleep(40 * time.Second)
	w.publish()                   // that probes reach the node
	w.machines[n].answers = false // a firewall
	w.sleep(3 * time.Minute)
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
	if len(w.questions) > 0 {
		t.Errorf("questions %v", w.questions)
	}
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
