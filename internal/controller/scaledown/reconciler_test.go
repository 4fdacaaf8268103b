package scaledown_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/scaledown"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/scaledown"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// A node takes the reservation of a disk from node a, and is annotated until a's attachment is gone.
func TestANodeThatIsNeededIsAnnotatedAndOthersValuesStay(t *testing.T) {
	t.Parallel()
	volume := objects.NewVolume(objects.Owned("b", 4, apiv1.OwnershipHeld))
	fenced := objects.NewAttachment("a", apiv1.RolePrimary, 3, apiv1.AttachmentDetaching)
	objects.Proved(fenced, apiv1.ProofPreempted)
	fenced.Status.Proof.Preemption = &apiv1.Preemption{NodeName: "b"}
	owner := objects.NewAttachment("b", apiv1.RolePrimary, 4, apiv1.AttachmentAttached)
	node := func(name string, annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	api := fakeapi.With(volume, fenced, owner, node("a", nil), node("b", map[string]string{plan.Karpenter: "false"})).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, func(o client.Object) []string {
			return []string{o.(*apiv1.AzVolumeAttachment).Spec.NodeName}
		}).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, func(o client.Object) []string {
			return []string{o.(*apiv1.AzVolumeAttachment).Spec.VolumeName}
		}).Build()
	r := scaledown.New(scaledown.Options{Client: api, Reader: api})
	expect := func(when, name string, again bool, want map[string]string) {
		t.Helper()
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: volume.Namespace, Name: name}}
		result, err := r.Reconcile(t.Context(), request)
		got := &corev1.Node{}
		if err == nil {
			err = api.Get(t.Context(), client.ObjectKey{Name: name}, got)
		}
		if err != nil || !maps.Equal(got.Annotations, want) || result.RequeueAfter > 0 != again {
			t.Errorf("%s: node %s: got %v, %+v, %v; want %v, again %t", when, name, got.Annotations, result, err, want, again)
		}
	}
	held := map[string]string{
		plan.Karpenter: "false", plan.ClusterAutoscaler: "true", apiv1.AnnotationScaleDownDisabled: plan.ClusterAutoscaler}
	for _, when := range []string{"while it is needed", "once more"} {
		expect(when, "b", true, held)
		expect(when, "a", false, nil)
	}
	if err := api.Delete(t.Context(), fenced); err != nil {
		t.Fatal(err)
	}
	expect("afterwards", "b", false, map[string]string{plan.Karpenter: "false"})
}
