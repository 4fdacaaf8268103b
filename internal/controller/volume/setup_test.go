package volume

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
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
