package identity_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

const vms = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"

// claimant is a node with a providerID and with an AzDriverNode that names a VM; "" leaves either out, and gone the Node.
func claimant(name, provider, says string) identity.Node {
	c := identity.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	if provider != "" {
		c.Node.Spec.ProviderID = "azure://" + provider
	}
	if says != "" {
		c.DriverNode = &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv1.AzDriverNodeSpec{VMID: says}}
	}
	return c
}

func withoutNode(c identity.Node) identity.Node {
	c.Node = nil
	return c
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	const vmA, vmB, instance = vms + "virtualMachines/a", vms + "virtualMachines/b", vms + "virtualMachineScaleSets/set/virtualMachines/7"
	foreign := claimant("a", "", vmA)
	foreign.Node.Spec.ProviderID = "kind://docker/kind/a"
	for name, test := range map[string]struct {
		node       identity.Node
		others     []identity.Node
		want       string
		wantReason string
	}{
		"the providerID names the same VM":                     {claimant("a", vmA, vmA), nil, vmA, ""},
		"the providerID names it in another case":              {claimant("a", strings.ToUpper(vmA), vmA), nil, vmA, ""},
		"the providerID names the same scale-set instance":     {claimant("a", instance, instance), nil, instance, ""},
		"the providerID names another VM":                      {claimant("a", vmA, vmB), nil, "", identity.ReasonVMContradicted},
		"the providerID names another VM, whose node is there": {claimant("a", vmA, vmB), []identity.Node{claimant("b", vmB, vmB)}, "", identity.ReasonVMContradicted},
		"no providerID, and no other node names the VM":        {claimant("a", "", vmA), []identity.Node{claimant("a", "", vmA)}, vmA, ""},
		"a providerID of another platform counts for none":     {foreign, nil, vmA, ""},
		"no providerID, and another node says the same":        {claimant("a", "", vmA), []identity.Node{claimant("b", "", vmA)}, "", identity.ReasonVMContested},
		"no providerID, and another node's names the VM":       {claimant("a", "", vmA), []identity.Node{claimant("b", vmA, "")}, "", identity.ReasonVMContested},
		"another node says the same against its providerID":    {claimant("a", "", vmA), []identity.Node{claimant("b", vmB, vmA)}, vmA, ""},
		"another node without a providerID says the same":      {claimant("a", vmA, vmA), []identity.Node{claimant("b", "", vmA)}, vmA, ""},
		"two Nodes have one providerID":                        {claimant("a", vmA, vmA), []identity.Node{claimant("b", vmA, "")}, "", identity.ReasonVMContested},
		"a node that has gone said the same":                   {claimant("a", "", vmA), []identity.Node{withoutNode(claimant("b", "", vmA))}, vmA, ""},
		"a second spelling of another node's VM":               {claimant("a", "", vmB+"/"), []identity.Node{claimant("b", "", vmB)}, "", identity.ReasonVMInvalid},
		"an escaped spelling of another node's VM":             {claimant("a", "", vms+"virtualMachines/%62"), nil, "", identity.ReasonVMInvalid},
		"a path out of the VMs":                                {claimant("a", "", vms+"virtualMachines/.."), nil, "", identity.ReasonVMInvalid},
		"the resource ID of something else":                    {claimant("a", "", vms+"disks/a"), nil, "", identity.ReasonVMInvalid},
		"there is no AzDriverNode":                             {claimant("a", vmA, ""), nil, "", identity.ReasonNodeUnknown},
		"there is no Node":                                     {withoutNode(claimant("a", "", vmA)), nil, "", identity.ReasonNodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := identity.Identify(test.node, test.others)
			if got.VMID != test.want || got.Reason != test.wantReason || (got.Reason == "") != (got.Message == "") {
				t.Errorf("got VM %q, reason %q (%s); want VM %q, reason %q", got.VMID, got.Reason, got.Message, test.want, test.wantReason)
			}
		})
	}
}

// What a node whose word is not believed may still be held to: its recorded attachments.
func TestWhetherANodeIsAnotherVMThanItsAttachmentNames(t *testing.T) {
	t.Parallel()
	const vmA, vmB = vms + "virtualMachines/a", vms + "virtualMachines/b"
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)
	a.Status.VMID = vmA
	rivals := []identity.Node{claimant("b", "", vmA)}
	for name, test := range map[string]struct {
		node   identity.Node
		others []identity.Node
		want   bool
	}{
		"it is the VM": {claimant("a", vmA, vmA), nil, false},
		"it is the VM, and another node says so too": {claimant("a", "", vmA), rivals, false},
		"it says to be another VM":                   {claimant("a", "", vmB), nil, true},
		"it contradicts its providerID":              {claimant("a", vmB, vmA), nil, true},
		"it says nothing":                            {claimant("a", vmA, ""), nil, true},
	} {
		if got := identity.Identify(test.node, test.others).Another(a); got != test.want {
			t.Errorf("%s: got another = %t, want %t", name, got, test.want)
		}
	}
}

func TestTheZoneOfANodeIsThatOfItsLabels(t *testing.T) {
	t.Parallel()
	const vm = vms + "virtualMachines/a"
	for name, test := range map[string]struct {
		region, zone string
		want         [2]string
	}{
		"the labels name a zone":          {"eastus", "eastus-2", [2]string{"eastus", "2"}},
		"the labels name a region only":   {"eastus", "0", [2]string{"eastus", ""}},
		"there are no labels of a region": {"", "", [2]string{"westus", "3"}},
	} {
		node := claimant("a", vm, vm)
		node.DriverNode.Spec.Location, node.DriverNode.Spec.Zone = "WestUS", "3"
		node.Node.Labels = map[string]string{corev1.LabelTopologyRegion: test.region, corev1.LabelTopologyZone: test.zone}
		got := identity.Identify(node, nil)
		if [2]string{got.Location, got.Zone} != test.want {
			t.Errorf("%s: got region %q zone %q, want %q", name, got.Location, got.Zone, test.want)
		}
	}
}
