package liveness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	fast = 2 * time.Second
	slow = 30 * time.Second
)

func TestAPowerCutIsDetectedWithinTenSecondsOfTheLastHeartbeat(t *testing.T) {
	for _, phase := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1750 * time.Millisecond} {
		w := newWorld(t)
		nodes := w.add(5, fast)
		w.sleep(40*time.Second + phase)
		last := w.machines[nodes[0]].next.Add(-fast)
		cut := w.clock.Now()
		w.cut(nodes[0])
		w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
		v := w.monitor.Health(nodes[0])
		if took := w.clock.Since(last); took > 10*time.Second || took < 6*time.Second || !v.Fence() || v.SilentFrom != cut {
			t.Errorf("phase %s: after %s: %+v", phase, took, v)
		}
		for _, n := range nodes[1:] {
			if w.state(n) != nodehealth.Healthy {
				t.Errorf("%s: %+v", n, w.monitor.Health(n))
			}
		}
		if n := testutil.ToFloat64(gauge{w.registry, "azuredisk_failover_nodes_lost"}); n != 1 {
			t.Errorf("%v nodes lost in the metrics", n)
		}
	}
}

func TestASingleLossAmongSlowNodesIsNotTakenForAMassLoss(t *testing.T) {
	w := newWorld(t)
	quiet, victim := w.add(20, slow), w.add(1, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(victim)
	took, lost := w.pass(20*time.Second, func() bool { return w.monitor.Health(victim).Fence() })
	if !lost || took > 10*time.Second {
		t.Fatalf("after %s: %+v", took, w.monitor.Health(victim))
	}
	if n := w.probes[quiet[0]]; n > 4 {
		t.Errorf("a node that is well was probed %d times", n)
	}
}

func TestAnOutageOfTheAPIServerMakesNoNodeLost(t *testing.T) {
	w := newWorld(t)
	w.add(5, fast)
	w.sleep(40 * time.Second)
	w.outage = true
	w.never(30*time.Second, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Healthy })
	w.outage = false
	w.never(30*time.Second, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Healthy })
}

func TestANodeThatDiesWhileTheAPIServerIsAwayIsLostAfterwards(t *testing.T) {
	w := newWorld(t)
	victim := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.outage = true
	w.cut(victim)
	w.never(30*time.Second, fenced)
	w.outage = false
	w.never(5*time.Second, fenced)
	if took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost)); !lost || took > 5*time.Second {
		t.Errorf("after %s: %+v", took, w.monitor.Health(victim))
	}
}

func TestALostNodeStaysSilentOverAnOutageAndIsLostAgain(t *testing.T) {
	w := newWorld(t)
	victim := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(victim)
	w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	w.outage = true
	w.sleep(10 * time.Second)
	if w.state(victim) != nodehealth.Suspect {
		t.Errorf("without the API server: %+v", w.monitor.Health(victim))
	}
	w.outage = false
	_, alive := w.pass(20*time.Second, w.is(victim, nodehealth.Healthy))
	if alive || w.state(victim) != nodehealth.Lost {
		t.Errorf("afterwards: %+v", w.monitor.Health(victim))
	}
}

func TestAPartitionOfTheControllerIsHeldBack(t *testing.T) {
	for name, intervals := range map[string][2]int{"fast nodes": {6, 0}, "few fast nodes among slow ones": {1, 12}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for range intervals[0] { // out of step with each other
				w.add(1, fast)
				w.sleep(250 * time.Millisecond)
			}
			w.add(intervals[1], slow)
			w.sleep(2 * time.Minute)
			w.cut(w.names...)
			w.never(5*time.Minute, fenced)
			v := w.monitor.Health(w.names[0])
			if v.State != nodehealth.Lost || !v.MassLoss || !strings.Contains(v.HeldBack, "seem lost at once") {
				t.Errorf("%+v", v)
			}
			if n := testutil.ToFloat64(gauge{w.registry, "azuredisk_failover_guard_active"}); n != 1 {
				t.Errorf("guard active: %v", n)
			}
			// They recover one after the other, and until then the last must not be fenced.
			for _, n := range w.names {
				w.machines[n].beats, w.machines[n].answers = true, true
				w.never(250*time.Millisecond, fenced)
			}
			w.never(time.Minute, fenced)
			for _, n := range w.names {
				if w.state(n) != nodehealth.Healthy {
					t.Errorf("%s: %+v", n, w.monitor.Health(n))
				}
			}
		})
	}
}

// One of four nodes was lost and everything was taken from it. When a second one lost its power a
// minute later, the guard counted both, and nothing moved.
func TestTheGuardDoesNotCountANodeFromWhichEverythingWasTaken(t *testing.T) {
	for name, test := range map[string]struct {
		taint, proof bool
		restart      bool
		fenced       bool
	}{
		"its failover is over":                                       {taint: true, proof: true, fenced: true},
		"its failover is over, and another process leads":            {taint: true, proof: true, restart: true, fenced: true},
		"a volume of it still has no proof":                          {taint: true, fenced: false},
		"its volume was released by other means, without a failover": {proof: true, fenced: false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			nodes := w.add(4, fast)
			w.sleep(40 * time.Second)
			w.cut(nodes[0])
			w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
			w.failOver(nodes[0], test.taint, test.proof)
			w.sleep(time.Minute)
			w.cut(nodes[1])
			if test.restart {
				for _, name := range w.names { // as the ConditionWriter has it written
					w.drivers[name].Status.Conditions = []metav1.Condition{{
						Type:   apiv1.NodeConditionProbeable,
						Status: metav1.ConditionTrue,
					}}
				}
				w.restart()
			}
			took, got := w.pass(20*time.Second, func() bool { return w.monitor.Health(nodes[1]).Fence() })
			if got != test.fenced {
				t.Errorf("the second node may be fenced: got %t, want %t; after %s: %+v", got, test.fenced, took,
					w.monitor.Health(nodes[1]))
			}
			if v := w.monitor.Health(nodes[1]); v.Guarded() == test.fenced {
				t.Errorf("the guard holds the second node back: got %t, want %t: %+v", v.Guarded(), !test.fenced, v)
			}
			if !test.fenced {
				return
			}
			// Two of the three that are left: now the guard is right to doubt.
			w.cut(nodes[2])
			w.pass(20*time.Second, w.is(nodes[2], nodehealth.Lost))
			if v := w.monitor.Health(nodes[2]); !v.Guarded() || !strings.Contains(v.HeldBack, "2 of 3 nodes") {
				t.Errorf("the third node: got %+v, want it held back because 2 of 3 nodes seem lost", v)
			}
			if v := w.monitor.Health(nodes[0]); v.HeldBack != "" {
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
			w := newWorld(t)
			nodes := w.add(2, fast)
			w.sleep(40 * time.Second)
			for _, n := range nodes { // both at once: the guard does not count a VM that Azure reports as down
				w.cut(n)
				stop(w.machines[n])
			}
			took, down := w.pass(20*time.Second,
				func() bool { return w.state(nodes[0]) == nodehealth.Down && w.state(nodes[1]) == nodehealth.Down })
			if !down || took > 5*time.Second || !w.monitor.Health(nodes[0]).Fence() {
				t.Fatalf("after %s: %+v", took, w.monitor.Health(nodes[0]))
			}
			// It holds as long as Azure says so, also while Azure says nothing.
			w.machines[nodes[0]].gone, w.machines[nodes[0]].power = false, ""
			w.never(time.Minute, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Down })
			w.beat(nodes[0])
			if w.state(nodes[0]) != nodehealth.Healthy {
				t.Errorf("after a heartbeat: %+v", w.monitor.Health(nodes[0]))
			}
		})
	}
}

func TestAnOldAnswerOfAzureDoesNotOutliveAHeartbeat(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.machines[n].power = provisioner.PowerStopped
	w.pass(20*time.Second, w.is(n, nodehealth.Down))
	w.machines[n].power, w.machines[n].beats, w.machines[n].answers = provisioner.PowerRunning, true, true
	w.pass(5*time.Second, w.is(n, nodehealth.Healthy))
	w.never(time.Minute, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Healthy })
}

func TestANodeThatOnlyLostTheAPIServerStaysSilent(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].beats = false
	w.never(10*time.Minute, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost || v.State == nodehealth.Down })
	if v := w.monitor.Health(n); v.State != nodehealth.Suspect || !strings.Contains(v.Evidence, "answers probes") {
		t.Errorf("%+v", v)
	}
	if n := w.questions[n]; n < 10 || n > 40 {
		t.Errorf("%d questions to Azure in ten minutes", n)
	}
	// If it dies then, it is nevertheless lost.
	w.cut(n)
	if took, lost := w.pass(time.Minute, w.is(n, nodehealth.Lost)); !lost || took > 10*time.Second {
		t.Errorf("after %s: %+v", took, w.monitor.Health(n))
	}
}

func TestAHeartbeatOrAnAnswerBringsANodeBack(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	w.machines[n].answers = true
	if took, silent := w.pass(time.Minute, w.is(n, nodehealth.Suspect)); !silent || took > 2*time.Second {
		t.Errorf("after %s: %+v", took, w.monitor.Health(n))
	}
	// Its clock may be anything after a reboot.
	w.machines[n].beats, w.machines[n].next = true, w.clock.Now()
	if took, alive := w.pass(time.Minute, w.is(n, nodehealth.Healthy)); !alive || took != 0 {
		t.Errorf("after %s: %+v", took, w.monitor.Health(n))
	}
}

func TestASlowPromiseIsGivenItsTime(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, slow)[0]
	w.sleep(2 * time.Minute)
	last := w.machines[n].next.Add(-slow)
	w.cut(n)
	w.pass(5*time.Minute, w.is(n, nodehealth.Lost))
	if took := w.clock.Since(last); took < 75*time.Second || took > 78*time.Second {
		t.Errorf("lost after %s", took)
	}
}

func TestANodeWithoutAHeartbeatHasItsGrace(t *testing.T) {
	w := newWorld(t)
	w.add(4, fast)
	w.sleep(40 * time.Second)
	n := w.add(1, fast)[0]
	w.machines[n].beats = false
	w.never(5*time.Second, func(v nodehealth.Judgement) bool { return v.State != nodehealth.Healthy })
	w.sleep(3 * time.Second)
	if w.state(n) != nodehealth.Suspect {
		t.Errorf("%+v", w.monitor.Health(n))
	}
	if v := w.monitor.Health("unknown"); v.State != nodehealth.Healthy || v.Fence() {
		t.Errorf("a node that was never observed: %+v", v)
	}
}

func TestWhereProbesNeverWorkedTheLeaseDecides(t *testing.T) {
	w := newWorld(t, func(o *liveness.Options) { o.Prober = nil })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.lease(n, w.clock.Now())
	w.machines[n].beats = false
	for range 6 {
		w.never(10*time.Second, fenced)
		w.lease(n, w.clock.Now())
	}
	if took, lost := w.pass(2*time.Minute, w.is(n, nodehealth.Lost)); !lost || took < 40*time.Second || took > 60*time.Second {
		t.Errorf("after %s: %+v", took, w.monitor.Health(n))
	}
}

func TestProbesThatHeartbeatsContradictDoNotCount(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].answers = false // a firewall
	w.sleep(3 * time.Minute)
	w.machines[n].beats = false
	w.never(time.Minute, fenced)
}

func TestACacheThatWasCutOffMakesNoNodeLost(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].beats, w.machines[n].answers = false, false
	for range 30 { // the API server has heartbeats, but no event about them came
		w.write(n)
		w.never(time.Second, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost })
	}
}

func TestAzureIsAskedOnlyForLateNodesThatHoldAPrimary(t *testing.T) {
	w := newWorld(t)
	nodes := w.add(6, fast)
	w.must(w.client.Delete(t.Context(), &apiv1.AzVolumeAttachment{ObjectMeta: metaName("vol-" + nodes[1])}))
	w.sleep(40 * time.Second)
	w.cut(nodes[:2]...)
	w.sleep(22 * time.Second)
	if len(w.questions) != 1 || w.questions[nodes[0]] < 2 || w.questions[nodes[0]] > 3 {
		t.Errorf("questions %v", w.questions)
	}
}

func TestAzureIsAskedOfALostNodeLessOftenThanItsQuotaGrows(t *testing.T) {
	w := newWorld(t)
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
	w := newWorld(t, func(o *liveness.Options) { o.Enabled = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.cut(n)
	w.never(20*time.Second, fenced)
	if v := w.monitor.Health(n); v.State != nodehealth.Lost || !strings.Contains(v.HeldBack, "switched off") || v.MassLoss {
		t.Errorf("%+v", v)
	}
	if len(w.questions) > 0 {
		t.Errorf("questions %v", w.questions)
	}
}

func TestSubscribersHearOfChangesAndOfTheEndOfTheGrace(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	early, late := newQueue(), newQueue()
	w.must(w.monitor.Subscribe().Start(t.Context(), early))
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	w.must(w.monitor.Subscribe().Start(t.Context(), late))
	for i, q := range []workqueue.TypedRateLimitingInterface[reconcile.Request]{early, late} {
		if q.Len() != 1 {
			t.Fatalf("queue %d: %d requests", i, q.Len())
		}
		request, _ := q.Get()
		q.Done(request)
		if request.Name != n || request.Namespace != namespace {
			t.Errorf("request %v", request)
		}
	}
	w.sleep(30 * time.Second)
	if early.Len() != 0 {
		t.Errorf("%d requests while nothing happened", early.Len())
	}
	w.sleep(30 * time.Second)
	if early.Len() != 1 {
		t.Errorf("%d requests at the end of the grace", early.Len())
	}
}
