package startuptaint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/startuptaint"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	v1Taint    = "disk.csi.azure.com/agent-not-ready" // a name that users' node pools have
	otherTaint = "example.com/other"
)

// world is a cluster with the reconciler at work, and one new node.
type world struct {
	*controlplane.ControlPlane
	t    *testing.T
	node *corev1.Node
}

func newWorld(t *testing.T) *world { return newWorldWith(t, func(*startuptaint.Options) {}) }

func newWorldWith(t *testing.T, edit func(*startuptaint.Options)) *world {
	t.Helper()
	w := &world{t: t, ControlPlane: controlplane.NewInMemory(t, controlplane.Options{Quiet: true,
		With: func(_ context.Context, mgr ctrl.Manager, _ provisioner.Cloud, namespace string) error {
			options := startuptaint.Options{
				Client:     mgr.GetClient(),
				Reader:     mgr.GetAPIReader(),
				Events:     mgr.GetEventRecorder("test"),
				DriverName: controlplane.DriverName,
				Workers:    1,
			}
			edit(&options)
			return startuptaint.New(options).SetUp(mgr, namespace)
		}})}
	return w.with("node")
}

// with is the same cluster with another new node.
func (w *world) with(name string) *world {
	w.t.Helper()
	other := &world{
		t:            w.t,
		ControlPlane: w.ControlPlane,
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + name},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: otherTaint, Effect: corev1.TaintEffectNoSchedule},
				{Key: v1Taint, Effect: corev1.TaintEffectNoExecute},
				{Key: v1Taint, Effect: corev1.TaintEffectNoSchedule},
			}},
		},
	}
	other.make(other.node)
	return other
}

func (w *world) make(o client.Object) {
	w.t.Helper()
	expect.Must(w.t, w.Client.Create(w.t.Context(), o))
	w.t.Cleanup(func() { expect.Must(w.t, client.IgnoreNotFound(w.Client.Delete(context.Background(), o))) })
}

// register is what the kubelet writes when the plug-in registers.
func (w *world) register(edit func(*storagev1.CSINode)) *storagev1.CSINode {
	w.t.Helper()
	o := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: w.node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: w.node.Name, UID: w.node.UID},
		}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: controlplane.DriverName, NodeID: w.node.Name,
				Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(8))}},
		}},
	}
	if edit != nil {
		edit(o)
	}
	w.make(o)
	return o
}

// report is what the node plug-in writes.
func (w *world) report(ready bool) {
	w.t.Helper()
	w.make(&apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.node.Name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: "vm"},
	})
	w.say(ready)
}

func (w *world) say(ready bool) {
	w.t.Helper()
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	w.Report(w.node.Name, func(s *apiv1.AzDriverNodeStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: apiv1.NodeConditionPluginReady, Status: status, Reason: "Test",
		})
	})
}

func (w *world) taints() []string {
	var keys []string
	for _, taint := range w.Node(w.node.Name).Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady { // the API server's own
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

func (w *world) awaitRemoval() {
	w.t.Helper()
	w.Eventually("the taint is removed", func() string {
		if taints := w.taints(); slices.Contains(taints, v1Taint) {
			return fmt.Sprint(taints)
		}
		return ""
	})
}

func TestTheTaintGoesWhenTheDriverIsReady(t *testing.T) {
	for name, arrive := range map[string]func(*world){
		"and the kubelet is first": func(w *world) { w.register(nil); w.report(true) },
		"and the plug-in is first": func(w *world) { w.report(true); w.register(nil) },
		"and says so later": func(w *world) {
			w.register(nil)
			w.report(false)
			w.say(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				arrive(w)
				w.awaitRemoval()
				if got := w.taints(); !slices.Equal(got, []string{otherTaint}) {
					t.Errorf("taints %v are left, want only the one that is not ours", got)
				}
			})
		})
	}
}

// policed is a client of a cluster whose policies refuse changes of Nodes.
type policed struct{ client.Client }

func (policed) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("a policy of the cluster"))
}

func TestARefusedRemovalIsAnEventOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(100)
		w := newWorldWith(t, func(o *startuptaint.Options) { o.Client, o.Events = policed{o.Client}, recorder })
		w.register(nil)
		w.report(true)
		expect.Eventually(t, "there is an event", func() bool { return len(recorder.Events) > 0 })
		got := <-recorder.Events
		for _, want := range []string{"Warning WriteRefused", v1Taint, "a policy of the cluster"} {
			if !strings.Contains(got, want) {
				t.Errorf("event: got %q, want %q in it", got, want)
			}
		}
	})
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
				expect.Must(w.t, w.Client.Delete(w.t.Context(), o))
				w.register(nil)
			}
		}},
		"while the CSINode is of an earlier Node": {func(w *world) func() {
			w.report(true)
			o := w.register(func(o *storagev1.CSINode) { o.OwnerReferences[0].UID = "of-the-machine-before" })
			return func() {
				o.OwnerReferences[0].UID = w.node.UID
				expect.Must(w.t, w.Client.Update(w.t.Context(), o))
			}
		}},
		"while the plug-in is not ready": {func(w *world) func() {
			w.register(nil)
			w.report(false)
			return func() { w.say(true) }
		}},
		"while there is no plug-in": {func(w *world) func() {
			w.register(nil)
			return func() { w.report(true) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				complete := test.arrive(w)
				// A second node that is complete shows that the reconciler has had its turn.
				sentinel := w.with("sentinel")
				sentinel.register(nil)
				sentinel.report(true)
				sentinel.awaitRemoval()
				if got := w.taints(); len(got) != 3 {
					t.Fatalf("taints %v are left, want all three", got)
				}
				complete()
				w.awaitRemoval()
			})
		})
	}
}
