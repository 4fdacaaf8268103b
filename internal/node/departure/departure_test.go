package departure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/node/departure"
)

func tainted(key string) *corev1.Node {
	return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}}}
}

func condition(status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type:   corev1.NodeReady,
		Status: status,
		Reason: "Kubelet",
	}}}}
}

func TestWhichNodesAreLeaving(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		node    *corev1.Node
		leaving bool
	}{
		"one that is gone":                        {nil, true},
		"one that is being deleted":               {&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, true},
		"one that is cordoned":                    {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, true},
		"one that the cluster autoscaler removes": {tainted("ToBeDeletedByClusterAutoscaler"), true},
		"one that Karpenter removes":              {tainted("karpenter.sh/disrupted"), true},
		"one that an older Karpenter removes":     {tainted("karpenter.sh/disruption"), true},
		"one that is out of service":              {tainted(corev1.TaintNodeOutOfService), true},
		"one whose kubelet is shutting down":      {condition(corev1.ConditionFalse), true},
		"one whose condition is unknown":          {condition(corev1.ConditionUnknown), true},
		"one that works":                          {condition(corev1.ConditionTrue), false},
		"one with the start-up taint":             {tainted("disk.csi.azure.com/agent-not-ready"), false},
		"one that the autoscaler only considers":  {tainted("DeletionCandidateOfClusterAutoscaler"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if reason := departure.Leaving(test.node); (reason != "") != test.leaving {
				t.Errorf("reason %q, want leaving %t", reason, test.leaving)
			}
		})
	}
}

// nodes answers every Get with one Node, or an error.
type nodes struct {
	client.Reader
	node *corev1.Node
	err  error
}

func (n nodes) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if n.err != nil {
		return n.err
	}
	n.node.DeepCopyInto(into.(*corev1.Node))
	return nil
}

func TestHowLongThePluginWaits(t *testing.T) {
	cordoned := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "node-a")
	for name, test := range map[string]struct {
		reader   nodes
		emptyIn  time.Duration
		patience time.Duration
		want     time.Duration
	}{
		"not at all on a node that stays": {nodes{node: condition(corev1.ConditionTrue)}, time.Hour,
			time.Minute, 0},
		"until the volumes are gone on one that leaves": {nodes{node: cordoned}, 7 * time.Second, time.Minute,
			7 * time.Second},
		"no longer than the patience": {nodes{node: cordoned}, time.Hour, 25 * time.Second,
			25 * time.Second},
		"until the volumes are gone if the Node is deleted": {nodes{err: gone}, 3 * time.Second, time.Minute, 3 * time.Second},
		"not at all if the API server does not answer": {nodes{err: errors.New("no route to host")}, time.Hour, time.Minute,
			0},
		"not at all with a patience of 0": {nodes{node: cordoned}, time.Hour, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				departure.Await(t.Context(), departure.Options{
					Client:   test.reader,
					NodeName: "node-a",
					Patience: test.patience,
					Empty: func(ctx context.Context) error {
						select {
						case <-time.After(test.emptyIn):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					},
				})
				if took := time.Since(start); took != test.want {
					t.Errorf("it took %s, want %s", took, test.want)
				}
			})
		})
	}
}
