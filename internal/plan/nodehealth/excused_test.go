package nodehealth_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// freezes is the announcement of a pause of ten seconds that may begin at a time.
func freezes(id string, notBefore time.Time) apiv1.MaintenanceEvent {
	seconds := int32(10)
	return apiv1.MaintenanceEvent{
		EventID: id, Type: apiv1.MaintenanceFreeze, NotBeforeTime: &metav1.Time{Time: notBefore}, DurationSeconds: &seconds,
	}
}

// announce has the node plug-in of a node report events.
func (w *fleet) announce(name string, events ...apiv1.MaintenanceEvent) {
	w.Helper()
	w.change(name, func(d *apiv1.AzDriverNode) { d.Status.Maintenance = &apiv1.NodeMaintenance{Events: events} })
	w.beat(name)
}

// pause stops a machine for a time, and fails the test if it is fenced in it.
func (w *fleet) pause(name string, d time.Duration) {
	w.Helper()
	w.cut(name)
	w.never(d, fenced)
	w.restore(name)
	w.sleep(time.Second)
	if w.state(name) != nodehealth.Healthy {
		w.Errorf("after the pause: got %+v, want it Healthy", w.health(name))
	}
}

func TestANodeSurvivesThePauseThatAzureHasAnnounced(t *testing.T) {
	for name, c := range map[string]func(*fleet, string){
		"an event that may begin": func(w *fleet, node string) { w.announce(node, freezes("e", w.now)) },
		"an event that has begun": func(w *fleet, node string) {
			e := freezes("e", w.now.Add(-time.Hour))
			e.Started, e.NotBeforeTime = true, nil
			w.announce(node, e)
		},
		"an event that has begun, with the time of before": func(w *fleet, node string) {
			e := freezes("e", w.now.Add(-time.Hour))
			e.Started = true
			w.announce(node, e)
		},
		"an event without a time": func(w *fleet, node string) {
			e := freezes("e", w.now)
			e.NotBeforeTime = nil
			w.announce(node, e)
		},
		"an event that may have begun long ago": func(w *fleet, node string) {
			w.announce(node, freezes("e", w.now.Add(-20*time.Minute)))
		},
		"one of several events": func(w *fleet, node string) {
			reboot := freezes("a", w.now)
			reboot.Type = apiv1.MaintenanceReboot
			w.announce(node, reboot, freezes("e", w.now), freezes("f", w.now.Add(time.Hour)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			victim := w.addProbed(5)[0]
			c(w, victim)
			w.pause(victim, 14*time.Second)
			if got := w.pauses[nodehealth.PauseSurvived]; got != 1 {
				t.Errorf("got %d pauses counted as survived, want 1", got)
			}
		})
	}
}

func TestASilenceThatNoAnnouncementExcusesIsALoss(t *testing.T) {
	for name, c := range map[string]func(*fleet, string){
		"no event": func(w *fleet, node string) { w.announce(node) },
		"another kind": func(w *fleet, node string) {
			e := freezes("e", w.now)
			e.Type = apiv1.MaintenanceRedeploy
			w.announce(node, e)
		},
		"an event of later":       func(w *fleet, node string) { w.announce(node, freezes("e", w.now.Add(time.Minute))) },
		"an event of long before": func(w *fleet, node string) { w.announce(node, freezes("e", w.now.Add(-time.Hour))) },
		"an event that has begun, and was seen first long before": func(w *fleet, node string) {
			e := freezes("e", w.now)
			e.Started = true
			w.announce(node, e)
			w.sleep(31 * time.Minute)
			w.beat(node)
		},
		"an event that has ended or was cancelled": func(w *fleet, node string) {
			w.announce(node, freezes("e", w.now))
			w.announce(node)
		},
		"an event that was postponed": func(w *fleet, node string) {
			w.announce(node, freezes("e", w.now))
			w.announce(node, freezes("e", w.now.Add(time.Hour)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			victim := w.addProbed(5)[0]
			c(w, victim)
			w.cut(victim)
			if took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost)); !lost || took > 3*time.Second {
				t.Errorf("got %+v after %s, want it lost within 3 s", w.health(victim), took)
			}
			if len(w.pauses) > 0 {
				t.Errorf("got the results %v of excused silences, want none", w.pauses)
			}
		})
	}
}

func TestANodeThatIsSilentForLongerThanAnnouncedIsLost(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	w.cut(victim)
	took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost))
	if most := 15*time.Second + nodehealth.ConnectionTimeout; !lost || took < 15*time.Second || took > most ||
		!w.health(victim).Fence() {
		t.Errorf("got %+v after %s, want it lost after the announced 10 s and 5 s, and the time in which a connection to "+
			"another node would end", w.health(victim), took)
	}
	if got := w.pauses[nodehealth.PauseExceeded]; got != 1 {
		t.Errorf("got %d pauses counted as exceeded, want 1", got)
	}
}

func TestWhatAzureSaysOfAVMOverridesAnAnnouncement(t *testing.T) {
	for name, change := range map[string]func(*machine){
		"stopped": func(m *machine) { m.power = provisioner.PowerStopped },
		"gone":    func(m *machine) { m.gone = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			victim := w.addProbed(5)[0]
			w.announce(victim, freezes("e", w.now))
			w.cut(victim)
			w.sleep(6 * time.Second)
			change(w.machines[victim])
			if took, down := w.pass(10*time.Second, w.is(victim, nodehealth.Down)); !down || w.health(victim).Paused {
				t.Errorf("got %+v after %s, want it Down and not Paused", w.health(victim), took)
			}
		})
	}
}

// A node writes its announcements itself. The test is one that announces a new pause whenever it
// can, and answers probes in between without a heartbeat.
func TestLaw7AnnouncementsDelayAFenceOnlyForALimitedTime(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	events := []apiv1.MaintenanceEvent{}
	for i := range 8 {
		e := freezes(string(rune('a'+i)), w.now.Add(time.Duration(i)*10*time.Minute))
		forever := int32(1 << 30)
		e.DurationSeconds = &forever
		events = append(events, e)
	}
	excused, start := time.Duration(0), w.now
	for w.now.Sub(start) < time.Hour {
		w.announce(victim, events...)
		w.sleep(time.Second)
		w.cut(victim)
		took, lost := w.pass(5*time.Minute, w.is(victim, nodehealth.Lost))
		if !lost {
			t.Fatalf("got %+v after %s, want it lost", w.health(victim), took)
		}
		excused += max(took-3*time.Second, 0)
		w.machines[victim].beats, w.machines[victim].answers = true, true
	}
	if limit := nodehealth.DefaultPauseLimits.PerHour; excused > limit || excused < limit/2 {
		t.Errorf("got %s of silence excused in an hour, want at most %s, and not much less", excused, limit)
	}
	if w.pauses[nodehealth.PauseRefused] == 0 {
		t.Error("no announcement was counted as refused")
	}
}

func TestALossIsCountedOnceAsRefused(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.PauseLimits = nodehealth.PauseLimits{PerHour: time.Minute} })
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	if w.sleep(10 * time.Second); w.pauses[nodehealth.PauseRefused] != 0 {
		t.Errorf("got the results %v while the node is well, want none", w.pauses)
	}
	w.cut(victim)
	w.pass(10*time.Second, w.is(victim, nodehealth.Lost))
	if w.sleep(10 * time.Second); w.pauses[nodehealth.PauseRefused] != 1 || len(w.pauses) != 1 {
		t.Errorf("got the results %v, want one that was refused", w.pauses)
	}
}

func TestAnEventIsNewOnce(t *testing.T) {
	w := newFleet(t)
	n := w.add(1, fast)[0]
	e, f := freezes("e", w.now), freezes("f", w.now)
	for _, step := range []struct{ events, want []apiv1.MaintenanceEvent }{
		{[]apiv1.MaintenanceEvent{e}, []apiv1.MaintenanceEvent{e}},
		{[]apiv1.MaintenanceEvent{e}, nil},
		{[]apiv1.MaintenanceEvent{e, f}, []apiv1.MaintenanceEvent{f}},
	} {
		w.change(n, func(d *apiv1.AzDriverNode) { d.Status.Maintenance = &apiv1.NodeMaintenance{Events: step.events} })
		got := w.detector.See(w.now, nodehealth.Report{AzDriverNode: w.machines[n].driver}).Announced
		if !equality.Semantic.DeepEqual(got, step.want) {
			t.Errorf("got the new events %+v, want %+v", got, step.want)
		}
	}
}

func TestANodeThatSendsHeartbeatsIsNotPaused(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.announce(n, freezes("e", w.now))
	w.never(14*time.Second, func(j nodehealth.Judgement) bool { return j.Paused })
}

// A node that probes do not reach gives no sign of life before its next heartbeat.
func TestThePauseOfANodeThatIsNotProbedBeginsAtItsNextHeartbeat(t *testing.T) {
	w := newFleet(t)
	victim := w.add(5, slow)[0]
	w.machines[victim].answers = false
	w.sleep(time.Minute)
	e, forever := freezes("e", w.now.Add(20*time.Second)), int32(1<<30)
	e.DurationSeconds = &forever
	w.announce(victim, e)
	w.cut(victim)
	if w.sleep(80 * time.Second); !w.health(victim).Paused {
		t.Errorf("got %+v, want it Paused for a minute after the heartbeat that was due after 30 s", w.health(victim))
	}
	if w.sleep(12 * time.Second); w.health(victim).Paused {
		t.Errorf("got %+v, want its pause over", w.health(victim))
	}
}

func TestLaw7AnAnsweredProbeDoesNotProlongAnExcuse(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	w.machines[victim].beats = false
	lost := false
	for took := time.Duration(0); !lost && took < time.Minute; took += 5 * time.Second {
		w.machines[victim].answers = false
		_, lost = w.pass(4500*time.Millisecond, w.is(victim, nodehealth.Lost))
		w.machines[victim].answers = true
		w.sleep(500 * time.Millisecond)
	}
	if !lost {
		t.Errorf("got %+v after a minute, want it lost: its announcement excuses 15 s", w.health(victim))
	}
}

// Azure may remove the event before the node is back.
func TestAnEventThatIsRemovedDoesNotEndThePause(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	w.cut(victim)
	w.sleep(5 * time.Second)
	w.change(victim, func(d *apiv1.AzDriverNode) { d.Status.Maintenance = &apiv1.NodeMaintenance{} })
	w.report(victim)
	w.never(9*time.Second, fenced)
	if v := w.health(victim); !v.Paused {
		t.Errorf("got %+v, want it Paused", v)
	}
}

// The announcement as it is now counts, also during the pause.
func TestAnEventThatIsChangedDuringThePauseCounts(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	e := freezes("e", w.now)
	w.announce(victim, e)
	w.cut(victim)
	w.sleep(5 * time.Second)
	e.DurationSeconds = nil // the longest that Azure documents
	w.change(victim, func(d *apiv1.AzDriverNode) { d.Status.Maintenance.Events = []apiv1.MaintenanceEvent{e} })
	w.report(victim)
	if w.never(29*time.Second, fenced); len(w.pauses) > 0 {
		t.Errorf("got the results %v during the pause, want none", w.pauses)
	}
	if took, lost := w.pass(5*time.Second, w.is(victim, nodehealth.Lost)); !lost {
		t.Errorf("got %+v after another %s, want it lost", w.health(victim), took)
	}
}

func TestAnOutageOfTheAPIServerDoesNotEndAPause(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	w.cut(victim)
	w.sleep(4 * time.Second)
	w.outage = true
	w.sleep(6 * time.Second)
	if v := w.health(victim); v.Paused || v.State != nodehealth.Suspect {
		t.Errorf("without the API server: got %+v, want it Suspect, and not Paused", v)
	}
	w.outage = false
	w.sleep(2 * time.Second)
	w.restore(victim)
	w.sleep(time.Second)
	if len(w.pauses) != 1 || w.pauses[nodehealth.PauseSurvived] != 1 {
		t.Errorf("got the results %v, want one that was survived", w.pauses)
	}
}

func TestAPauseEndsWithItsExcuseAlsoIfTheNodeAnswersProbes(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	w.cut(victim)
	w.sleep(14 * time.Second)
	w.machines[victim].answers = true
	w.sleep(10 * time.Second)
	if v := w.health(victim); v.State != nodehealth.Suspect || w.pauses[nodehealth.PauseExceeded] != 1 {
		t.Errorf("got %+v and the results %v, want it Suspect, and one that was exceeded", v, w.pauses)
	}
}

func TestAnAnnouncedPauseDoesNotHoldBackTheFenceOfAnotherNode(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(3)
	w.announce(nodes[0], freezes("e", w.now))
	w.cut(nodes[0], nodes[1])
	took, ended := w.pass(10*time.Second, w.fence(nodes[1]))
	if !ended || took > 4*time.Second {
		t.Errorf("got %+v after %s, want that its fence may begin within 4 s", w.health(nodes[1]), took)
	}
	if v := w.health(nodes[0]); v.State != nodehealth.Suspect || !v.Paused {
		t.Errorf("the node that is paused: got %+v, want it Suspect and Paused", v)
	}
}

func TestTheNodesConditionCountsWhereNothingFollowsTheMetadata(t *testing.T) {
	for name, c := range map[string]struct{ announced, follows, survives bool }{
		"an event": {announced: true, survives: true},
		"no event": {},
		"an event that the metadata does not have": {announced: true, follows: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			victim := w.addProbed(5)[0]
			if c.follows {
				w.announce(victim)
			}
			if c.announced {
				w.machines[victim].announced = []apiv1.MaintenanceEvent{freezes("e", w.now)}
			}
			w.cut(victim)
			took, lost := w.pass(14*time.Second, w.is(victim, nodehealth.Lost))
			if lost == c.survives {
				t.Errorf("got %+v after %s, want that it survives: %t", w.health(victim), took, c.survives)
			}
		})
	}
}

func TestTheConditionNamesTheEndOfAnAnnouncedPause(t *testing.T) {
	w := newFleet(t)
	victim := w.addProbed(5)[0]
	w.announce(victim, freezes("e", w.now))
	until := w.now.Add(15 * time.Second).UTC().Format(time.RFC3339)
	w.cut(victim)
	w.sleep(4 * time.Second)
	c := nodehealth.Condition(w.health(victim))
	if c.Status != metav1.ConditionUnknown || c.Reason != apiv1.ReasonNodeMaintenance || !strings.Contains(c.Message, until) {
		t.Errorf("got %+v, want Unknown, %s and the time %s", c, apiv1.ReasonNodeMaintenance, until)
	}
	d := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{c}}}
	if state, _ := nodehealth.Published(d); state != nodehealth.Suspect {
		t.Errorf("the published state: got %s, want %s", state, nodehealth.Suspect)
	}
}

// The process stands still with its machine, and nodes were silent only for it.
func TestAProcessThatStoodStillDoesNotJudgeByItsOwnSilence(t *testing.T) {
	for _, still := range []time.Duration{2100 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second, 10 * time.Minute} {
		w := newFleet(t)
		nodes := w.addProbed(5)
		victim := nodes[0]
		// The last thing that the process sees is that a node does not answer.
		w.cut(victim)
		w.sleep(1750 * time.Millisecond)
		w.now = w.now.Add(still)
		if v := w.health(victim); v.Fence() {
			t.Errorf("stood still for %s: got %+v before a look at the node", still, v)
		}
		// It was paused as well, and goes on a little later.
		w.never(1500*time.Millisecond, fenced)
		w.restore(victim)
		w.never(time.Minute, fenced)
		if w.state(victim) != nodehealth.Healthy {
			t.Errorf("stood still for %s: got %+v, want it Healthy", still, w.health(victim))
		}
		w.cut(victim)
		if took, lost := w.pass(time.Minute, w.is(victim, nodehealth.Lost)); !lost || took > 4*time.Second {
			t.Errorf("stood still for %s: got %+v after %s, want it lost as any other", still, w.health(victim), took)
		}
	}
}

// A judgement from before the standstill begins no fence.
func TestAProcessThatStoodStillFencesNothingByAnOldJudgement(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Patience = time.Second })
	victim := w.addProbed(5)[0]
	w.cut(victim)
	w.pass(10*time.Second, w.is(victim, nodehealth.Lost))
	if !w.health(victim).Fence() {
		t.Fatalf("got %+v, want that its fence may begin", w.health(victim))
	}
	if v, _ := w.detector.Health(victim, w.now.Add(2*time.Second)); !v.Fence() {
		t.Errorf("two seconds after the last look: got %+v, want that its fence may begin", v)
	}
	w.now = w.now.Add(3 * time.Second)
	if v := w.health(w.names[1]); v.HeldBack != "" {
		t.Errorf("a node that is well: got held back (%s), want not", v.HeldBack)
	}
	if v := w.health(victim); v.Fence() || v.State != nodehealth.Lost {
		t.Errorf("after the standstill: got %+v, want it Lost, and no fence by a judgement of before", v)
	}
	if _, fence := w.pass(10*time.Second, w.fence(victim)); !fence {
		t.Errorf("some seconds later: got %+v, want that its fence may begin", w.health(victim))
	}
}

func TestAStandstillDoesNotReplaceOtherEvidence(t *testing.T) {
	for name, test := range map[string]struct {
		power provisioner.PowerState
		cut   int
		held  string
	}{
		"Azure says that the VM is down": {provisioner.PowerDeallocated, 1, ""},
		"the guard holds the fence back": {provisioner.PowerRunning, 4, "seem lost at once"},
	} {
		w := newFleet(t)
		nodes := w.addProbed(5)
		w.switchOff(test.power, nodes[:test.cut]...)
		w.sleep(20 * time.Second)
		w.now = w.now.Add(3 * time.Second)
		if v := w.health(nodes[0]); !strings.Contains(v.HeldBack, test.held) || (v.HeldBack == "") != (test.held == "") {
			t.Errorf("%s: got held back (%s), want (%s)", name, v.HeldBack, test.held)
		}
	}
}

// An announcement excuses a silence. A node that answers is not silent: if it were left out of the
// population, two lost nodes of five would be two of two, and the guard against mass loss would
// hold their fences back.
func TestAnAnnouncedPauseTakesNoNodeThatAnswersOutOfThePopulation(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(5)
	for _, name := range nodes[:3] {
		w.announce(name, freezes("e", w.now))
	}
	w.cut(nodes[3], nodes[4])
	both := func() bool { return w.health(nodes[3]).Fence() && w.health(nodes[4]).Fence() }
	if took, ended := w.pass(10*time.Second, both); !ended {
		t.Errorf("got %+v and %+v after %s, want that both fences may begin", w.health(nodes[3]),
			w.health(nodes[4]), took)
	}
}
