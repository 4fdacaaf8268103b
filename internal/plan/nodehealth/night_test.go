package nodehealth_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// drain removes the volumes of nodes, as an autoscaler does before it switches them off.
func (w *fleet) drain(names ...string) {
	for _, n := range names {
		w.machines[n].primary = false
	}
}

// switchOff cuts nodes as Azure does, which reports the power state.
func (w *fleet) switchOff(power provisioner.PowerState, names ...string) {
	for _, n := range names {
		w.machines[n].power, w.machines[n].gone = power, power == ""
	}
	w.cut(names...)
}

// AKS keeps nodes that it has deallocated registered. Six of ten are switched off, and then one of the
// others dies while Azure reports its VM as running.
func TestAFailoverIsAsFastWhenMostNodesAreSwitchedOff(t *testing.T) {
	const bound = 10 * time.Second
	allAtOnce := func(power provisioner.PowerState) func(*fleet, []string) {
		return func(w *fleet, nodes []string) {
			w.switchOff(power, nodes...)
			w.sleep(time.Minute)
		}
	}
	for name, night := range map[string]func(w *fleet, nodes []string){
		"none is switched off": func(*fleet, []string) {},
		"one after the other": func(w *fleet, nodes []string) {
			for _, n := range nodes {
				w.switchOff(provisioner.PowerDeallocated, n)
				w.sleep(15 * time.Second)
			}
			w.sleep(time.Minute)
		},
		"all at once, a minute ago": allAtOnce(provisioner.PowerDeallocated),
		"their VMs are stopped":     allAtOnce(provisioner.PowerStopped),
		"their VMs are hibernated":  allAtOnce(provisioner.PowerHibernated),
		"their VMs are gone":        allAtOnce(""),
		"they start again, and have not sent a heartbeat": func(w *fleet, nodes []string) {
			allAtOnce(provisioner.PowerDeallocated)(w, nodes)
			for _, n := range nodes {
				w.machines[n].power = provisioner.PowerRunning
			}
			w.sleep(6 * time.Minute) // long enough for Azure to be asked again
		},
		"the controllers have just started": func(w *fleet, nodes []string) {
			allAtOnce(provisioner.PowerDeallocated)(w, nodes)
			w.publish()
			w.restart()
			w.sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			nodes := w.add(10, fast)
			w.sleep(40 * time.Second)
			w.drain(nodes[4:]...)
			night(w, nodes[4:])
			w.cut(nodes[0])
			took, fenced := w.pass(10*time.Minute, w.fence(nodes[0]))
			if !fenced || took > bound {
				t.Errorf("the fence may begin (%t) after %s, want within %s: %+v",
					fenced, took, bound, w.health(nodes[0]))
			}
			t.Logf("from the cut to the fence: %s", took)
		})
	}
}

func TestVMsThatAreDownDoNotLowerTheShareOfTheLostNodes(t *testing.T) {
	for name, power := range map[string]provisioner.PowerState{
		"deallocated": provisioner.PowerDeallocated,
		"hibernated":  provisioner.PowerHibernated,
		"gone":        "",
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			nodes := w.add(10, fast)
			w.sleep(40 * time.Second)
			w.drain(nodes[5:]...)
			w.switchOff(power, nodes[5:]...)
			w.sleep(time.Minute)
			w.cut(nodes[:4]...)
			w.sleep(time.Minute)
			for _, n := range nodes[:4] {
				if v := w.health(n); !v.Guarded() || !strings.Contains(v.HeldBack, "4 of 5 nodes") {
					t.Errorf("%s: got %+v, want it held back because 4 of 5 nodes seem lost", n, v)
				}
			}
		})
	}
}

// Nodes without volumes are asked about at once when they keep the guard closed.
func TestAGuardThatClosesHasAzureAsked(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(10, fast)
	w.sleep(40 * time.Second)
	w.drain(nodes...)
	w.switchOff(provisioner.PowerDeallocated, nodes[4:]...)
	took, down := w.pass(time.Minute, func() bool {
		return !slices.ContainsFunc(nodes[4:], func(n string) bool { return w.state(n) != nodehealth.Down })
	})
	if !down || took > 9*time.Second {
		t.Errorf("all nodes that are switched off are Down: got %t after %s, want it within 9 s", down, took)
	}
}

func TestAProcessThatStartsDoesNotTakeTheLostForAlive(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(10, fast)
	w.sleep(40 * time.Second)
	off, back := nodes[4:9], nodes[9]
	w.drain(nodes[4:]...)
	w.switchOff(provisioner.PowerDeallocated, nodes[4:]...)
	w.sleep(time.Minute)
	w.publish()
	w.machines[back].power, w.machines[back].beats, w.machines[back].answers = provisioner.PowerRunning, true, true
	w.restart()
	for _, n := range off {
		if v := w.health(n); v.State != nodehealth.Suspect {
			t.Errorf("at the start %s is %+v, want it Suspect", n, v)
		}
		if first := w.detector.Conditions(n, w.now); len(first) > 0 {
			t.Errorf("conditions of %s at the start: got %+v, want those that are published to stay", n, first)
		}
	}
	if v := w.health(nodes[0]); v.State != nodehealth.Healthy {
		t.Errorf("at the start a node that was published as Healthy is %+v, want it Healthy", v)
	}
	took, down := w.pass(time.Minute, func() bool {
		return !slices.ContainsFunc(off, func(n string) bool { return w.state(n) != nodehealth.Down })
	})
	if !down || took > time.Second {
		t.Errorf("all switched-off nodes are Down (%t) after %s, want within a second", down, took)
	}
	if _, alive := w.pass(5*time.Second, w.is(back, nodehealth.Healthy)); !alive {
		t.Errorf("a node that sends heartbeats again is %+v, want it Healthy", w.health(back))
	}
	for _, n := range append(off, back) {
		if got := w.detector.Conditions(n, w.now); len(got) == 0 || got[0].Message != w.health(n).Evidence {
			t.Errorf("%s: got the conditions %+v, want those of its own judgement", n, got)
		}
	}
}

func TestAProcessThatStartsAsksAzureAboutTheLostAlsoWithoutProbes(t *testing.T) {
	w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.switchOff(provisioner.PowerDeallocated, n)
	w.sleep(time.Minute)
	w.publish()
	w.restart()
	if took, down := w.pass(10*time.Second, w.is(n, nodehealth.Down)); !down || took > time.Second {
		t.Errorf("got %+v after %s, want it Down within a second", w.health(n), took)
	}
}

// What an earlier process has published stays until this one has seen the node silent for as long.
func TestAProcessThatStartsPublishesASilenceOnceItIsItsOwn(t *testing.T) {
	w := newFleet(t)
	n := w.add(5, fast)[0]
	w.sleep(40 * time.Second)
	w.machines[n].beats = false
	w.sleep(20 * time.Second)
	w.publish()
	w.restart()
	published := func() bool { return len(w.detector.Conditions(n, w.now)) > 0 }
	if took, ok := w.pass(20*time.Second, published); !ok || took != 7*time.Second || w.state(n) != nodehealth.Suspect {
		t.Errorf("got the conditions of its own judgement (%t) after %s: %+v; want them at the first ping after 6 s",
			ok, took, w.health(n))
	}
	// The clock starts again after an outage; the judgement remains this process's own.
	w.outage = true
	w.sleep(10 * time.Second)
	w.outage = false
	if w.sleep(2 * time.Second); !published() || w.state(n) != nodehealth.Suspect {
		t.Errorf("after an outage: got %+v and the conditions published: %t, want it Suspect and published", w.health(n),
			published())
	}
}

func TestAzureIsAskedRarelyAboutNodesWithoutVolumes(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(10, fast)
	w.drain(nodes[8:]...)
	w.sleep(40 * time.Second)
	w.switchOff(provisioner.PowerDeallocated, nodes[8])
	w.cut(nodes[9])
	w.sleep(50 * time.Second)
	if asked := w.questions[nodes[8]] + w.questions[nodes[9]]; asked > 0 {
		t.Errorf("asked %d times about nodes that are lost for less than a minute, want never", asked)
	}
	w.sleep(11 * time.Minute)
	for _, n := range nodes[8:] {
		if asked := w.questions[n]; asked < 2 || asked > 3 {
			t.Errorf("%s: asked %d times in eleven minutes, want every five minutes", n, asked)
		}
	}
}

// Only the nodes that keep the guard closed are asked about because of it.
func TestAGuardThatIsClosedHasAzureAskedAboutNoOtherNode(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(8, fast)
	w.drain(nodes[:3]...)
	w.sleep(40 * time.Second)
	w.cut(nodes[0])
	w.machines[nodes[0]].failedOver = true
	w.sleep(15 * time.Second)
	w.machines[nodes[1]].beats = false
	w.cut(nodes[2:7]...)
	w.sleep(20 * time.Second)
	if !w.last.Guarded || w.questions[nodes[0]] > 0 || w.questions[nodes[1]] > 0 || w.questions[nodes[2]] == 0 {
		t.Errorf("got the questions %v, the guard closed: %t; want it closed, and questions about lost nodes without a failover",
			w.questions, w.last.Guarded)
	}
}

func TestTheGuardStaysClosedWhileAzureDoesNotAnswer(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(10, fast)
	for _, n := range nodes {
		w.machines[n].power = ""
	}
	w.sleep(40 * time.Second)
	w.drain(nodes[4:]...)
	w.cut(nodes[4:]...)
	w.never(3*time.Minute, fenced)
}
