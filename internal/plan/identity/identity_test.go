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

// candidate is a node with a providerID and with an AzDriverNode that names a VM; "" omits the
// providerID or the AzDriverNode.
func candidate(name, provider, says string) identity.Node {
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
	const vmA, vmB, instance = vms + "virtualMachines/a", vms + "virtualMachines/b", vms +
		"virtualMachineScaleSets/set/virtualMachines/7"
	otherPlatform := candidate("a", "", vmA)
	otherPlatform.Node.Spec.ProviderID = "kind://docker/kind/a"
	otherResource, otherScheme := candidate("a", vms+"disks/a", vmA), candidate("a", "", vmA)
	otherScheme.Node.Spec.ProviderID = vmB
	for name, test := range map[string]struct {
		node       identity.Node
		others     []identity.Node
		want       string
		wantReason string
	}{
		"the providerID names the same VM":                 {candidate("a", vmA, vmA), nil, vmA, ""},
		"the providerID names it in another case":          {candidate("a", strings.ToUpper(vmA), vmA), nil, vmA, ""},
		"the providerID names the same scale-set instance": {candidate("a", instance, instance), nil, instance, ""},
		"the providerID names another VM": {candidate("a", vmA, vmB), nil, "",
			apiv1.ReasonVMContradictsProviderID},
		"the providerID names another VM, whose node is there": {candidate("a", vmA, vmB),
			[]identity.Node{candidate("b", vmB, vmB)}, "", apiv1.ReasonVMContradictsProviderID},
		"no providerID, and no other node names the VM": {candidate("a", "", vmA),
			[]identity.Node{candidate("a", "", vmA)}, vmA, ""},
		"a providerID of another platform does not count": {otherPlatform, nil, vmA, ""},
		"a providerID of something else does not count":   {otherResource, nil, vmA, ""},
		"a providerID that is not Azure's does not count": {otherScheme, nil, vmA, ""},
		"no providerID, and another node says to be another VM": {candidate("a", "", vmA),
			[]identity.Node{candidate("b", "", vmB)}, vmA, ""},
		"no providerID, and another node says nothing": {candidate("a", "", vmA),
			[]identity.Node{candidate("b", "", "")}, vmA, ""},
		"no providerID, and another node says the same": {candidate("a", "", vmA),
			[]identity.Node{candidate("b", "", vmA)}, "", apiv1.ReasonVMNamedTwice},
		"no providerID, and another node's names the VM": {candidate("a", "", vmA),
			[]identity.Node{candidate("b", vmA, "")}, "", apiv1.ReasonVMNamedTwice},
		"another node says the same against its providerID": {candidate("a", "", vmA),
			[]identity.Node{candidate("b", vmB, vmA)}, vmA, ""},
		"another node without a providerID says the same": {candidate("a", vmA, vmA),
			[]identity.Node{candidate("b", "", vmA)}, vmA, ""},
		"two Nodes have one providerID": {candidate("a", vmA, vmA),
			[]identity.Node{candidate("b", vmA, "")}, "", apiv1.ReasonVMNamedTwice},
		"a node without a Node said the same": {candidate("a", "", vmA),
			[]identity.Node{withoutNode(candidate("b", "", vmA))}, vmA, ""},
		"a second spelling of another node's VM": {candidate("a", "", vmB+"/"),
			[]identity.Node{candidate("b", "", vmB)}, "", apiv1.ReasonVMIDInvalid},
		"an escaped spelling of another node's VM": {candidate("a", "", vms+"virtualMachines/%62"), nil, "",
			apiv1.ReasonVMIDInvalid},
		"a path that leaves the VMs": {candidate("a", "", vms+"virtualMachines/.."), nil, "",
			apiv1.ReasonVMIDInvalid},
		"the resource ID of something else": {candidate("a", "", vms+"disks/a"), nil, "",
			apiv1.ReasonVMIDInvalid},
		"there is no AzDriverNode": {candidate("a", vmA, ""), nil, "", apiv1.ReasonNodeUnknown},
		"there is no Node": {withoutNode(candidate("a", "", vmA)), nil, "",
			apiv1.ReasonNodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := identity.Identify(test.node, test.others)
			if got.VMID != test.want || got.Reason != test.wantReason || (got.Reason == "") != (got.Message == "") {
				t.Errorf("got VM %q, reason %q (%s); want VM %q, reason %q", got.VMID, got.Reason, got.Message, test.want,
					test.wantReason)
			}
			if got.Name != "a" {
				t.Errorf("got the name %q, want a", got.Name)
			}
		})
	}
}

// What a node that is not believed is still bound by: its recorded attachments.
func TestWhetherANodeIsAnotherVMThanItsAttachmentNames(t *testing.T) {
	t.Parallel()
	const vmA, vmB = vms + "virtualMachines/a", vms + "virtualMachines/b"
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)
	a.Status.VMID = vmA
	rivals := []identity.Node{candidate("b", "", vmA)}
	for name, test := range map[string]struct {
		node   identity.Node
		others []identity.Node
		want   bool
	}{
		"it is the VM": {candidate("a", vmA, vmA), nil, false},
		"it is the VM, and another node says the same": {candidate("a", "", vmA), rivals, false},
		"it says to be another VM":                     {candidate("a", "", vmB), nil, true},
		"it contradicts its providerID":                {candidate("a", vmB, vmA), nil, true},
		"it says nothing":                              {candidate("a", vmA, ""), nil, true},
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
		node := candidate("a", vm, vm)
		node.DriverNode.Spec.Location, node.DriverNode.Spec.Zone = "WestUS", "3"
		node.Node.Labels = map[string]string{corev1.LabelTopologyRegion: test.region, corev1.LabelTopologyZone: test.zone}
		got := identity.Identify(node, nil)
		if [2]string{got.Location, got.Zone} != test.want {
			t.Errorf("%s: got region %q zone %q, want %q", name, got.Location, got.Zone, test.want)
		}
	}
}

func TestANodeOfAzureHasTheVMOfItsProviderID(t *testing.T) {
	t.Parallel()
	const vm = vms + "virtualMachines/a"
	labels := map[string]string{
		corev1.LabelTopologyRegion:     "EastUS",
		corev1.LabelTopologyZone:       "eastus-2",
		corev1.LabelInstanceTypeStable: "Standard_D4s_v5",
	}
	for provider, want := range map[string]string{vm: vm, vms + "disks/a": "", "": ""} {
		node := candidate("a", provider, "").Node
		node.Labels = labels
		got, ok := identity.SpecOf(node)
		spec := apiv1.AzDriverNodeSpec{VMID: want, VMSize: "Standard_D4s_v5", Location: "eastus", Zone: "2"}
		if got != spec || ok != (want != "") {
			t.Errorf("providerID of %q: got %+v, %t; want %+v, %t", provider, got, ok, spec, want != "")
		}
	}
}
