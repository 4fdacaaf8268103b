package liveness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// freezes is the announcement of a pause of ten seconds that may begin at a time.
func freezes(id string, notBefore time.Time) apiv1.MaintenanceEvent {
	seconds := int32(10)
	return apiv1.MaintenanceEvent{
		EventID: id, Kind: apiv1.MaintenanceFreeze, NotBefore: &metav1.Time{Time: notBefore}, DurationSeconds: &seconds,
	}
}

// announce has the node plug-in of a node report events.
func (w *world) announce(name string, events ...apiv1.MaintenanceEvent) {
	w.Helper()
	d := w.drivers[name].DeepCopy()
	d.Status.Maintenance = &apiv1.NodeMaintenance{Events: events}
	w.drivers[name] = d
	w.beat(name)
}

// pause stops a machine for a time, and fails the test if it is fenced in it.
func (w *world) pause(name string, d time.Duration) {
	w.Helper()
	w.cut(name)
	w.never(d, fenced)
	w.machines[name].beats, w.machines[name].answers = true, true
	w.beat(name)
	w.sleep(time.Second)
	if w.state(name) != nodehealth.Healthy {
		w.Errorf("after the pause: got %+v, want it Healthy", w.monitor.Health(name))
	}
}

// counted returns how many silences ended with a result.
func (w *world) counted(result string) int {
	w.Helper()
	all, err := w.registry.Gather()
	w.must(err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "azuredisk_liveness_announced_pauses_total" && m.GetLabel()[0].GetValue() == result {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func TestANodeSurvivesThePauseThatAzureHasAnnounced(t *testing.T) {
	for name, c := range map[string]func(*world, string){
		"an event that may begin": func(w *world, node string) { w.announce(node, freezes("e", w.clock.Now())) },
		"an event that has begun": func(w *world, node string) {
			e := freezes("e", w.clock.Now().Add(-time.Hour))
			e.Started, e.NotBefore = true, nil
			w.announce(node, e)
		},
		"an event that may have begun long ago": func(w *world, node string) {
			w.announce(node, freezes("e", w.clock.Now().Add(-20*time.Minute)))
		},
		"one of several events": func(w *world, node string) {
			reboot := freezes("a", w.clock.Now())
			reboot.Kind = apiv1.MaintenanceReboot
			w.announce(node, reboot, freezes("e", w.clock.Now()), freezes("f", w.clock.Now().Add(time.Hour)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			victim := w.addProbed(5)[0]
			c(w, victim)
			w.pause(victim, 14*time.Second)
			if got := w.counted("survived"); got != 1 {
				t.Errorf("got %d pauses counted as survived, want 1", got)
			}
		})
	}
}

func TestASilenceThatNoAnnouncementExcusesIsALoss(t *testing.T) {
	for name, c := range map[string]func(*world, string){
		"no event": func(w *world, node string) { w.announce(node) },
		"another kind": func(w *world, node string) {
			e := freezes("e", w.clock.Now())
			e.Kind = apiv1.MaintenanceRedeploy
			w.announce(node, e)
		},
		"an event of later":       func(w *world, node string) { w.announce(node, freezes("e", w.clock.Now().Add(time.Minute))) },
		"an event of long before": func(w *world, node string) { w.announce(node, freezes("e", w.clock.Now().Add(-time.Hour))) },
		"an event that has ended or was cancelled": func(w *world, node string) {
			w.announce(node, freezes("e", w.clock.Now()))
			w.announce(node)
		},
		"an event that was postponed": func(w *world, node string) {
			w.announce(node, freezes("e", w.clock.Now()))
			w.announce(node, freezes("e", w.clock.Now().Add(time.Hour)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			victim := w.addProbed(5)[0]
			c(w, victim)
			w.cut(victim)
			if took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost)); !lost || took > 3*time.Second {
				t.Errorf("got %+v after %s, want it lost within 3 s", w.monitor.Health(victim), took)
			}
		})
	}
}

func TestANodeThatIsSilentForLongerThanAnnouncedIsLost(t *testing.T) {
	w := newWorld(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.clock.Now()))
	w.cut(victim)
	took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost))
	if !lost || took < 15*time.Second || took > 16*time.Second || !w.monitor.Health(victim).Fence() {
		t.Errorf("got %+v after %s, want it lost after the announced 10 s and 5 s", w.monitor.Health(victim), took)
	}
	if got := w.counted("exceeded"); got != 1 {
		t.Errorf("got %d pauses counted as exceeded, want 1", got)
	}
}

func TestWhatAzureSaysOfAVMOverridesAnAnnouncement(t *testing.T) {
	for name, change := range map[string]func(*machine){
		"stopped": func(m *machine) { m.power = provisioner.PowerStopped },
		"gone":    func(m *machine) { m.gone = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			victim := w.addProbed(5)[0]
			w.announce(victim, freezes("e", w.clock.Now()))
			w.cut(victim)
			w.sleep(6 * time.Second)
			change(w.machines[victim])
			if took, down := w.pass(10*time.Second, w.is(victim, nodehealth.Down)); !down {
				t.Errorf("got %+v after %s, want it Down", w.monitor.Health(victim), took)
			}
		})
	}
}

// A node writes its announcements itself. The test is one that announces a new pause whenever it
// can, and answers probes in between without a heartbeat.
func TestLaw7AnnouncementsDelayAFenceOnlyForALimitedTime(t *testing.T) {
	w := newWorld(t)
	victim := w.addProbed(5)[0]
	events := []apiv1.MaintenanceEvent{}
	for i := range 8 {
		e := freezes(string(rune('a'+i)), w.clock.Now().Add(time.Duration(i)*10*time.Minute))
		forever := int32(1 << 30)
		e.DurationSeconds = &forever
		events = append(events, e)
	}
	excused, start := time.Duration(0), w.clock.Now()
	for w.clock.Since(start) < time.Hour {
		w.announce(victim, events...)
		w.sleep(time.Second)
		w.cut(victim)
		took, lost := w.pass(5*time.Minute, w.is(victim, nodehealth.Lost))
		if !lost {
			t.Fatalf("got %+v after %s, want it lost", w.monitor.Health(victim), took)
		}
		excused += max(took-3*time.Second, 0)
		w.machines[victim].beats, w.machines[victim].answers = true, true
	}
	if limit := nodehealth.DefaultPauseLimits.PerHour; excused > limit || excused < limit/2 {
		t.Errorf("got %s of silence excused in an hour, want at most %s, and not much less", excused, limit)
	}
	if w.counted("refused") == 0 {
		t.Error("no announcement was counted as refused")
	}
}

func TestLaw7AnAnsweredProbeDoesNotProlongAnExcuse(t *testing.T) {
	w := newWorld(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.clock.Now()))
	w.machines[victim].beats = false
	lost := false
	for took := time.Duration(0); !lost && took < time.Minute; took += 5 * time.Second {
		w.machines[victim].answers = false
		_, lost = w.pass(4500*time.Millisecond, w.is(victim, nodehealth.Lost))
		w.machines[victim].answers = true
		w.sleep(500 * time.Millisecond)
	}
	if !lost {
		t.Errorf("got %+v after a minute, want it lost: its announcement excuses 15 s", w.monitor.Health(victim))
	}
}

func TestAnAnnouncedPauseDoesNotHoldBackTheFenceOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	nodes := w.addProbed(3)
	w.announce(nodes[0], freezes("e", w.clock.Now()))
	w.cut(nodes[0], nodes[1])
	took, ended := w.pass(10*time.Second, func() bool { return w.monitor.Health(nodes[1]).Fence() })
	if !ended || took > 4*time.Second {
		t.Errorf("got %+v after %s, want that its fence may begin within 4 s", w.monitor.Health(nodes[1]), took)
	}
	if v := w.monitor.Health(nodes[0]); v.State != nodehealth.Suspect || !v.Paused {
		t.Errorf("the node that is paused: got %+v, want it Suspect and Paused", v)
	}
}

func TestTheNodesConditionIsReadWhereNothingFollowsTheMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		status   corev1.ConditionStatus
		follows  bool
		survives bool
	}{
		"an event": {corev1.ConditionTrue, false, true},
		"no event": {corev1.ConditionFalse, false, false},
		"an event that the metadata does not have": {corev1.ConditionTrue, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			victim := w.addProbed(5)[0]
			if c.follows {
				w.announce(victim)
			}
			n := &corev1.Node{}
			w.must(w.client.Get(t.Context(), client.ObjectKey{Name: victim}, n))
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: "VMEventScheduled", Status: c.status,
				Message: "Freeze Scheduled: " + w.clock.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + ". EventId: E",
			}}
			w.must(w.client.Status().Update(t.Context(), n))
			w.cut(victim)
			took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
			if lost == c.survives {
				t.Errorf("got %+v after %s, want that it survives: %t", w.monitor.Health(victim), took, c.survives)
			}
		})
	}
}

func TestTheConditionNamesTheEndOfAnAnnouncedPause(t *testing.T) {
	w := newWorld(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.clock.Now()))
	until := w.clock.Now().Add(15 * time.Second).UTC().Format(time.RFC3339)
	w.cut(victim)
	w.sleep(4 * time.Second)
	c := nodehealth.Condition(w.monitor.Health(victim))
	if c.Status != metav1.ConditionUnknown || c.Reason != apiv1.ReasonMaintenance || !strings.Contains(c.Message, until) {
		t.Errorf("got %+v, want Unknown, %s and the time %s", c, apiv1.ReasonMaintenance, until)
	}
	d := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{c}}}
	if state, _ := nodehealth.Published(d); state != nodehealth.Suspect {
		t.Errorf("the published state: got %s, want %s", state, nodehealth.Suspect)
	}
	if problems, err := testutil.GatherAndLint(w.registry); err != nil || len(problems) > 0 {
		t.Errorf("the metrics: %v, %v", problems, err)
	}
}

// The process stands still with its machine, and nodes were silent only for it.
func TestAProcessThatStoodStillDoesNotJudgeByItsOwnSilence(t *testing.T) {
	for _, still := range []time.Duration{2100 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second, 10 * time.Minute} {
		w := newWorld(t)
		nodes := w.addProbed(5)
		victim := nodes[0]
		// The last thing that the process sees is that a node does not answer.
		w.cut(victim)
		w.sleep(1750 * time.Millisecond)
		w.clock.Step(still)
		if v := w.monitor.Health(victim); v.Fence() {
			t.Errorf("stood still for %s: got %+v before a look at the node", still, v)
		}
		// It was paused as well, and goes on a little later.
		w.never(1500*time.Millisecond, fenced)
		w.machines[victim].beats, w.machines[victim].answers = true, true
		w.beat(victim)
		w.never(time.Minute, fenced)
		if w.state(victim) != nodehealth.Healthy {
			t.Errorf("stood still for %s: got %+v, want it Healthy", still, w.monitor.Health(victim))
		}
		w.cut(victim)
		if took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost)); !lost || took > 4*time.Second {
			t.Errorf("stood still for %s: got %+v after %s, want it lost as any other", still, w.monitor.Health(victim), took)
		}
	}
}

// A judgement from before the standstill begins no fence.
func TestAProcessThatStoodStillFencesNothingByAnOldJudgement(t *testing.T) {
	w := newWorld(t, func(o *liveness.Options) { o.Patience = time.Second })
	victim := w.addProbed(5)[0]
	w.cut(victim)
	w.pass(10*time.Second, w.is(victim, nodehealth.Lost))
	if !w.monitor.Health(victim).Fence() {
		t.Fatalf("got %+v, want that its fence may begin", w.monitor.Health(victim))
	}
	w.clock.Step(3 * time.Second)
	if v := w.monitor.Health(victim); v.Fence() || v.State != nodehealth.Lost {
		t.Errorf("after the standstill: got %+v, want it Lost, and no fence by a judgement of before", v)
	}
	if _, fence := w.pass(10*time.Second, func() bool { return w.monitor.Health(victim).Fence() }); !fence {
		t.Errorf("some seconds later: got %+v, want that its fence may begin", w.monitor.Health(victim))
	}
}
