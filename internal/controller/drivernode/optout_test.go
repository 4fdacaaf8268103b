package drivernode_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestTheConditionFollowsTheAnnotationOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reconcile()
	for _, test := range []struct {
		value  string
		status metav1.ConditionStatus
		reason string
	}{
		{apiv1.FailoverEnabled, metav1.ConditionTrue, apiv1.ReasonFailoverEnabled},
		{apiv1.FailoverDisabled, metav1.ConditionFalse, apiv1.ReasonOptedOut},
		{"off", metav1.ConditionFalse, apiv1.ReasonOptedOut},
		{apiv1.FailoverEnabled, metav1.ConditionTrue, apiv1.ReasonFailoverEnabled},
	} {
		node := &corev1.Node{}
		w.must(w.api.Get(t.Context(), client.ObjectKey{Name: w.node}, node))
		node.Annotations = map[string]string{apiv1.AnnotationFailover: test.value}
		w.must(w.api.Update(t.Context(), node))
		expect.Eventually(t, "the condition for "+test.value, func() bool {
			w.reconcile()
			d := &apiv1.AzDriverNode{}
			w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
			c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionFailoverEnabled)
			return c != nil && c.Status == test.status && c.Reason == test.reason
		})
	}
}
