package startuptaint_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/index"
	"github.com/azuredisk-csi/azuredisk/internal/controller/startuptaint"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

const (
	driverName = "disk.csi.azure.com"
	v1Taint    = "disk.csi.azure.com/agent-not-ready" // a name that users' node pools have
	otherTaint = "example.com/other"
	patience   = 30 * time.Second
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Run(m))
}

// world is a cluster with the reconciler at work, and one new node.
type world struct {
	t         *testing.T
	api       client.WithWatch
	namespace string
	node      *corev1.Node
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, api: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	controllers := index.ControllerOptions()
	controllers.SkipNameValidation = ptr.To(true)
	mgr, err := ctrl.NewManager(apiserver.Config(t), ctrl.Options{
		Scheme: apiserver.Scheme(t), Cache: index.CacheOptions(w.namespace), Metrics: metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", Controller: controllers,
	})
	w.must(err)
	w.must(startuptaint.New(startuptaint.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"), DriverName: driverName, Workers: 1,
	}).SetUp(mgr, w.namespace))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-node"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: otherTaint, Effect: corev1.TaintEffectNoSchedule},
			{Key: v1Taint, Effect: corev1.TaintEffectNoExecute},
			{Key: v1Taint, Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	w.make(w.node)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) make(o client.Object) {
	w.t.Helper()
	w.must(w.api.Create(w.t.Context(), o))
	w.t.Cleanup(func() {
		if err := w.api.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			w.t.Error(err)
		}
	})
}

// register is what the kubelet writes when the plug-in registers.
func (w *world) register(edit func(*storagev1.CSINode)) *storagev1.CSINode {
	w.t.Helper()
	o := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: w.node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: w.node.Name, UID: w.node.UID},
		}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: driverName, NodeID: w.node.Name, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(8))}},
		}},
	}
	if edit != nil {
		edit(o)
	}
	w.make(o)
	return o
}

// report is what the node plug-in writes.
func (w *world) report(ready bool) *apiv1.AzDriverNode {
	w.t.Helper()
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.node.Name}, Spec: apiv1.AzDriverNodeSpec{VMID: "vm"}}
	w.make(d)
	w.say(d, ready)
	return d
}

func (w *world) say(d *apiv1.AzDriverNode, ready bool) {
	w.t.Helper()
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: apiv1.NodeConditionReady, Status: status, Reason: "Test"})
	w.must(w.api.Status().Update(w.t.Context(), d))
}

func (w *world) taints() []string {
	w.t.Helper()
	node := &corev1.Node{}
	w.must(w.api.Get(w.t.Context(), client.ObjectKey{Name: w.node.Name}, node))
	var keys []string
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady { // the API server's own
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

func (w *world) awaitRemoval() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	watcher, err := w.api.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": w.node.Name})
	w.must(err)
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if ok && event.Type != watch.Deleted && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1Taint }) {
			return
		}
	}
	w.t.Fatalf("the taint stays: %v", w.taints())
}

func TestTheTaintGoesWhenTheDriverIsReady(t *testing.T) {
	for name, arrive := range map[string]func(*world){
		"and the kubelet is first": func(w *world) { w.register(nil); w.report(true) },
		"and the plug-in is first": func(w *world) { w.report(true); w.register(nil) },
		"and says so later": func(w *world) {
			w.register(nil)
			w.say(w.report(false), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			arrive(w)
			w.awaitRemoval()
			if got := w.taints(); !slices.Equal(got, []string{otherTaint}) {
				t.Errorf("taints %v are left, want only the one that is not ours", got)
			}
		})
	}
}

func TestTheTaintStaysUntilTheDriverIsReady(t *testing.T) {
	for name, test := range map[string]struct {
		arrive func(*world) func()
	}{
		"while the kubelet has not registered it": {func(w *world) func() {
			w.report(true)
			return func() { w.register(nil) }
		}},
		"while the scheduler could not count its volumes": {func(w *world) func() {
			w.report(true)
			o := w.register(func(o *storagev1.CSINode) { o.Spec.Drivers[0].Allocatable = nil })
			return func() {
				w.must(w.api.Delete(w.t.Context(), o))
				w.register(nil)
			}
		}},
		"while the CSINode is of an earlier Node": {func(w *world) func() {
			w.report(true)
			o := w.register(func(o *storagev1.CSINode) { o.OwnerReferences[0].UID = "of-the-machine-before" })
			return func() {
				o.OwnerReferences[0].UID = w.node.UID
				w.must(w.api.Update(w.t.Context(), o))
			}
		}},
		"while the plug-in is not ready": {func(w *world) func() {
			w.register(nil)
			d := w.report(false)
			return func() { w.say(d, true) }
		}},
		"while there is no plug-in": {func(w *world) func() {
			w.register(nil)
			return func() { w.report(true) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			complete := test.arrive(w)
			// A second node that is complete shows that the reconciler has had its turn.
			sentinel := &world{t: t, api: w.api, namespace: w.namespace, node: w.node.DeepCopy()}
			sentinel.node.ObjectMeta = metav1.ObjectMeta{Name: w.node.Name + "-sentinel"}
			sentinel.make(sentinel.node)
			sentinel.register(nil)
			sentinel.report(true)
			sentinel.awaitRemoval()
			if got := w.taints(); len(got) != 3 {
				t.Fatalf("taints %v are left, want all three", got)
			}
			complete()
			w.awaitRemoval()
		})
	}
}
