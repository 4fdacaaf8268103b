package nodehealth_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestNotReadySince(t *testing.T) {
	t.Parallel()
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *objects.Ago(time.Hour)},
			Status:     corev1.NodeStatus{Conditions: conditions},
		}
	}
	is := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type:               corev1.NodeReady,
			Status:             status,
			LastTransitionTime: *objects.Ago(time.Minute),
		}
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want time.Time
	}{
		"Ready":                           {node(is(corev1.ConditionTrue)), time.Time{}},
		"the kubelet says that it is not": {node(is(corev1.ConditionFalse)), objects.Now.Add(-time.Minute)},
		"Kubernetes has lost the kubelet": {node(is(corev1.ConditionUnknown)), objects.Now.Add(-time.Minute)},
		"another condition is True": {
			node(corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, is(corev1.ConditionFalse)),
			objects.Now.Add(-time.Minute)},
		"no kubelet has ever reported": {node(), objects.Now.Add(-time.Hour)},
		"there is no Node":             {nil, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nodehealth.NotReadySince(test.node); !got.Equal(test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			want := test.node == nil || !test.want.IsZero()
			if got := nodehealth.KubernetesLost(test.node); got != want {
				t.Errorf("got that Kubernetes has lost it: %t, want %t", got, want)
			}
		})
	}
}
