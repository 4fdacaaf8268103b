package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// NodeVM indexes AzDriverNodes by the VM that they name, and Nodes by the VM of their providerID,
// in lower case.
const NodeVM = "vm"

// NodeVMKeys are the keys of the index NodeVM, of both kinds.
func NodeVMKeys(o client.Object) []string {
	id := ""
	switch o := o.(type) {
	case *apiv1.AzDriverNode:
		id = o.Spec.VMID
	case *corev1.Node:
		id = identity.ProviderVM(o)
	}
	if id == "" {
		return nil
	}
	return []string{strings.ToLower(id)}
}

// IdentityOf returns the identity of a node, as far as the controller believes it (ADR 0013).
// Reconcilers and CSI calls get the VM, the region and the zone of a node only here. cache has the
// index NodeVM. Either object may be nil.
func IdentityOf(ctx context.Context, cache client.Reader, node *corev1.Node, d *apiv1.AzDriverNode) (identity.Identity, error) {
	self := identity.Node{Node: node, DriverNode: d}
	if node == nil || d == nil || d.Spec.VMID == "" { // then the other nodes do not matter
		return identity.Identify(self, nil), nil
	}
	var others []identity.Node
	var err error
	if identity.ProviderVM(node) == "" {
		others, err = NodesOfVM(ctx, cache, d.Namespace, d.Spec.VMID)
	} else { // what other nodes say about themselves does not count against it
		var nodes []*corev1.Node
		nodes, err = named(ctx, cache, d.Spec.VMID)
		for _, n := range nodes {
			others = append(others, identity.Node{Node: n})
		}
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return identity.Identify(self, others), nil
}

// named returns the Nodes whose providerID names a VM, in the order of their names.
func named(ctx context.Context, cache client.Reader, vm string) ([]*corev1.Node, error) {
	var list corev1.NodeList
	nodes, err := kube.FindBy(ctx, cache, &list, &list.Items, "", NodeVM, strings.ToLower(vm))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}

// NodesNamingVM returns the AzDriverNodes that name a VM. They are the cache's own, and only to be
// read.
func NodesNamingVM(ctx context.Context, cache client.Reader, namespace, vm string) ([]*apiv1.AzDriverNode, error) {
	var list apiv1.AzDriverNodeList
	return kube.FindBy(ctx, cache, &list, &list.Items, namespace, NodeVM, strings.ToLower(vm))
}

// NodesOfVM returns the nodes that are a VM by the providerID of their Node or, if it has none, by
// what their AzDriverNode says, in the order of their names. Each has a Node. cache has the index
// NodeVM, so that the cost does not depend on the number of nodes. The objects share memory with
// the cache and must not be changed.
func NodesOfVM(ctx context.Context, cache client.Reader, namespace, vm string) ([]identity.Node, error) {
	nodes, err := named(ctx, cache, vm)
	if err != nil {
		return nil, err
	}
	driverNodes, err := NodesNamingVM(ctx, cache, namespace, vm)
	if err != nil {
		return nil, err
	}
	byName := map[string]identity.Node{}
	for _, n := range nodes {
		byName[n.Name] = identity.Node{Node: n}
	}
	for _, d := range driverNodes {
		byName[d.Name] = identity.Node{Node: byName[d.Name].Node, DriverNode: d}
	}
	found := make([]identity.Node, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		n, err := complete(ctx, cache, client.ObjectKey{Namespace: namespace, Name: name}, vm, byName[name])
		if err != nil {
			return nil, err
		}
		if n.Node != nil {
			found = append(found, n)
		}
	}
	return found, nil
}

// OtherClusterVM returns a VM that has the disk of a volume and that is outside of this cluster, ""
// if there is none; see ownership.OtherClusterVM. attachedTo are the VMs that Azure lists for the
// disk. cache has the index NodeVM.
func OtherClusterVM(
	ctx context.Context, cache client.Reader, namespace string, attachedTo []string, attachments []*apiv1.AzVolumeAttachment,
) (string, error) {
	return ownership.OtherClusterVM(attachedTo, attachments, func(vm string) (bool, error) {
		nodes, err := NodesOfVM(ctx, cache, namespace, vm)
		return len(nodes) > 0, err
	})
}

// complete adds the object of a node that names another VM, or none. The result has no Node if
// there is none, or if that is another VM.
func complete(ctx context.Context, cache client.Reader, key client.ObjectKey, vm string, n identity.Node) (identity.Node, error) {
	var err error
	if n.Node != nil {
		if n.DriverNode == nil {
			n.DriverNode, err = kube.Find[apiv1.AzDriverNode](ctx, cache, key, client.UnsafeDisableDeepCopy)
		}
		return n, err
	}
	node, err := kube.Find[corev1.Node](ctx, cache, client.ObjectKey{Name: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || node == nil {
		return identity.Node{}, err
	}
	if provider := identity.ProviderVM(node); provider != "" && !strings.EqualFold(provider, vm) {
		return identity.Node{}, nil
	}
	return identity.Node{Node: node, DriverNode: n.DriverNode}, nil
}

// Identities returns the identities of all nodes that have an AzDriverNode, by name. It needs no
// index, so it may read from the API server.
func Identities(ctx context.Context, reader client.Reader, namespace string) (map[string]identity.Identity, error) {
	var driverNodes apiv1.AzDriverNodeList
	if err := reader.List(ctx, &driverNodes, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzDriverNodes: %w", err)
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	byName, byVM := map[string]identity.Node{}, map[string][]identity.Node{}
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = identity.Node{Node: &nodes.Items[i]}
		for _, vm := range NodeVMKeys(&nodes.Items[i]) {
			byVM[vm] = append(byVM[vm], identity.Node{Node: &nodes.Items[i]})
		}
	}
	for i := range driverNodes.Items {
		d := &driverNodes.Items[i]
		byName[d.Name] = identity.Node{Node: byName[d.Name].Node, DriverNode: d}
		for _, vm := range NodeVMKeys(d) {
			byVM[vm] = append(byVM[vm], byName[d.Name])
		}
	}
	all := make(map[string]identity.Identity, len(driverNodes.Items))
	for i := range driverNodes.Items {
		d := &driverNodes.Items[i]
		all[d.Name] = identity.Identify(byName[d.Name], byVM[strings.ToLower(d.Spec.VMID)])
	}
	return all, nil
}

// ReportOfVM reads a node's report from the API server. It returns nil if there is none, or if the
// node is another VM by now: then the report does not speak for the VM.
func ReportOfVM(ctx context.Context, reader client.Reader, key client.ObjectKey, vmID string) (*apiv1.AzDriverNode, error) {
	report, err := kube.Find[apiv1.AzDriverNode](ctx, reader, key)
	if err != nil || report == nil || !strings.EqualFold(report.Spec.VMID, vmID) {
		return nil, err
	}
	return report, nil
}
