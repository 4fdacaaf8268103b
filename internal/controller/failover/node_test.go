package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// A step that was decided for a Node object must not taint the Node that has replaced it under its
// name.
func TestANodeThatReplacedALostOneIsNotTainted(t *testing.T) {
	report := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	c := fakeapi.With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "new"}}, report).Build()
	o := observed{namespace: "ns"}
	o.NodeName, o.Node, o.DriverNode = "a", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "old"}}, report
	r := &Reconciler{Options: Options{Client: c, Reader: c}}
	if err := r.taint(t.Context(), o, lostnode.Step{
		Quarantine:   lostnode.TaintAdd,
		OutOfService: lostnode.TaintAdd,
	}); !apierrors.IsConflict(err) {
		t.Errorf("taint: %v, want a conflict", err)
	}
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "a"}, node); err != nil || len(node.Spec.Taints) > 0 {
		t.Errorf("got taints %v, %v; want none", node.Spec.Taints, err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(report), report); err != nil || len(report.Status.Conditions) > 0 {
		t.Errorf("got conditions %v, %v; want none", report.Status.Conditions, err)
	}
}
