// Package identity decides which VM a node is (docs/adr/0013-which-vm-a-node-is.md). A node's own
// statement counts only as far as its providerID agrees.
package identity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
)

// Identity is which VM a node is, as far as the controller believes it (ADR 0013). A node plug-in
// writes spec.vmID of its AzDriverNode, so a node could name the VM of another node. No other code
// may read that field.
type Identity struct {
	// Name of the node.
	Name string
	// VMID is the VM; "" if it is not established. Then nothing is attached to the node, and Azure
	// is not called for it.
	VMID string
	// Location and Zone come from the Node's labels, or, without labels, from the node plug-in.
	Location, Zone string
	// Reason and Message say why VMID is "".
	Reason, Message string

	// said is the VM that the node names, unless its Node contradicts it.
	said string
}

// Another reports whether an attachment is to another VM than the node's. If so, the node may not
// use the disk, and its report says nothing about the other VM, which may still run. A node that
// its Node contradicts speaks for no VM.
func (i Identity) Another(a *apiv1.AzVolumeAttachment) bool {
	return ownership.AttachedToAnotherVM(a, i.said)
}

// Node is a node that may be a VM: by its Node's providerID, or by what its AzDriverNode says.
// Either object may be nil.
type Node struct {
	Node       *corev1.Node
	DriverNode *apiv1.AzDriverNode
}

func (c Node) name() string {
	switch {
	case c.DriverNode != nil:
		return c.DriverNode.Name
	case c.Node != nil:
		return c.Node.Name
	}
	return ""
}

// Identify decides which VM a node is. others are all nodes with a Node or an AzDriverNode that
// names the VM that the node's AzDriverNode names; the node itself may be among them.
//
//	the Node's providerID names that VM, and no other Node's       believed
//	… and another Node's too                                       neither is believed
//	the providerID names another VM                                not believed
//	what it names is not the resource ID of a VM                   not believed
//	the providerID names no Azure VM, and no other node names it   believed
//	… and another node names it, by either object                  the one with the providerID is believed; without one, neither is
func Identify(node Node, others []Node) Identity {
	id := Identity{Name: node.name()}
	d := node.DriverNode
	if d == nil {
		return id.refuse(apiv1.ReasonNodeUnknown, "there is no AzDriverNode "+id.Name)
	}
	id.said, id.Location, id.Zone = d.Spec.VMID, strings.ToLower(d.Spec.Location), d.Spec.Zone
	if node.Node == nil {
		return id.refuse(apiv1.ReasonNodeUnknown, "there is no Node "+id.Name)
	}
	if location, zone := placeOf(node.Node); location != "" {
		id.Location, id.Zone = location, zone
	}
	if !resourceid.IsVM(d.Spec.VMID) {
		return id.refuse(apiv1.ReasonVMIDInvalid,
			fmt.Sprintf("AzDriverNode %s names %q, which is not the resource ID of a virtual machine", id.Name, d.Spec.VMID))
	}
	provider := ProviderVM(node.Node)
	if provider != "" && !strings.EqualFold(provider, d.Spec.VMID) {
		id.said = ""
		return id.refuse(apiv1.ReasonVMContradictsProviderID,
			fmt.Sprintf("AzDriverNode %s names the VM %s, and the providerID of Node %s names %s; "+
				"if the VM was replaced, delete the Node so that it registers again", id.Name, d.Spec.VMID, id.Name, provider))
	}
	if rival := rival(node, provider != "", others); rival != "" {
		return id.refuse(apiv1.ReasonVMNamedTwice,
			fmt.Sprintf("the nodes %s both name the VM %s, and no providerID says which of them is the VM",
				strings.Join(slices.Sorted(slices.Values([]string{id.Name, rival})), " and "), d.Spec.VMID))
	}
	id.VMID = d.Spec.VMID
	return id
}

func (i Identity) refuse(reason, message string) Identity {
	i.Reason, i.Message = reason, message
	return i
}

// rival returns the name of another node that may be the VM as well, "" if there is none. proven
// says that the node's own providerID names the VM: then only another Node's providerID counts. A
// node that has no Node, or whose Node names another VM, is no rival.
func rival(node Node, proven bool, others []Node) string {
	vm, found := node.DriverNode.Spec.VMID, ""
	for _, o := range others {
		if o.Node == nil || o.Node.Name == node.name() {
			continue
		}
		provider := ProviderVM(o.Node)
		says := provider == "" && o.DriverNode != nil && strings.EqualFold(o.DriverNode.Spec.VMID, vm)
		if strings.EqualFold(provider, vm) || says && !proven {
			found = cmp.Or(found, o.Node.Name)
		}
	}
	return found
}

// ProviderVM returns the VM that the providerID of a Node names, "" if it names no Azure VM.
// Kubernetes does not allow a change of a providerID once it is set.
func ProviderVM(node *corev1.Node) string {
	id, isAzure := strings.CutPrefix(node.Spec.ProviderID, "azure://")
	if !isAzure || !resourceid.IsVM(id) {
		return ""
	}
	return id
}

// SpecOf reads from a Node which VM it is, as the Azure cloud provider fills it in. ok is false if
// its providerID names no VM.
func SpecOf(node *corev1.Node) (spec apiv1.AzDriverNodeSpec, ok bool) {
	id := ProviderVM(node)
	location, zone := placeOf(node)
	return apiv1.AzDriverNodeSpec{
		VMID:     id,
		VMSize:   node.Labels[corev1.LabelInstanceTypeStable],
		Location: location,
		Zone:     zone,
	}, id != ""
}

// placeOf returns the region and the zone of the labels of a Node, "" for none. The zone label of a
// node that is in no zone has its fault domain; only `<region>-<zone>` is a zone.
func placeOf(node *corev1.Node) (location, zone string) {
	location = strings.ToLower(node.Labels[corev1.LabelTopologyRegion])
	zone, isZone := strings.CutPrefix(strings.ToLower(node.Labels[corev1.LabelTopologyZone]), location+"-")
	if !isZone || location == "" {
		return location, ""
	}
	return location, zone
}
