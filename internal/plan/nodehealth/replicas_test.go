package nodehealth_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// silentFor is a judgement of a node whose last sign of life is that long ago.
func silentFor(state nodehealth.State, d time.Duration) nodehealth.Judgement {
	return nodehealth.Judgement{State: state, SilentFrom: objects.Now.Add(-d)}
}

// kubelet is a Node whose kubelet has not been ready for that long; negative if it is ready.
func kubelet(notReady time.Duration) *corev1.Node {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	if notReady >= 0 {
		ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, *objects.Ago(notReady)
	}
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
}

func TestForReplicas(t *testing.T) {
	t.Parallel()
	mass := silentFor(nodehealth.Lost, time.Hour)
	mass.MassLoss, mass.HeldBack = true, "many"
	for name, c := range map[string]struct {
		judgement nodehealth.Judgement
		notReady  time.Duration
		unusable  bool
		want      nodehealth.State
	}{
		"a healthy node whose kubelet is ready":          {silentFor(nodehealth.Healthy, 0), -1, false, nodehealth.Healthy},
		"a healthy node whose node plug-in is not ready": {silentFor(nodehealth.Healthy, 0), -1, true, nodehealth.Suspect},
		"a suspect node remains suspect for any time": {silentFor(nodehealth.Suspect, time.Hour), -1, false,
			nodehealth.Suspect},
		"lost within the grace period": {silentFor(nodehealth.Lost, 50*time.Second), 10 * time.Second,
			false, nodehealth.Suspect},
		"lost for exactly the grace period": {silentFor(nodehealth.Lost, time.Minute), -1, false, nodehealth.Suspect},
		"lost after the grace period": {silentFor(nodehealth.Lost, 61*time.Second), 10 * time.Second,
			false, nodehealth.Lost},
		"down within the grace period, as during a reboot": {silentFor(nodehealth.Down, 50*time.Second), -1, false,
			nodehealth.Suspect},
		"down after the grace period": {silentFor(nodehealth.Down, 61*time.Second), -1, false,
			nodehealth.Lost},
		"the kubelet is not ready within the grace period": {silentFor(nodehealth.Healthy, 0), 299 * time.Second, false,
			nodehealth.Suspect},
		"the kubelet is not ready for exactly the grace period": {silentFor(nodehealth.Healthy, 0), 5 * time.Minute, false,
			nodehealth.Suspect},
		"the kubelet is not ready after the grace period": {silentFor(nodehealth.Healthy, 0), 301 * time.Second, false,
			nodehealth.Lost},
		"one of so many lost nodes that the fault may differ": {mass, time.Hour, false, nodehealth.Suspect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := nodehealth.ForReplicas(nodehealth.ReplicaSigns{
				Judgement: c.judgement,
				Node:      kubelet(c.notReady),
				Usable:    !c.unusable,
				Now:       objects.Now,
			})
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	t.Run("a node that Azure is going to service", func(t *testing.T) {
		t.Parallel()
		signs := nodehealth.ReplicaSigns{
			Judgement: silentFor(nodehealth.Healthy, 0),
			Node:      kubelet(-1),
			Usable:    true,
			Disturbed: true,
			Now:       objects.Now,
		}
		if got := nodehealth.ForReplicas(signs); got != nodehealth.Suspect {
			t.Errorf("got %s, want %s", got, nodehealth.Suspect)
		}
	})
	t.Run("a Node with another condition that is not True for long", func(t *testing.T) {
		t.Parallel()
		node := kubelet(time.Minute)
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type:               corev1.NodeDiskPressure,
			Status:             corev1.ConditionFalse,
			LastTransitionTime: *objects.Ago(time.Hour),
		})
		signs := nodehealth.ReplicaSigns{Judgement: silentFor(nodehealth.Healthy, 0), Node: node, Usable: true, Now: objects.Now}
		if got := nodehealth.ForReplicas(signs); got != nodehealth.Suspect {
			t.Errorf("got %s, want %s", got, nodehealth.Suspect)
		}
	})
	t.Run("a Node without a condition Ready", func(t *testing.T) {
		t.Parallel()
		signs := nodehealth.ReplicaSigns{
			Judgement: silentFor(nodehealth.Healthy, 0),
			Node:      &corev1.Node{},
			Usable:    true,
			Now:       objects.Now,
		}
		if got := nodehealth.ForReplicas(signs); got != nodehealth.Suspect {
			t.Errorf("got %s, want %s", got, nodehealth.Suspect)
		}
	})
}

func TestNoReport(t *testing.T) {
	t.Parallel()
	held := silentFor(nodehealth.Lost, time.Minute)
	held.HeldBack = "switched off"
	mass := silentFor(nodehealth.Suspect, time.Minute)
	mass.MassLoss = true
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for name, c := range map[string]struct {
		judgement nodehealth.Judgement
		driver    *apiv1.AzDriverNode
		node      *corev1.Node
		want      bool
	}{
		"a healthy node, although its kubelet is not ready":    {silentFor(nodehealth.Healthy, 0), d, kubelet(time.Hour), false},
		"a suspect node whose kubelet is ready":                {silentFor(nodehealth.Suspect, time.Hour), d, kubelet(-1), false},
		"a suspect node whose kubelet is not ready":            {silentFor(nodehealth.Suspect, time.Hour), d, kubelet(0), true},
		"a lost node before Kubernetes knows":                  {silentFor(nodehealth.Lost, time.Minute), d, kubelet(-1), true},
		"a VM that is down":                                    {silentFor(nodehealth.Down, time.Minute), d, kubelet(-1), true},
		"a lost node that must not be fenced":                  {held, d, kubelet(-1), false},
		"a lost node that must not be fenced and is not Ready": {held, d, kubelet(0), true},
		"one of so many that the fault may be elsewhere":       {mass, d, kubelet(time.Hour), false},
		"a Node without an AzDriverNode":                       {silentFor(nodehealth.Healthy, 0), nil, kubelet(-1), true},
		"an AzDriverNode without a Node":                       {silentFor(nodehealth.Healthy, 0), d, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nodehealth.NoReport(c.judgement, c.driver, c.node); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
