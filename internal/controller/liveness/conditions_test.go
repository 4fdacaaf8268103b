package liveness_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// publisher is a ConditionWriter with the API server that it writes to.
type publisher struct {
	*world
	liveness.ConditionWriter
	recorder *events.FakeRecorder
}

func (w *world) publisher() *publisher {
	w.Helper()
	p := &publisher{world: w, recorder: events.NewFakeRecorder(100)}
	builder := fake.NewClientBuilder().WithScheme(w.client.Scheme()).WithStatusSubresource(&apiv1.AzDriverNode{})
	for _, name := range w.names {
		builder = builder.WithObjects(&apiv1.AzDriverNode{
			ObjectMeta: metaName(name),
			Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{{
				Type:               apiv1.NodeConditionPluginReady,
				Status:             metav1.ConditionTrue,
				Reason:             "Ready",
				LastTransitionTime: metav1.Now(),
			}}},
		})
	}
	p.ConditionWriter = liveness.ConditionWriter{
		Client:    builder.Build(),
		Monitor:   w.monitor,
		Namespace: namespace,
		Clock:     w.clock,
		Events:    p.recorder,
	}
	return p
}

// reachable publishes and returns the condition of a node as "Status Reason".
func (p *publisher) reachable(name string) (short, message string) {
	p.Helper()
	p.must(p.ConditionWriter.Tick(p.Context()))
	d := &apiv1.AzDriverNode{}
	p.must(p.Client.Get(p.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d))
	if !meta.IsStatusConditionTrue(d.Status.Conditions, apiv1.NodeConditionPluginReady) {
		p.Errorf("the node's own condition was lost: %v", d.Status.Conditions)
	}
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + " " + c.Reason, c.Message
}

func (p *publisher) told() string {
	var all []string
	for len(p.recorder.Events) > 0 {
		all = append(all, <-p.recorder.Events)
	}
	return strings.Join(all, "\n")
}

func TestTheConditionFollowsTheJudgement(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	expect := func(when, want, event string) {
		t.Helper()
		if got, message := p.reachable(n); got != want {
			t.Errorf("%s: %s: %s", when, got, message)
		}
		if told := p.told(); (event == "") != (told == "") || !strings.Contains(told, event) {
			t.Errorf("%s: events %q", when, told)
		}
	}
	expect("at first", "True HeartbeatFresh", "")
	w.machines[n].beats = false
	w.pass(20*time.Second, w.is(n, nodehealth.Suspect))
	expect("silent", "Unknown HeartbeatStale", "Normal HeartbeatStale")
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	expect("lost", "False NodeLost", "Warning NodeLost")
	w.machines[n].power = provisioner.PowerStopped
	w.pass(20*time.Second, w.is(n, nodehealth.Down))
	expect("stopped", "False VMStopped", "Warning VMStopped")
	w.machines[n].power = provisioner.PowerDeallocated
	w.pass(20*time.Second, func() bool { return w.monitor.Health(n).Off() })
	expect("deallocated", "False VMDown", "Warning VMDown")
	w.beat(n)
	expect("back", "True HeartbeatFresh", "Normal HeartbeatFresh")
}

func TestTheConditionAndAnEventSayThatFencingIsHeldBack(t *testing.T) {
	w := newWorld(t)
	w.add(3)
	w.sleep(40 * time.Second)
	p := w.publisher()
	p.reachable(w.names[0])
	w.cut(w.names...)
	w.sleep(20 * time.Second)
	for _, n := range w.names {
		if got, message := p.reachable(n); got != "Unknown FencingHeldBack" || !strings.Contains(message, "seem lost at once") {
			t.Errorf("%s: %s: %s", n, got, message)
		}
	}
	if told := p.told(); strings.Count(told, "Warning FencingHeldBack") != 3 {
		t.Errorf("events %q", told)
	}
}

func TestNothingIsWrittenThatHasNotChanged(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	version := func() string {
		d := &apiv1.AzDriverNode{}
		w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
		return d.ResourceVersion
	}
	p.reachable(n)
	first := version()
	for i := range 10 {
		w.sleep(5 * time.Second)
		p.reachable(n)
		if v := version(); v != first {
			t.Fatal(fmt.Sprint("written again in round ", i))
		}
	}
	// A process that has just started writes what it holds; here, that the node is well.
	other, err := liveness.New(liveness.Options{
		Reader:            w.client,
		APIReader:         w.options.APIReader,
		Namespace:         namespace,
		Clock:             w.clock,
		Prober:            w,
		StaleAfter:        time.Minute,
		MassLossThreshold: 45,
	})
	w.must(err)
	p.Monitor = other
	p.reachable(n)
	if v := version(); v != first {
		t.Fatal("written by a process that has not heard of the node")
	}
	other.Handler().OnAdd(w.drivers[n], true)
	p.reachable(n)
	if v := version(); v != first {
		t.Fatal("written after a restart")
	}
}

// Ready is written with Reachable, so that a failover needs no further write. It follows the node plug-in.
func TestReadyIsWrittenWithTheConditionThatChanges(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	api, writes := p.Client, 0
	p.Client = interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if o.GetName() == n {
				writes++
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	node := func() *apiv1.AzDriverNode {
		d := &apiv1.AzDriverNode{}
		w.must(api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
		return d
	}
	report := func(c metav1.Condition) {
		d := node()
		meta.SetStatusCondition(&d.Status.Conditions, c)
		w.must(api.Status().Update(t.Context(), d))
	}
	expect := func(when, want string, most int) {
		t.Helper()
		w.must(p.Tick(t.Context()))
		w.must(p.Tick(t.Context()))
		c := meta.FindStatusCondition(node().Status.Conditions, apiv1.NodeConditionReady)
		if got := string(c.Status) + " " + c.Reason; got != want || writes != most {
			t.Errorf("%s: got %s after %d writes, want %s after %d", when, got, writes, want, most)
		}
		writes = 0
	}
	expect("at first", "Unknown NotYetKnown", 1)
	report(metav1.Condition{Type: apiv1.NodeConditionVMKnown, Status: metav1.ConditionTrue, Reason: apiv1.ReasonVMEstablished})
	expect("the VM is known", "True NodeUsable", 1)
	w.machines[n].beats = false
	w.pass(20*time.Second, w.is(n, nodehealth.Suspect))
	expect("silent", "Unknown HeartbeatStale", 1)
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	expect("lost", "False NodeLost", 1)
	w.beat(n)
	expect("back", "True NodeUsable", 1)
	report(metav1.Condition{Type: apiv1.NodeConditionPluginReady, Status: metav1.ConditionFalse,
		Reason: apiv1.ReasonNotInCSINode})
	expect("the registration is lost", "False NotInCSINode", 1)
}

// A new node's capacity is written soon, and its conditions with it: one write instead of two.
func TestTheFirstConditionsOfANodeWaitForItsCapacity(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	node := func() *apiv1.AzDriverNode {
		d := &apiv1.AzDriverNode{}
		w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
		return d
	}
	d := node()
	d.Spec.VMSize = "Standard_D4s_v5"
	w.must(p.Client.Update(t.Context(), d))
	if got, _ := p.reachable(n); got != "" {
		t.Errorf("got the condition %s before the capacity, want none", got)
	}
	var names []string
	known := node() // as the writer of the capacity knows it
	vm := metav1.Condition{Type: apiv1.NodeConditionVMKnown, Status: metav1.ConditionTrue}
	meta.SetStatusCondition(&known.Status.Conditions, vm)
	for _, c := range w.monitor.FirstConditions(known) {
		names = append(names, c.Type+" "+string(c.Status))
	}
	want := "Reachable True, Probeable True, Undisturbed True, InService True, Ready True"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("to be written with the capacity: got %q, want %q", got, want)
	}
	w.sleep(2 * time.Minute)
	if got, want := first(p.reachable(n)), "True HeartbeatFresh"; got != want {
		t.Errorf("the capacity stays unknown: got the condition %q, want %q", got, want)
	}
	if left := w.monitor.FirstConditions(node()); len(left) > 0 {
		t.Errorf("got %v to be written with the capacity, want nothing, because the node has them", left)
	}
}

func TestBadNewsOfANodeDoesNotWaitForItsCapacity(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	d := &apiv1.AzDriverNode{}
	w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
	d.Spec.VMSize = "Standard_D4s_v5"
	w.must(p.Client.Update(t.Context(), d))
	w.cut(n)
	w.pass(20*time.Second, w.is(n, nodehealth.Lost))
	if got, want := first(p.reachable(n)), "False NodeLost"; got != want {
		t.Errorf("got the condition %q, want %q", got, want)
	}
}

func first(short, _ string) string { return short }

func TestAfterARestartTheConditionKnowsThatProbesReachANode(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	p.reachable(n)
	for _, name := range w.names {
		left := &apiv1.AzDriverNode{}
		w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, left))
		if !meta.IsStatusConditionTrue(left.Status.Conditions, apiv1.NodeConditionProbeable) {
			t.Fatalf("%s: %v", name, left.Status.Conditions)
		}
		w.drivers[name].Status.Conditions = left.Status.Conditions
	}
	w.cut(n)
	w.restart()
	if took, lost := w.pass(20*time.Second, w.is(n, nodehealth.Lost)); !lost || took > 10*time.Second {
		t.Errorf("after %s: %+v", took, w.monitor.Health(n))
	}
}

func TestTheConditionSaysThatProbesDoNotCountAnyMore(t *testing.T) {
	w := newWorld(t)
	n := w.add(5)[0]
	w.sleep(40 * time.Second)
	p := w.publisher()
	p.reachable(n)
	w.machines[n].answers.Store(false) // a firewall
	w.sleep(3 * time.Minute)
	p.reachable(n)
	d := &apiv1.AzDriverNode{}
	w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
	if !meta.IsStatusConditionFalse(d.Status.Conditions, apiv1.NodeConditionProbeable) {
		t.Fatal(d.Status.Conditions)
	}
	w.drivers[n].Status.Conditions = d.Status.Conditions
	w.machines[n].beats = false
	w.restart()
	w.never(time.Minute, fenced)
}

func TestTheConditionsOfManyNodesAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.add(20)
		w.sleep(40 * time.Second)
		p := w.publisher()
		p.reachable(nodes[0])
		const lost = 4 // as many questions as Azure is asked at once
		var all sync.WaitGroup
		all.Add(lost)
		p.ConditionWriter.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
				options ...client.SubResourcePatchOption) error {
				all.Done()
				all.Wait() // the test fails if a write waits for another one
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			},
		})
		p.ConditionWriter.Clock = clocktesting.NewFakeClock(w.clock.Now()) // never ticks
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.ConditionWriter.Start(ctx) }()
		synctest.Wait()
		for _, n := range nodes[:lost] {
			w.machines[n].power = provisioner.PowerDeallocated
			w.machines[n].beats = false
		}
		w.pass(time.Minute, w.is(nodes[lost-1], nodehealth.Down))
		synctest.Wait()
		for _, n := range nodes[:lost] {
			d := &apiv1.AzDriverNode{}
			w.must(p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: n}, d))
			if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable); c == nil ||
				c.Reason != apiv1.ReasonVMDown {
				t.Errorf("%s: got condition %v, want the reason %s", n, c, apiv1.ReasonVMDown)
			}
		}
		cancel()
		w.must(<-ended)
	})
}
