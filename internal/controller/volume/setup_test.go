package volume

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// After a watch has broken, a node that was created and reported in the meantime comes as one
// creation: no update follows.
func TestANodeThatComesCompleteLeadsToVolumesThatLackReplicas(t *testing.T) {
	t.Parallel()
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "n", Name: name} }
	lacking := &apiv1.AzVolume{ObjectMeta: object("lacking"), Status: apiv1.AzVolumeStatus{Conditions: []metav1.Condition{
		{Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionFalse, Reason: apiv1.ReasonReplicasMissing},
	}}}
	here := &apiv1.AzVolumeAttachment{
		ObjectMeta: object("here-node"),
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "here", NodeName: "node"},
	}
	r := &Reconciler{Options: Options{Client: fakeapi.With(lacking, &apiv1.AzVolume{ObjectMeta: object("content")}, here).
		WithIndex(&apiv1.AzVolume{}, cluster.VolumeReplicas, cluster.VolumeReplicasKeys).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).Build()}}
	for name, test := range map[string]struct {
		initial bool
		want    []string
	}{
		"after the start":     {false, []string{"here", "lacking"}},
		"in the initial list": {true, nil},
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		e := event.CreateEvent{Object: &apiv1.AzDriverNode{ObjectMeta: object("node")}, IsInInitialList: test.initial}
		r.onNode("n").Create(t.Context(), e, queue)
		var got []string
		for queue.Len() > 0 {
			request, _ := queue.Get()
			got = append(got, request.Name)
		}
		queue.ShutDown()
		if slices.Sort(got); !slices.Equal(got, test.want) {
			t.Errorf("a node that comes %s: got requests for %v, want %v", name, got, test.want)
		}
	}
}

// A volume is not reconciled because a node's summary or its guard has changed: the conditions that it
// summarises are compared themselves.
func TestASummaryImpairsNoNode(t *testing.T) {
	t.Parallel()
	node := func(kind string, status metav1.ConditionStatus) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{{Type: kind, Status: status}}}}
	}
	for kind, want := range map[string]bool{
		apiv1.NodeConditionReady: false, apiv1.NodeConditionGuards: false, apiv1.NodeConditionProbeable: false,
		apiv1.NodeConditionReachable: true, apiv1.NodeConditionPluginReady: true, apiv1.NodeConditionVMKnown: true,
	} {
		before, after := node(kind, metav1.ConditionTrue), node(kind, metav1.ConditionFalse)
		if got := !equality.Semantic.DeepEqual(impaired(before), impaired(after)); got != want {
			t.Errorf("%s becomes False: got a reconciliation %t, want %t", kind, got, want)
		}
	}
}

// A pod that comes to the node of a replica, and must not be beside the pod of its volume, leads to that volume alone.
func TestAPodThatRepelsThePodOfAReplicaLeadsToItsVolume(t *testing.T) {
	t.Parallel()
	apart := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		}},
	}}
	pod := func(name, node, app string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}}},
		}
	}
	db := pod("db-0", "a", "db")
	db.Spec.Affinity = apart
	all := []client.Object{db, pod("web", "a", "web"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{corev1.LabelHostname: "b"}}}}
	names := map[string]string{}
	for _, claim := range []string{"db-0", "web"} {
		names[claim] = apiv1.VolumeName("s", "g", claim)
		all = append(all,
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: claim},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver:       "disk.csi.azure.com",
					VolumeHandle: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/" + claim,
				}},
			}},
			&apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: claim},
				Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: names[claim], NodeName: "b", Role: apiv1.RoleReplica}})
	}
	r := &Reconciler{Options: Options{Client: fakeapi.With(all...).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).
		WithIndex(&corev1.Pod{}, cluster.PodNode, cluster.PodNodeKeys).
		WithIndex(&corev1.Pod{}, cluster.PodClaim, cluster.PodClaimKeys).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, cluster.PersistentVolumeKeys("disk.csi.azure.com")).
		Build()}}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "n", Name: names["db-0"]}}}
	if got := r.repelledBy(t.Context(), "n", pod("db-1", "b", "db")); !slices.Equal(got, want) {
		t.Errorf("a pod that is repelled: got %v, want %v", got, want)
	}
	for _, other := range []*corev1.Pod{pod("cache", "b", "cache"), pod("db-1", "gone", "db"), pod("db-1", "a", "db")} {
		if got := r.repelledBy(t.Context(), "n", other); len(got) > 0 {
			t.Errorf("pod %s on node %s: got %v, want nothing", other.Name, other.Spec.NodeName, got)
		}
	}
	v := observed{attachments: []*apiv1.AzVolumeAttachment{
		{Spec: apiv1.AzVolumeAttachmentSpec{NodeName: "a", Role: apiv1.RolePrimary}},
		{Spec: apiv1.AzVolumeAttachmentSpec{NodeName: "b", Role: apiv1.RoleReplica}},
	}}
	beside, err := r.beside(t.Context(), v, []placement.PodView{{Pod: db}})
	if _, ok := beside["b"]; err != nil || !ok || len(beside) != 1 {
		t.Errorf("got the pods on %v and error %v, want those on the replica's node b", beside, err)
	}
}

func TestOnlyAPodThatComesToANodeMayRepel(t *testing.T) {
	t.Parallel()
	on := func(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	for name, test := range map[string]struct{ got, want bool }{
		"placed":             {placed.Update(event.UpdateEvent{ObjectOld: on(""), ObjectNew: on("a")}), true},
		"changed there":      {placed.Update(event.UpdateEvent{ObjectOld: on("a"), ObjectNew: on("a")}), false},
		"waiting":            {placed.Update(event.UpdateEvent{ObjectOld: on(""), ObjectNew: on("")}), false},
		"made with a node":   {placed.Create(event.CreateEvent{Object: on("a")}), true},
		"made without":       {placed.Create(event.CreateEvent{Object: on("")}), false},
		"there at the start": {placed.Create(event.CreateEvent{Object: on("a"), IsInInitialList: true}), false},
		"deleted":            {placed.Delete(event.DeleteEvent{Object: on("a")}), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %t, want %t", name, test.got, test.want)
		}
	}
}
