package liveness_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// drain removes the volumes of nodes, as an autoscaler does before it switches them off.
func (w *world) drain(names ...string) {
	w.Helper()
	for _, n := range names {
		w.must(w.client.Delete(w.Context(), &apiv1.AzVolumeAttachment{ObjectMeta: metaName("vol-" + n)}))
	}
}

// switchOff cuts nodes as Azure does, which reports the power state.
func (w *world) switchOff(power provisioner.PowerState, names ...string) {
	for _, n := range names {
		w.machines[n].power, w.machines[n].gone = power, power == ""
	}
	w.cut(names...)
}

// publish writes the conditions that a ConditionWriter of the leader would write.
func (w *world) publish() {
	for _, n := range w.names {
		d := w.drivers[n].DeepCopy()
		d.Status.Conditions = nil
		for _, c := range []metav1.Condition{nodehealth.Condition(w.monitor.Health(n)), {
			Type:   apiv1.NodeConditionProbeable,
			Status: metav1.ConditionTrue,
		}} {
			meta.SetStatusCondition(&d.Status.Conditions, c)
		}
		w.drivers[n] = d
	}
}

// AKS keeps nodes that it has deallocated registered. Six of ten are switched off, and then one of the
// others dies while Azure reports its VM as running.
func TestAFailoverIsAsFastWhenMostNodesAreSwitchedOff(t *testing.T) {
	const bound = 10 * time.Second
	allAtOnce := func(power provisioner.PowerState) func(*world, []string) {
		return func(w *world, nodes []string) {
			w.switchOff(power, nodes...)
			w.sleep(time.Minute)
		}
	}
	for name, night := range map[string]func(w *world, nodes []string){
		"none is switched off": func(*world, []string) {},
		"one after the other": func(w *world, nodes []string) {
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
		"they start again, and have not sent a heartbeat": func(w *world, nodes []string) {
			allAtOnce(provisioner.PowerDeallocated)(w, nodes)
			for _, n := range nodes {
				w.machines[n].power = provisioner.PowerRunning
			}
			w.sleep(6 * time.Minute) // long enough for Azure to be asked again
		},
		"the controllers have just started": func(w *world, nodes []string) {
			allAtOnce(provisioner.PowerDeallocated)(w, nodes)
			w.publish()
			w.restart()
			w.sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			nodes := w.add(10, fast)
			w.sleep(40 * time.Second)
			w.drain(nodes[4:]...)
			night(w, nodes[4:])
			w.cut(nodes[0])
			took, fenced := w.pass(10*time.Minute, func() bool { return w.monitor.Health(nodes[0]).Fence() })
			if !fenced || took > bound {
				t.Errorf("the fence may begin (%t) after %s, want within %s: %+v",
					fenced, took, bound, w.monitor.Health(nodes[0]))
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
			w := newWorld(t)
			nodes := w.add(10, fast)
			w.sleep(40 * time.Second)
			w.drain(nodes[5:]...)
			w.switchOff(power, nodes[5:]...)
			w.sleep(time.Minute)
			w.cut(nodes[:4]...)
			w.sleep(time.Minute)
			for _, n := range nodes[:4] {
				if v := w.monitor.Health(n); !v.Guarded() || !strings.Contains(v.HeldBack, "4 of 5 nodes") {
					t.Errorf("%s: got %+v, want it held back because 4 of 5 nodes seem lost", n, v)
				}
			}
		})
	}
}

func TestAProcessThatStartsDoesNotTakeTheLostForAlive(t *testing.T) {
	w := newWorld(t)
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
		if v := w.monitor.Health(n); v.State != nodehealth.Suspect {
			t.Errorf("at the start %s is %+v, want it Suspect", n, v)
		}
		if first := w.monitor.FirstConditions(&apiv1.AzDriverNode{ObjectMeta: metaName(n)}); len(first) > 0 {
			t.Errorf("conditions of %s are written at the start: %+v", n, first)
		}
	}
	took, down := w.pass(time.Minute, func() bool {
		return !slices.ContainsFunc(off, func(n string) bool { return w.state(n) != nodehealth.Down })
	})
	if !down || took > time.Second {
		t.Errorf("all switched-off nodes are Down (%t) after %s, want within a second", down, took)
	}
	if _, alive := w.pass(5*time.Second, w.is(back, nodehealth.Healthy)); !alive {
		t.Errorf("a node that sends heartbeats again is %+v, want it Healthy", w.monitor.Health(back))
	}
}

func TestAzureIsAskedRarelyAboutNodesWithoutVolumes(t *testing.T) {
	w := newWorld(t)
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

func TestTheGuardStaysClosedWhileAzureDoesNotAnswer(t *testing.T) {
	w := newWorld(t, func(o *liveness.Options) { o.Instances = unavailable{} })
	nodes := w.add(10, fast)
	w.sleep(40 * time.Second)
	w.drain(nodes[4:]...)
	w.switchOff(provisioner.PowerDeallocated, nodes[4:]...)
	w.never(3*time.Minute, fenced)
}
