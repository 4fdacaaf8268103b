package nodefacts_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/index"
	"github.com/azuredisk-csi/azuredisk/internal/controller/nodefacts"
	"github.com/azuredisk-csi/azuredisk/internal/nodeidentity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// says is a judge who says one thing of every node.
type says nodehealth.Judgement

const vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a"

func (s says) Health(string) nodehealth.Judgement { return nodehealth.Judgement(s) }

func silentFor(state nodehealth.State, d time.Duration) nodehealth.Judgement {
	return nodehealth.Judgement{State: state, SilentFrom: now.Add(-d)}
}

// nodesOf makes a Nodes of one node "a". notReady is for how long its kubelet has not been ready; negative if it is.
func nodesOf(t *testing.T, verdict nodehealth.Judgement, notReady time.Duration, objects ...client.Object) *nodefacts.Nodes {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if objects == nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
		if notReady >= 0 {
			ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(now.Add(-notReady))
		}
		node.Status.Conditions = []corev1.NodeCondition{ready}
		objects = []client.Object{node, &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: apiv1.AzDriverNodeSpec{VMID: vm}}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&apiv1.AzVolumeAttachment{}, index.AttachmentNode, index.AttachmentNodeKeys).
		WithIndex(&apiv1.AzDriverNode{}, nodeidentity.VM, nodeidentity.Keys).WithIndex(&corev1.Node{}, nodeidentity.VM, nodeidentity.Keys).Build()
	return nodefacts.NewNodes(c, "ns", clocktesting.NewFakePassiveClock(now), says(verdict))
}

func TestHealthForReplicas(t *testing.T) {
	mass := silentFor(nodehealth.Lost, time.Hour)
	mass.MassLoss, mass.HeldBack = true, "many"
	for name, c := range map[string]struct {
		verdict  nodehealth.Judgement
		notReady time.Duration
		want     placement.Health
	}{
		"alive and ready":       {silentFor(nodehealth.Healthy, 0), -1, placement.Healthy},
		"silent":                {silentFor(nodehealth.Suspect, time.Hour), -1, placement.Doubtful},
		"lost within the grace": {silentFor(nodehealth.Lost, 50*time.Second), 10 * time.Second, placement.Doubtful},
		"lost after the grace":  {silentFor(nodehealth.Lost, 61*time.Second), 10 * time.Second, placement.Lost},
		"down within the grace, as when it reboots":  {silentFor(nodehealth.Down, 50*time.Second), -1, placement.Doubtful},
		"down after the grace":                       {silentFor(nodehealth.Down, 61*time.Second), -1, placement.Lost},
		"not ready within the grace":                 {silentFor(nodehealth.Healthy, 0), 299 * time.Second, placement.Doubtful},
		"not ready after the grace":                  {silentFor(nodehealth.Healthy, 0), 301 * time.Second, placement.Lost},
		"one of so many that the fault is elsewhere": {mass, time.Hour, placement.Doubtful},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := nodesOf(t, c.verdict, c.notReady).View(t.Context(), "a")
			if err != nil || v.Health != c.want {
				t.Errorf("%v, %v", v, err)
			}
		})
	}
}

// Its VM is not established, so that a disk that is attached to the node could be another node's.
func TestANodeThatContradictsItsProviderIDGetsNoReplicas(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "azure://" + vm + "-b"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: apiv1.AzDriverNodeSpec{VMID: vm}}
	nodes := nodesOf(t, silentFor(nodehealth.Healthy, 0), -1, node, d)
	if v, err := nodes.View(t.Context(), "a"); err != nil || v.Health != placement.Doubtful {
		t.Errorf("got health %q, %v; want %q", v.Health, err, placement.Doubtful)
	}
	if facts, err := nodes.Facts(t.Context(), "a"); err != nil || facts.Identity.VMID != "" || facts.Identity.Reason != identity.ReasonVMContradicted {
		t.Errorf("got %+v, %v; want no VM, for the reason %s", facts.Identity, err, identity.ReasonVMContradicted)
	}
}

func TestFactsOfALostNode(t *testing.T) {
	held := silentFor(nodehealth.Lost, time.Minute)
	held.HeldBack = "switched off"
	mass := silentFor(nodehealth.Suspect, time.Minute)
	mass.MassLoss = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for name, c := range map[string]struct {
		nodes *nodefacts.Nodes
		lost  bool
	}{
		"a node that is alive is not lost, ready or not":         {nodesOf(t, silentFor(nodehealth.Healthy, 0), time.Hour), false},
		"a silent node whose kubelet is ready is not":            {nodesOf(t, silentFor(nodehealth.Suspect, time.Hour), -1), false},
		"a silent node whose kubelet is not ready is":            {nodesOf(t, silentFor(nodehealth.Suspect, time.Hour), 0), true},
		"a lost node is, before Kubernetes knows":                {nodesOf(t, silentFor(nodehealth.Lost, time.Minute), -1), true},
		"a VM that is down is":                                   {nodesOf(t, silentFor(nodehealth.Down, time.Minute), -1), true},
		"a lost node that must not be fenced is not":             {nodesOf(t, held, -1), false},
		"but is once Kubernetes knows and takes the volume away": {nodesOf(t, held, 0), true},
		"one of so many that the fault is elsewhere is not":      {nodesOf(t, mass, time.Hour), false},
		"a node without an AzDriverNode is":                      {nodesOf(t, silentFor(nodehealth.Healthy, 0), 0, node), true},
		"an AzDriverNode without a Node is":                      {nodesOf(t, silentFor(nodehealth.Healthy, 0), 0, &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}), true},
	} {
		t.Run(name, func(t *testing.T) {
			facts, err := c.nodes.Facts(t.Context(), "a")
			if err != nil || facts.Lost != c.lost {
				t.Errorf("%+v, %v", facts, err)
			}
		})
	}
}
