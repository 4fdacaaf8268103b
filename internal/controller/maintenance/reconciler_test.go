package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/maintenance"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

const (
	namespace  = "azure-disk-csi"
	driverName = apiv1.GroupName
	diskURI    = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/data"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is node-a, which Azure is going to service, with a pod whose volume has a replica on node-b.
type world struct {
	t       *testing.T
	api     client.WithWatch
	evicted []string
	// answer is that of the API server to an eviction, and written to a write of the condition.
	answer, written error
	clock           *clocktesting.FakeClock
	r               *maintenance.Reconciler
	events          *events.FakeRecorder
}

func driverNode(name string, undisturbed metav1.ConditionStatus, kind apiv1.MaintenanceType) *apiv1.AzDriverNode {
	return &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: name},
		Status: apiv1.AzDriverNodeStatus{
			Maintenance: &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{EventID: "e", Type: kind, Started: true}}},
			Conditions: []metav1.Condition{{Type: apiv1.NodeConditionUndisturbed, Status: undisturbed,
				LastTransitionTime: metav1.NewTime(start)}},
		},
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	yes := true
	handle, err := volumehandle.Parse(diskURI)
	expect.Must(t, err)
	pod := func(name, claim string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name),
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Controller: &yes}}}}
		p.Spec.NodeName = "node-a"
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		return p
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	claim.Spec.VolumeName = "pv"
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: diskURI}
	volume := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: handle.VolumeName()}}
	volume.Spec.MaxMountReplicaCount, volume.Spec.Disk.MaxShares = 1, 2
	attached := func(node string, role apiv1.Role) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume.Name, node)},
			Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume.Name, NodeName: node, Role: role},
			Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached},
		}
	}
	objects = append(objects, pod("database", "data"), pod("cache", "elsewhere"), claim, pv, volume,
		attached("node-a", apiv1.RolePrimary), attached("node-b", apiv1.RoleReplica),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}})
	w := &world{t: t, clock: clocktesting.NewFakeClock(start),
		events: events.NewFakeRecorder(100)}
	w.api = interceptor.NewClient(fakeapi.With(objects...).WithIndex(&corev1.Pod{}, cluster.PodNode, cluster.PodNodeKeys).
		WithIndex(&corev1.Pod{}, cluster.PodRules, cluster.PodRulesKeys).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, kind string, pod, eviction client.Object,
			_ ...client.SubResourceCreateOption) error {
			e, is := eviction.(*policyv1.Eviction)
			if kind != "eviction" || !is || e.DeleteOptions.Preconditions.UID == nil {
				t.Errorf("got %s %T, want the eviction of that very pod", kind, eviction)
			}
			if w.answer == nil {
				w.evicted = append(w.evicted, pod.GetName())
			}
			return w.answer
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, kind string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if w.written != nil {
				return w.written
			}
			return c.SubResource(kind).Patch(ctx, o, patch, options...)
		},
	})
	w.start()
	return w
}

// start puts a new process in the place of the one that runs.
func (w *world) start() {
	w.t.Helper()
	var err error
	w.r, err = maintenance.New(maintenance.Options{
		Client:     w.api,
		Nodes:      w,
		Events:     w.events,
		Clock:      w.clock,
		Policies:   plan.Policies{apiv1.MaintenancePreempt: plan.Move},
		DriverName: driverName,
		Metrics:    prometheus.NewRegistry(),
	})
	expect.Must(w.t, err)
}

// Views are the nodes that have an AzDriverNode.
func (w *world) Views(ctx context.Context) (views []placement.NodeView, err error) {
	for _, name := range []string{"node-a", "node-b"} {
		d, node := &apiv1.AzDriverNode{}, &corev1.Node{}
		if w.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d) != nil {
			continue
		}
		expect.Must(w.t, w.api.Get(ctx, client.ObjectKey{Name: name}, node))
		views = append(views, placement.NodeView{Node: node, Health: nodehealth.Healthy, Disturbed: cluster.Disturbed(d)})
	}
	return views, nil
}

// recreate does what a controller and kube-scheduler do after an eviction if no other node takes the
// pod: it is made again, on the same node.
func (w *world) recreate() {
	w.t.Helper()
	p := &corev1.Pod{}
	expect.Must(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: "database"}, p))
	again := p.DeepCopy()
	expect.Must(w.t, w.api.Delete(w.t.Context(), p))
	again.ResourceVersion, again.UID, again.CreationTimestamp = "", p.UID+"-again", metav1.NewTime(w.clock.Now())
	expect.Must(w.t, w.api.Create(w.t.Context(), again))
}

// announce replaces the events of node-a.
func (w *world) announce(events ...apiv1.MaintenanceEvent) {
	w.t.Helper()
	w.report(&apiv1.NodeMaintenance{Events: events})
}

// after returns an event that may begin after some time.
func (w *world) after(id string, kind apiv1.MaintenanceType, d time.Duration) apiv1.MaintenanceEvent {
	at := metav1.NewTime(w.clock.Now().Add(d))
	return apiv1.MaintenanceEvent{EventID: id, Type: kind, NotBeforeTime: &at}
}

// recorded returns the events with a reason.
func (w *world) recorded(reason string) (found []string) {
	for len(w.events.Events) > 0 {
		if e := <-w.events.Events; strings.Contains(e, " "+reason+" ") {
			found = append(found, e)
		}
	}
	return found
}

func (w *world) reconcile() (reconcile.Result, error) {
	return w.r.Reconcile(w.t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "node-a"}})
}

func TestPodsWithReplicatedVolumesAreEvicted(t *testing.T) {
	stays := driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze)
	for name, c := range map[string]struct {
		nodes []client.Object
		want  []string
	}{
		"a spot VM is evicted": {[]client.Object{driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt), stays},
			[]string{"database"}},
		"no other node stays": {[]client.Object{driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt),
			driverNode("node-b", metav1.ConditionFalse, apiv1.MaintenancePreempt)}, nil},
		"another kind of maintenance": {[]client.Object{driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenanceReboot),
			stays}, nil},
		"the condition is not written yet": {
			[]client.Object{driverNode("node-a", metav1.ConditionTrue, apiv1.MaintenancePreempt), stays}, []string{"database"}},
		"no AzDriverNode": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.nodes...)
			if _, err := w.reconcile(); err != nil || !slices.Equal(w.evicted, c.want) {
				t.Errorf("got %v, %v; want %v evicted", w.evicted, err, c.want)
			}
		})
	}
}

func TestAColdPodWaitsForItsReplica(t *testing.T) {
	announced := driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt)
	for name, c := range map[string]struct {
		other  metav1.ConditionStatus
		evicts bool
	}{"a replica on a node that stays": {metav1.ConditionTrue, true}, "on one that leaves too": {metav1.ConditionFalse, false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, announced.DeepCopy(), driverNode("node-b", c.other, apiv1.MaintenancePreempt))
			w.announce(w.after("e", apiv1.MaintenancePreempt, 90*time.Second))
			result, err := w.reconcile()
			if err != nil || (len(w.evicted) > 0) != c.evicts || result.RequeueAfter != plan.MoveAgain {
				t.Errorf("got %v, %+v, %v; want an eviction: %t", w.evicted, result, err, c.evicts)
			}
		})
	}
}

func TestTheAnswerToAnEviction(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		fails  bool
		events int
	}{
		"it is done":                 {nil, false, 1},
		"a budget does not allow it": {apierrors.NewTooManyRequests("no disruptions", 10), false, 0},
		"the pod is gone":            {apierrors.NewNotFound(corev1.Resource("pods"), "database"), false, 0},
		"another pod has its name": {apierrors.NewConflict(corev1.Resource("pods"), "database", errors.New("uid")), false,
			0},
		"the API server does not answer": {errors.New("no answer"), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt),
				driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze))
			w.answer = c.answer
			result, err := w.reconcile()
			told := len(w.recorded("MovedBeforeMaintenance"))
			if (err != nil) != c.fails || !c.fails && result.RequeueAfter != plan.MoveAgain || told != c.events {
				t.Errorf("got %+v, %v and %d events; want a failure: %t, and %d events", result, err, told, c.fails, c.events)
			}
		})
	}
}

// The pod that a controller creates after an eviction may be placed on the same node, because it is
// the only one with room. Azure lists the event for minutes.
func TestAPodIsNotEvictedAgainForTheSameEvent(t *testing.T) {
	for name, again := range map[string]func(w *world){
		"the same process": func(*world) {},
		"after a restart":  (*world).start,
		"the event has started": func(w *world) {
			w.announce(apiv1.MaintenanceEvent{EventID: "e", Type: apiv1.MaintenancePreempt, Started: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt),
				driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze))
			w.announce(w.after("e", apiv1.MaintenancePreempt, 30*time.Second))
			for range 8 {
				_, err := w.reconcile()
				expect.Must(t, err)
				w.clock.Step(plan.MoveAgain)
				w.recreate()
				again(w)
			}
			if len(w.evicted) != 1 {
				t.Errorf("evicted %d times, want once", len(w.evicted))
			}
			w.announce(w.after("another", apiv1.MaintenancePreempt, 30*time.Second))
			if _, err := w.reconcile(); name == "the same process" && (err != nil || len(w.evicted) != 2) {
				t.Errorf("evicted %d times after another event (%v), want twice", len(w.evicted), err)
			}
		})
	}
}

// A pause that is over is listed for some minutes when Azure announces the eviction of the spot VM.
func TestAnEventThatIsListedDoesNotHideAnother(t *testing.T) {
	w := newWorld(t, driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt),
		driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze))
	pause := apiv1.MaintenanceEvent{EventID: "pause", Type: apiv1.MaintenanceFreeze, Started: true}
	w.announce(pause)
	_, err := w.reconcile()
	expect.Must(t, err)
	w.clock.Step(time.Minute)
	w.recreate()
	w.clock.Step(time.Minute)
	w.announce(pause, w.after("spot", apiv1.MaintenancePreempt, 30*time.Second))
	if _, err := w.reconcile(); err != nil || len(w.evicted) != 1 {
		t.Errorf("evicted %v (%v), want the pod", w.evicted, err)
	}
}

func TestEvictionsHaveAPace(t *testing.T) {
	w := newWorld(t, driverNode("node-a", metav1.ConditionFalse, apiv1.MaintenancePreempt),
		driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze))
	one := &corev1.Pod{}
	expect.Must(t, w.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "database"}, one))
	for n := range 59 {
		p := one.DeepCopy()
		p.ResourceVersion, p.Name, p.UID = "", fmt.Sprint("database-", n), types.UID(fmt.Sprint("uid-", n))
		expect.Must(t, w.api.Create(t.Context(), p))
	}
	result, err := w.reconcile()
	if err != nil || len(w.evicted) != 20 || result.RequeueAfter != 500*time.Millisecond {
		t.Errorf("got %d evictions at once and %+v (%v), want 20, and again in 500ms", len(w.evicted), result, err)
	}
	w.clock.Step(time.Second)
	if _, err := w.reconcile(); err != nil || len(w.evicted) != 30 {
		t.Errorf("got %d evictions after a second (%v), want 30", len(w.evicted), err)
	}
}
