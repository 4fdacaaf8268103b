package liveness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// settled is a world with that many nodes, which are known to answer.
func settled(t *testing.T, nodes int, change ...func(*liveness.Options)) (w *world, names []string) {
	t.Helper()
	w = newWorld(t, change...)
	names = w.add(nodes)
	w.sleep(5 * time.Second)
	return w, names
}

func TestAPowerCutIsObserved(t *testing.T) {
	w, nodes := settled(t, 3)
	victim, cut := nodes[0], w.clock.Now()
	w.cut(victim)
	took, lost := w.pass(20*time.Second, w.is(victim, nodehealth.Lost))
	v := w.monitor.Health(victim)
	if !lost || took > 3*time.Second || !v.Fence() || v.SilentFrom != cut {
		t.Errorf("got %+v after %s, want it lost within 3 s, and silent since the connection ended", v, took)
	}
	if got := w.requests[victim]; got != 1 {
		t.Errorf("got %d requests for a heartbeat of the lost node, want 1", got)
	}
	if got := testutil.ToFloat64(gauge{w.registry, "azuredisk_liveness_nodes_lost"}); got != 1 {
		t.Errorf("got %v nodes lost in the metrics, want 1", got)
	}
	for _, n := range nodes[1:] {
		if w.state(n) != nodehealth.Healthy || w.requests[n] != 0 {
			t.Errorf("%s: got %+v after %d requests, want it Healthy after none", n, w.monitor.Health(n), w.requests[n])
		}
	}
	w.machines[victim].beats = true
	w.machines[victim].answers.Store(true)
	if w.beat(victim); w.state(victim) != nodehealth.Healthy {
		t.Errorf("after a heartbeat: got %+v, want it Healthy at once", w.monitor.Health(victim))
	}
	if v := w.monitor.Health("unknown"); v.State != nodehealth.Healthy || v.Fence() {
		t.Errorf("a node that was never observed: got %+v, want it Healthy", v)
	}
}

func TestTheMetricsShowThatTheGuardHoldsBack(t *testing.T) {
	w, nodes := settled(t, 3)
	w.cut(nodes...)
	w.never(10*time.Second, fenced)
	if got := testutil.ToFloat64(gauge{w.registry, "azuredisk_failover_guard_active"}); got != 1 {
		t.Errorf("got the guard active %v, want 1", got)
	}
}

func TestAStandbyServesNoGaugesOfNodes(t *testing.T) {
	w, _ := settled(t, 3, func(o *liveness.Options) { o.Leading = make(chan struct{}) })
	for _, name := range []string{"azuredisk_liveness_nodes_lost", "azuredisk_failover_guard_active"} {
		if got, err := testutil.GatherAndCount(w.registry, name); err != nil || got != 0 {
			t.Errorf("%s: got %d series in a standby, %v, want 0", name, got, err)
		}
	}
}

func TestNoNodeIsLostWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	w, nodes := settled(t, 3)
	w.outage = true
	w.cut(nodes[0])
	w.never(15*time.Second, fenced)
	w.outage = false
	if took, lost := w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost)); !lost || took > 5*time.Second {
		t.Errorf("got %+v after %s, want it lost within 5 s of the first answer", w.monitor.Health(nodes[0]), took)
	}
}

func TestACacheThatWasCutOffMakesNoNodeLost(t *testing.T) {
	w, nodes := settled(t, 3)
	w.cut(nodes[0])
	for range 10 { // the API server has heartbeats, but no event about them came
		w.write(nodes[0])
		w.never(time.Second, func(v nodehealth.Judgement) bool { return v.State == nodehealth.Lost })
	}
}

func TestWhatAzureSaysAboutTheVMOfASilentNode(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world, node string)
		want   nodehealth.State
		asked  bool
	}{
		"its VM runs":    {change: func(*world, string) {}, want: nodehealth.Lost, asked: true},
		"its VM is gone": {change: func(w *world, n string) { w.machines[n].gone = true }, want: nodehealth.Down, asked: true},
		"its VM is deallocated": {change: func(w *world, n string) { w.machines[n].power = provisioner.PowerDeallocated },
			want: nodehealth.Down, asked: true},
		"Azure does not say": {change: func(w *world, n string) { w.machines[n].power = provisioner.PowerUnknown },
			want: nodehealth.Lost, asked: true},
		"Azure does not answer": {change: func(w *world, n string) { w.machines[n].power = "" },
			want: nodehealth.Lost, asked: true},
		"it holds no volume": {change: func(w *world, n string) {
			w.must(w.client.Delete(w.Context(), &apiv1.AzVolumeAttachment{ObjectMeta: metaName("vol-" + n)}))
		}, want: nodehealth.Lost},
		"its Node is another VM": {change: func(w *world, n string) {
			w.machines[n].gone = true
			w.changeNode(n, func(k *corev1.Node) {
				k.Spec.ProviderID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/another"
			})
		}, want: nodehealth.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			w, nodes := settled(t, 3)
			test.change(w, nodes[0])
			w.cut(nodes[0])
			w.sleep(10 * time.Second)
			if got := w.state(nodes[0]); got != test.want {
				t.Errorf("got %+v, want %s", w.monitor.Health(nodes[0]), test.want)
			}
			if got := w.questions[nodes[0]] > 0; got != test.asked {
				t.Errorf("got %d questions to Azure, want any: %t", w.questions[nodes[0]], test.asked)
			}
		})
	}
}

func TestAQuestionAboutALostNodeLeavesTheQuotaToTheOthers(t *testing.T) {
	w, nodes := settled(t, 3)
	w.cut(nodes[0])
	w.sleep(10 * time.Second)
	if asked, deferred := w.questions[nodes[0]], w.deferred[nodes[0]]; asked != 1 || deferred != 0 {
		t.Errorf("until it is lost: got %d questions, and %d of them can wait; want 1, 0", asked, deferred)
	}
	w.sleep(20 * time.Second)
	if asked, deferred := w.questions[nodes[0]], w.deferred[nodes[0]]; asked < 2 || deferred != asked-1 {
		t.Errorf("once it is lost: got %d questions, and %d of them can wait; want all but the first", asked, deferred)
	}
}

func TestTheGuardDoesNotCountANodeFromWhichEverythingWasTaken(t *testing.T) {
	for name, test := range map[string]struct{ taint, proof, fenced bool }{
		"its failover is over":                                       {taint: true, proof: true, fenced: true},
		"a volume of it still has no proof":                          {taint: true},
		"its volume was released by other means, without a failover": {proof: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, nodes := settled(t, 4)
			w.cut(nodes[0])
			w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
			w.failOver(nodes[0], test.taint, test.proof)
			w.sleep(2 * time.Second)
			w.cut(nodes[1])
			took, got := w.pass(10*time.Second, func() bool { return w.monitor.Health(nodes[1]).Fence() })
			if got != test.fenced {
				t.Errorf("the second node may be fenced: got %t, want %t; after %s: %+v", got, test.fenced, took,
					w.monitor.Health(nodes[1]))
			}
		})
	}
}

func TestWhereNothingIsProbedTheLeaseDecides(t *testing.T) {
	w, nodes := settled(t, 3, func(o *liveness.Options) { o.Prober = nil })
	n := nodes[0]
	w.lease(n, w.clock.Now())
	w.machines[n].beats = false
	w.never(30*time.Second, fenced)
	w.lease(n, w.clock.Now())
	if took, lost := w.pass(2*time.Minute, w.is(n, nodehealth.Lost)); !lost || took < 40*time.Second || took > 50*time.Second {
		t.Errorf("got %+v after %s, want it lost 40 s to 50 s after the last renewal", w.monitor.Health(n), took)
	}
}

func TestTheNodesConditionIsReadWhereNothingFollowsTheMetadata(t *testing.T) {
	w, nodes := settled(t, 5)
	w.changeNode(nodes[0], func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: "VMEventScheduled", Status: corev1.ConditionTrue,
			Message: "Freeze Scheduled: " + w.clock.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + ". EventId: E",
		}}
	})
	w.cut(nodes[0])
	if w.sleep(10 * time.Second); !w.monitor.Health(nodes[0]).Paused {
		t.Errorf("got %+v, want it excused by the Node's condition", w.monitor.Health(nodes[0]))
	}
	w.machines[nodes[0]].beats = true
	w.beat(nodes[0])
	for metric, label := range map[string]string{
		"azuredisk_maintenance_pauses_total": "Survived",
		"azuredisk_maintenance_events_total": string(apiv1.MaintenanceFreeze),
	} {
		if got := w.counted(metric, label); got != 1 {
			t.Errorf("got %s{%s} = %d, want 1", metric, label, got)
		}
	}
	if problems, err := testutil.GatherAndLint(w.registry); err != nil || len(problems) > 0 {
		t.Errorf("the metrics: got %v, %v, want no problems", problems, err)
	}
}

// counted returns the value of a counter with a label.
func (w *world) counted(metric, label string) int {
	w.Helper()
	all, err := w.registry.Gather()
	w.must(err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == metric && m.GetLabel()[0].GetValue() == label {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func TestAHeartbeatThatIsWantedIsRequested(t *testing.T) {
	w, nodes := settled(t, 2)
	w.monitor.RequestHeartbeat(nodes[0])
	w.sleep(5 * time.Second)
	if got := fmt.Sprint(w.requests); got != fmt.Sprintf("map[%s:1]", nodes[0]) {
		t.Errorf("got the requests %s, want one to %s", got, nodes[0])
	}
}

func TestAConnectionIsKeptUntilTheNodeIsGone(t *testing.T) {
	w, nodes := settled(t, 2)
	if got := w.machines[nodes[0]].closed; got != 0 {
		t.Fatalf("got %d connections closed while the node is there, want 0", got)
	}
	w.monitor.Handler().OnDelete(cache.DeletedFinalStateUnknown{Obj: w.drivers[nodes[0]]})
	w.sleep(time.Second)
	if got := w.machines[nodes[0]].closed; got != 1 {
		t.Errorf("got %d connections closed, want 1", got)
	}
	if got := w.machines[nodes[1]].closed; got != 0 {
		t.Errorf("got %d connections to the other node closed, want 0", got)
	}
}

func TestSubscribersHearOfChanges(t *testing.T) {
	w, nodes := settled(t, 3)
	early, late := newQueue(), newQueue()
	w.must(w.monitor.Subscribe().Start(t.Context(), early))
	w.cut(nodes[0])
	w.pass(20*time.Second, w.is(nodes[0], nodehealth.Lost))
	w.must(w.monitor.Subscribe().Start(t.Context(), late))
	for i, q := range []workqueue.TypedRateLimitingInterface[reconcile.Request]{early, late} {
		if q.Len() != 1 {
			t.Fatalf("queue %d: got %d requests, want 1", i, q.Len())
		}
		request, _ := q.Get()
		q.Done(request)
		if request.Name != nodes[0] || request.Namespace != namespace {
			t.Errorf("queue %d: got the request %v, want one about %s", i, request, nodes[0])
		}
	}
}

func TestFailoverThatIsSwitchedOffIsNotAskedOfAzure(t *testing.T) {
	w, nodes := settled(t, 3, func(o *liveness.Options) { o.Enabled = false })
	w.cut(nodes[0])
	w.never(10*time.Second, fenced)
	if v := w.monitor.Health(nodes[0]); v.State != nodehealth.Lost || !strings.Contains(v.HeldBack, "switched off") {
		t.Errorf("got %+v, want it Lost, and held back because failover is switched off", v)
	}
	if len(w.questions) > 0 {
		t.Errorf("got the questions %v, want none", w.questions)
	}
}

// What a node announces passes from its AzDriverNode.
func TestAnAnnouncementInTheReportExcusesASilence(t *testing.T) {
	w, nodes := settled(t, 5)
	d := w.drivers[nodes[0]].DeepCopy()
	d.Status.Maintenance = &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{
		EventID: "e", Type: apiv1.MaintenanceFreeze, NotBeforeTime: &metav1.Time{Time: w.clock.Now()},
	}}}
	w.drivers[nodes[0]] = d
	w.beat(nodes[0])
	w.cut(nodes[0])
	if w.sleep(10 * time.Second); !w.monitor.Health(nodes[0]).Paused {
		t.Errorf("got %+v, want it excused", w.monitor.Health(nodes[0]))
	}
}
