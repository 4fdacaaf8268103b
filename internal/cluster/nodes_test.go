package cluster_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// says is a judge that has one judgement of every node.
type says nodehealth.Judgement

const vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a"

func (s says) Health(string) nodehealth.Judgement { return nodehealth.Judgement(s) }

func silentFor(state nodehealth.State, d time.Duration) nodehealth.Judgement {
	return nodehealth.Judgement{State: state, SilentFrom: now.Add(-d)}
}

// nodesOf makes a Nodes of one node "a". notReady is for how long its kubelet has not been ready;
// negative if it is.
func nodesOf(t *testing.T, judgement nodehealth.Judgement, notReady time.Duration, objects ...client.Object) *cluster.Nodes {
	t.Helper()
	if objects == nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
		if notReady >= 0 {
			ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(now.Add(-notReady))
		}
		node.Status.Conditions = []corev1.NodeCondition{ready}
		objects = []client.Object{node, &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
			Spec:       apiv1.AzDriverNodeSpec{VMID: vm},
		}}
	}
	c := fakeapi.With(objects...).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).
		WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&corev1.Node{}, cluster.NodeVM,
		cluster.NodeVMKeys).Build()
	return cluster.NewNodes(c, "ns", clocktesting.NewFakePassiveClock(now), says(judgement))
}

func TestHealthForReplicasNeedsEverythingThatTheCacheHolds(t *testing.T) {
	notReady := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		Spec:       apiv1.AzDriverNodeSpec{VMID: vm},
		Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{{
			Type:   apiv1.NodeConditionPluginReady,
			Status: metav1.ConditionFalse,
		}}},
	}
	readyNode := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for name, c := range map[string]struct {
		nodes *cluster.Nodes
		want  nodehealth.State
	}{
		"a healthy node whose kubelet is ready": {nodesOf(t, silentFor(nodehealth.Healthy, 0), -1), nodehealth.Healthy},
		"a healthy node whose node plug-in is not ready": {nodesOf(t, silentFor(nodehealth.Healthy, 0), -1, readyNode, notReady),
			nodehealth.Suspect},
		"a node that is lost within the grace period": {nodesOf(t, silentFor(nodehealth.Lost, 50*time.Second), -1),
			nodehealth.Suspect},
		"a node that is lost after the grace period": {nodesOf(t, silentFor(nodehealth.Lost, 61*time.Second), -1),
			nodehealth.Lost},
		"a kubelet that is not ready for too long": {nodesOf(t, silentFor(nodehealth.Healthy, 0), 301*time.Second),
			nodehealth.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := c.nodes.View(t.Context(), "a"); err != nil || v.Health != c.want {
				t.Errorf("got %+v, %v; want health %s", v, err, c.want)
			}
		})
	}
}

// Its VM is not established, so that a disk that is attached to the node could be another node's.
func TestANodeThatContradictsItsProviderIDGetsNoReplicas(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + vm + "-b"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: apiv1.AzDriverNodeSpec{VMID: vm}}
	nodes := nodesOf(t, silentFor(nodehealth.Healthy, 0), -1, node, d)
	if v, err := nodes.View(t.Context(), "a"); err != nil || v.Health != nodehealth.Suspect {
		t.Errorf("got health %q, %v; want %q", v.Health, err, nodehealth.Suspect)
	}
	if facts, err := nodes.Facts(t.Context(), "a"); err != nil || facts.Identity.VMID != "" ||
		facts.Identity.Reason != apiv1.ReasonVMContradictsProviderID {
		t.Errorf("got %+v, %v; want no VM, for the reason %s", facts.Identity, err, apiv1.ReasonVMContradictsProviderID)
	}
}

func TestNoReportIsExpectedOfANodeThatIsLostOrNotThere(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	for name, c := range map[string]struct {
		nodes *cluster.Nodes
		want  bool
	}{
		"a healthy node":                       {nodesOf(t, silentFor(nodehealth.Healthy, 0), time.Hour), false},
		"a node that is lost":                  {nodesOf(t, silentFor(nodehealth.Lost, time.Minute), -1), true},
		"a Node without an AzDriverNode":       {nodesOf(t, silentFor(nodehealth.Healthy, 0), 0, node), true},
		"an AzDriverNode that has no Node":     {nodesOf(t, silentFor(nodehealth.Healthy, 0), 0, d), true},
		"a suspect node without a ready state": {nodesOf(t, silentFor(nodehealth.Suspect, time.Minute), 0, node, d), true},
	} {
		t.Run(name, func(t *testing.T) {
			if facts, err := c.nodes.Facts(t.Context(), "a"); err != nil || facts.NoReport != c.want {
				t.Errorf("got %+v, %v; want no report %t", facts, err, c.want)
			}
		})
	}
}
