package liveness_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const namespace = "azure-disk-csi"

// world is a cluster in which time passes only as the test says.
type world struct {
	*testing.T
	clock    *clocktesting.FakeClock
	client   client.WithWatch
	options  liveness.Options
	monitor  *liveness.Monitor
	machines map[string]*machine
	names    []string
	// drivers are the AzDriverNodes as the API server has them.
	drivers map[string]*apiv1.AzDriverNode
	// outage cuts all nodes and the controller off the API server.
	outage bool
	// requests and questions count what was asked, and deferred which questions could wait.
	requests, questions, deferred map[string]int
	registry                      *prometheus.Registry
}

type machine struct {
	// beats and answers say that heartbeats are sent and probes answered.
	beats   bool
	answers atomic.Bool
	power   provisioner.PowerState
	gone    bool
	next    time.Time
	// closed counts the connections to it that were closed.
	closed int
}

func newWorld(t *testing.T, change ...func(*liveness.Options)) *world {
	t.Helper()
	w := &world{
		T:         t,
		clock:     clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		machines:  map[string]*machine{},
		drivers:   map[string]*apiv1.AzDriverNode{},
		requests:  map[string]int{},
		questions: map[string]int{},
		deferred:  map[string]int{},
		registry:  prometheus.NewRegistry(),
		client: fake.NewClientBuilder().WithScheme(fakeapi.Scheme()).
			WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).Build(),
	}
	w.options = liveness.Options{
		Reader:            w.client,
		Instances:         w,
		Namespace:         namespace,
		Clock:             w.clock,
		Prober:            w,
		StaleAfter:        6 * time.Second,
		MassLossThreshold: 45,
		Enabled:           true,
		Metrics:           w.registry,
		APIReader: interceptor.NewClient(w.client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				options ...client.GetOption) error {
				if w.outage {
					return errors.New("no API server")
				}
				if d, ok := o.(*apiv1.AzDriverNode); ok {
					w.drivers[key.Name].DeepCopyInto(d)
					return nil
				}
				return c.Get(ctx, key, o, options...)
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				if w.outage {
					return errors.New("no API server")
				}
				return nil
			},
		}),
	}
	w.options.Writer = interceptor.NewClient(w.client, interceptor.Funcs{Patch: w.request})
	for _, c := range change {
		c(&w.options)
	}
	var err error
	w.monitor, err = liveness.New(w.options)
	w.must(err)
	return w
}

// restart puts a new process in the place of the one that has watched.
func (w *world) restart() {
	w.Helper()
	w.options.Metrics = prometheus.NewRegistry()
	var err error
	w.monitor, err = liveness.New(w.options)
	w.must(err)
	for _, name := range w.names {
		w.monitor.Handler().OnAdd(w.drivers[name], true)
	}
}

func (w *world) must(err error) { w.Helper(); expect.Must(w.T, err) }

// Probe is the network.
func (w *world) Probe(_ context.Context, node *corev1.Node) liveness.ProbeResult {
	m := w.machines[node.Name]
	if !m.answers.Load() {
		return liveness.ProbeResult{}
	}
	return liveness.ProbeResult{Answered: true, Connection: connection{m}}
}

// connection is one that the kernel probes: it ends as soon as the machine does not answer.
type connection struct{ *machine }

// Ended implements liveness.Connection.
func (c connection) Ended() (ended, unanswered bool) { return !c.answers.Load(), !c.answers.Load() }

// Close implements liveness.Connection.
func (c connection) Close() { c.closed++ }

// request is the API server, when a heartbeat is requested.
func (w *world) request(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if w.outage {
		return errors.New("no API server")
	}
	name := o.GetName()
	w.requests[name]++
	before := w.drivers[name]
	after := before.DeepCopy()
	after.Spec.Requests = o.(*apiv1.AzDriverNode).Spec.Requests
	w.drivers[name] = after
	w.monitor.Handler().OnUpdate(before, after)
	if w.machines[name].beats {
		w.beat(name)
	}
	return nil
}

// Get is Azure.
func (w *world) Get(ctx context.Context, vmID string) (provisioner.Instance, error) {
	w.questions[vmID]++
	if provisioner.IsDeferrable(ctx) {
		w.deferred[vmID]++
	}
	m := w.machines[vmID]
	if m.gone {
		return provisioner.Instance{}, provisioner.Errorf(provisioner.NotFound, "no such VM")
	}
	if m.power == "" {
		return provisioner.Instance{}, provisioner.Errorf(provisioner.Unavailable, "Azure is unwell")
	}
	return provisioner.Instance{Power: m.power}, nil
}

// interval of the heartbeats of all nodes.
const interval = 2 * time.Second

// add adds n nodes that are well and hold a primary each.
func (w *world) add(n int) []string {
	w.Helper()
	var added []string
	for range n {
		name := fmt.Sprintf("node-%02d", len(w.names))
		added, w.names = append(added, name), append(w.names, name)
		w.machines[name] = &machine{
			beats: true,
			power: provisioner.PowerRunning,
			next:  w.clock.Now(),
		}
		w.machines[name].answers.Store(true)
		w.must(w.client.Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		d := &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       apiv1.AzDriverNodeSpec{VMID: name},
		}
		w.drivers[name] = d
		w.must(w.client.Create(w.Context(), &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vol-" + name},
			Spec: apiv1.AzVolumeAttachmentSpec{
				VolumeName: "vol",
				NodeName:   name,
				Role:       apiv1.RolePrimary,
				Epoch:      1,
			},
		}))
		w.monitor.Handler().OnAdd(d, true)
	}
	return added
}

// beat writes a heartbeat, which the informer sees at once.
func (w *world) beat(name string) {
	m := w.machines[name]
	before := w.drivers[name]
	w.write(name)
	w.monitor.Handler().OnUpdate(before, w.drivers[name])
	m.next = w.clock.Now().Add(interval)
}

// write writes a heartbeat without an event about it.
func (w *world) write(name string) {
	d := w.drivers[name].DeepCopy()
	d.Status.HeartbeatTime = &metav1.MicroTime{Time: w.clock.Now()}
	d.Status.HeartbeatPeriodSeconds, d.Status.HeartbeatOnRequest = int32(interval/time.Second), true
	w.drivers[name] = d
}

// pass lets time pass until done says so, for d at most, and returns how long it took.
func (w *world) pass(d time.Duration, done func() bool) (took time.Duration, ended bool) {
	w.Helper()
	start := w.clock.Now()
	for {
		for _, name := range w.names {
			if m := w.machines[name]; m.beats && !w.outage && !m.next.After(w.clock.Now()) {
				w.beat(name)
			}
		}
		w.monitor.Tick(w.Context())
		if took := w.clock.Since(start); done() || took >= d {
			return took, done()
		}
		w.clock.Step(250 * time.Millisecond)
	}
}

func (w *world) sleep(d time.Duration) {
	w.Helper()
	w.pass(d, func() bool { return false })
}

// cut takes the power from nodes.
func (w *world) cut(names ...string) {
	for _, name := range names {
		w.machines[name].beats = false
		w.machines[name].answers.Store(false)
	}
}

// changeNode changes the Node of a node.
func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.client.Get(w.Context(), client.ObjectKey{Name: name}, n))
	change(n)
	status := n.Status
	w.must(w.client.Update(w.Context(), n))
	n.Status = status
	w.must(w.client.Status().Update(w.Context(), n))
}

// failOver does to a node's only volume what the failover does: it puts the taint on the Node, and
// the proof on the attachment.
func (w *world) failOver(name string, taint, proof bool) {
	w.Helper()
	if taint {
		w.changeNode(name, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: apiv1.TaintNodeLost, Effect: corev1.TaintEffectNoSchedule}}
		})
	}
	if proof {
		a := &apiv1.AzVolumeAttachment{}
		w.must(w.client.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "vol-" + name}, a))
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 1}
		w.must(w.client.Update(w.Context(), a))
	}
}

func (w *world) state(name string) nodehealth.State { return w.monitor.Health(name).State }

func (w *world) is(name string, state nodehealth.State) func() bool {
	return func() bool { return w.state(name) == state }
}

// never fails the test if any node gets into a state in the time d.
func (w *world) never(d time.Duration, bad func(nodehealth.Judgement) bool) {
	w.Helper()
	_, ended := w.pass(d, func() bool {
		for _, name := range w.names {
			if v := w.monitor.Health(name); bad(v) {
				w.Errorf("%s: %+v", name, v)
				return true
			}
		}
		return false
	})
	if ended {
		w.FailNow()
	}
}

func fenced(v nodehealth.Judgement) bool { return v.Fence() }

func (w *world) lease(name string, renewed time.Time) {
	w.Helper()
	seconds := int32(40)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	spec := coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: &seconds}
	if err := w.client.Get(w.Context(), client.ObjectKeyFromObject(l), l); err == nil {
		l.Spec = spec
		w.must(w.client.Update(w.Context(), l))
		return
	}
	l.Spec = spec
	w.must(w.client.Create(w.Context(), l))
}
