package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/failover"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const size = "Standard_D4s_v5"

var replicated = map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}

// monitor reports the nodes as lost that the test names. It outlives the process, as the nodes do.
type monitor struct {
	namespace string
	mu        sync.Mutex
	health    map[string]nodehealth.Judgement
	queue     workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (m *monitor) Health(node string) nodehealth.Judgement {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, is := m.health[node]; is {
		return v
	}
	return nodehealth.Judgement{State: nodehealth.Healthy}
}

func (m *monitor) Subscribe() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.queue = queue
		return nil
	})
}

// RequestHeartbeat does nothing: the nodes of these tests do not answer.
func (m *monitor) RequestHeartbeat(string) {}

func (m *monitor) set(node string, state nodehealth.State) {
	m.judge(node, nodehealth.Judgement{
		State:      state,
		Since:      time.Now(),
		SilentFrom: time.Now().Add(-7 * time.Second),
		Evidence:   "the test says so",
	})
}

func (m *monitor) judge(node string, v nodehealth.Judgement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health[node] = v
	m.queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.namespace, Name: node}})
}

// back makes a node Ready again, and waits until it has no taint any more. Its heartbeats continue
// during that time.
func (l *lab) back(node string, await func(what string, check func() string)) {
	l.Helper()
	l.monitor.set(node, nodehealth.Healthy)
	var last time.Time
	await("the node is as it was", func() string {
		if time.Since(last) > 200*time.Millisecond {
			last = time.Now()
			l.Report(node, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatTime = &metav1.MicroTime{Time: last} })
		}
		d := &apiv1.AzDriverNode{}
		l.must(l.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Namespace, Name: node}, d))
		if taints := l.Node(node).Spec.Taints; len(taints) > 0 ||
			meta.IsStatusConditionFalse(d.Status.Conditions, apiv1.NodeConditionInService) {
			return fmt.Sprintf("taints %v, conditions %v", taints, d.Status.Conditions)
		}
		return ""
	})
}

// lab is a control plane with the failover reconciler, and the part of Kubernetes that it works on.
type lab struct {
	*testing.T
	*controlplane.ControlPlane
	monitor *monitor
	metrics *prometheus.Registry
	// cached reads what the reconcilers read.
	cached client.Reader
	// dieAt stops the reconciler of failovers permanently before its write of that number, if it is
	// above 0; dead is closed then.
	dieAt int
	dead  chan struct{}
	// refuse is the kind of writes that the cluster refuses, as written names them.
	refuse string
	mu     sync.Mutex
	wrote  []string
}

func newLab(t *testing.T, dieAt int, change ...func(*controlplane.Options)) *lab {
	t.Helper()
	l := &lab{
		T:       t,
		monitor: &monitor{health: map[string]nodehealth.Judgement{}},
		dieAt:   dieAt,
		dead:    make(chan struct{}),
	}
	options := controlplane.Options{Quiet: dieAt > 0, With: l.with}
	for _, f := range change {
		f(&options)
	}
	l.ControlPlane = controlplane.NewInMemory(t, options)
	l.monitor.namespace = l.Namespace
	return l
}

func (l *lab) with(_ context.Context, mgr ctrl.Manager, _ provisioner.Cloud, namespace string) error {
	l.metrics, l.cached = prometheus.NewRegistry(), mgr.GetClient()
	r, err := failover.New(failover.Options{
		Client:            &mortal{Client: mgr.GetClient(), lab: l},
		Reader:            mgr.GetAPIReader(),
		Monitor:           l.monitor,
		Clock:             clock.RealClock{},
		Events:            mgr.GetEventRecorder("failover"),
		DriverName:        controlplane.DriverName,
		OwnNamespace:      namespace,
		OutOfServiceTaint: true,
		Workers:           2,
		Metrics:           l.metrics,
	})
	if err != nil {
		return err
	}
	return r.SetUp(mgr, namespace)
}

// mortal is a client of a process that can die before any of its writes.
type mortal struct {
	client.Client
	lab *lab
	n   int
}

// written returns the writes of all processes so far.
func (l *lab) written() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.wrote)
}

// refuseWrites makes the cluster refuse all writes of one kind, as written names them, and no
// others.
func (l *lab) refuseWrites(refuse string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
}

func (m *mortal) before(ctx context.Context, what string) error {
	m.lab.mu.Lock()
	if what == m.lab.refuse {
		m.lab.mu.Unlock()
		return apierrors.NewForbidden(schema.GroupResource{Resource: "the objects of the test"}, what,
			errors.New("a policy of the cluster"))
	}
	m.n++
	if m.lab.dieAt == 0 || m.n < m.lab.dieAt {
		m.lab.wrote = append(m.lab.wrote, what)
		m.lab.mu.Unlock()
		return nil
	}
	if m.n == m.lab.dieAt {
		close(m.lab.dead)
	}
	m.lab.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (m *mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := m.before(ctx, fmt.Sprintf("patch %T", o)); err != nil {
		return err
	}
	return m.Client.Patch(ctx, o, p, opts...)
}

func (m *mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := m.before(ctx, fmt.Sprintf("create %T", o)); err != nil {
		return err
	}
	return m.Client.Create(ctx, o, opts...)
}

func (m *mortal) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := m.before(ctx, fmt.Sprintf("delete %T", o)); err != nil {
		return err
	}
	return m.Client.Delete(ctx, o, opts...)
}

func (m *mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m} }

type mortalStatus struct {
	client.SubResourceWriter
	m *mortal
}

func (s mortalStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.m.before(ctx, fmt.Sprintf("patch status of %T", o)); err != nil {
		return err
	}
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

func (l *lab) must(err error) { l.Helper(); expect.Must(l.T, err) }

// claim creates the PersistentVolume and the PersistentVolumeClaim of a volume.
func (l *lab) claim(volume, handle string, change ...func(*corev1.PersistentVolumeClaim)) {
	l.Helper()
	pv := controlplane.NewPersistentVolume(l.Namespace+"-"+volume, handle, func(s *corev1.PersistentVolumeSpec) {
		if handle == "" {
			s.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}
		}
	})
	c := l.Bind(pv, l.Namespace, volume, change...)
	l.seen(pv)
	l.seen(c)
}

// pod creates a pod on a node, of a StatefulSet if it is not changed, that uses
// PersistentVolumeClaims.
func (l *lab) pod(name, node string, claims []string, change ...func(*corev1.Pod)) *corev1.Pod {
	l.Helper()
	p := controlplane.NewPod(l.Namespace, name, node, claims...)
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1",
		Kind:       "StatefulSet",
		Name:       "set",
		UID:        "set",
		Controller: new(true),
	}}
	for _, f := range change {
		f(p)
	}
	l.must(l.Client.Create(l.Context(), p))
	l.seen(p)
	return p
}

// advisor creates a pod that advises kube-scheduler.
func (l *lab) advisor(name, node string, phase corev1.PodPhase) {
	l.Helper()
	p := l.pod(name, node, nil, func(p *corev1.Pod) {
		p.Labels = map[string]string{"app.kubernetes.io/name": "azuredisk", "app.kubernetes.io/component": "scheduler"}
	})
	p.Status.Phase = phase
	l.must(l.Client.Status().Update(l.Context(), p))
	l.Eventually("the cache has the phase of "+name, func() string {
		var cached corev1.Pod
		l.must(l.cached.Get(l.Context(), client.ObjectKeyFromObject(p), &cached))
		if cached.Status.Phase != phase {
			return string(cached.Status.Phase)
		}
		return ""
	})
}

// seen waits until the reconciler's cache has an object. In a cluster seconds pass between a pod's
// first sight and the loss of its node; here there may be none, and a pod that the cache does not
// have yet cannot speak for its volume.
func (l *lab) seen(o client.Object) {
	l.Helper()
	l.Eventually("the cache has "+o.GetName(), func() string {
		if err := l.cached.Get(l.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (l *lab) podThere(name string) bool {
	l.Helper()
	err := l.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Namespace, Name: name}, &corev1.Pod{})
	l.must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// use writes the volumes as in use, as the kubelet does.
func (l *lab) use(node string, handles ...string) {
	l.Helper()
	n := l.Node(node)
	before := n.DeepCopy()
	for _, h := range handles {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, controlplane.InUseName(h))
	}
	l.must(l.Client.Status().Patch(l.Context(), n, client.MergeFrom(before)))
}

func (l *lab) tainted(node, key string) bool {
	l.Helper()
	return slices.ContainsFunc(l.Node(node).Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// unblocked waits until Kubernetes would unpublish the volume: nothing on the node uses it.
func (l *lab) unblocked(pod, node string) {
	l.Helper()
	l.Eventually("unblocked", func() string {
		if l.podThere(pod) {
			return "the pod is there"
		}
		if used := l.Node(node).Status.VolumesInUse; len(used) > 0 {
			return fmt.Sprintf("in use: %v", used)
		}
		return ""
	})
}

var expectCode = expect.Code
