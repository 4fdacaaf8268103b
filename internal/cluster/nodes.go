package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// Judge judges the health of nodes.
type Judge interface {
	Health(node string) nodehealth.Judgement
}

// Nodes reads the nodes from the cache, and their health from the judge.
type Nodes struct {
	reader    client.Reader
	namespace string
	clock     clock.PassiveClock
	judge     Judge
}

// NewNodes makes a Nodes.
func NewNodes(reader client.Reader, namespace string, c clock.PassiveClock, judge Judge) *Nodes {
	return &Nodes{
		reader:    reader,
		namespace: namespace,
		clock:     c,
		judge:     judge,
	}
}

// NodeFacts are what an attachment's next step needs to know of its node.
type NodeFacts struct {
	// Identity says which VM the node is.
	Identity identity.Identity
	// ProviderVM is the VM that the providerID of a Node names that has no AzDriverNode; "" if
	// there is none.
	ProviderVM string
	// MaxDataDisks is how many of the VM's data disks the driver may use; 0 if that is not known.
	MaxDataDisks int32
	// NoReport says that no report of the node is to be expected; see nodehealth.NoReport.
	NoReport bool
	// Alive says that the heartbeat of the node plug-in is fresh.
	Alive bool
	// NotReadySince is since when the Node is not Ready; zero if it is, or if there is none.
	NotReadySince time.Time
}

// Facts reads the facts of a node from the cache.
func (n *Nodes) Facts(ctx context.Context, name string) (NodeFacts, error) {
	d, node, err := n.read(ctx, name)
	if err != nil {
		return NodeFacts{}, err
	}
	health := n.judge.Health(name)
	facts := NodeFacts{NoReport: nodehealth.NoReport(health, d, node), Alive: health.State == nodehealth.Healthy}
	switch {
	case d != nil:
		facts.NotReadySince = nodehealth.NotReadySince(node)
		if limit := attaching.SlotLimit(d.Capacity()); limit >= 0 {
			// A VM that others have filled keeps one, and Azure's answer says that it is taken.
			facts.MaxDataDisks = max(limit, 1)
		}
	case node != nil:
		facts.ProviderVM = identity.ProviderVM(node)
	}
	facts.Identity, err = IdentityOf(ctx, n.reader, node, d)
	return facts, err
}

// read reads the objects of a node. They share memory with the cache and must not be changed.
func (n *Nodes) read(ctx context.Context, name string) (*apiv1.AzDriverNode, *corev1.Node, error) {
	d, err := kube.Find[apiv1.AzDriverNode](ctx, n.reader, client.ObjectKey{
		Namespace: n.namespace,
		Name:      name,
	}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, err
	}
	node, err := kube.Find[corev1.Node](ctx, n.reader, client.ObjectKey{Name: name}, client.UnsafeDisableDeepCopy)
	return d, node, err
}

// View returns a node as placement sees it that has an attachment of the volume already, or nil if
// it has no Node or no AzDriverNode: without its slots and its other volumes, which decide only
// whether it may get one. Its objects share memory with the cache and must not be changed.
func (n *Nodes) View(ctx context.Context, name string) (*placement.NodeView, error) {
	d, node, err := n.read(ctx, name)
	if err != nil || d == nil || node == nil {
		return nil, err
	}
	return n.view(ctx, d, node)
}

// Views returns every node that has a Node and an AzDriverNode. It looks at the whole cluster; only
// placement needs that.
func (n *Nodes) Views(ctx context.Context) ([]placement.NodeView, error) {
	var all apiv1.AzDriverNodeList
	if err := n.reader.List(ctx, &all, client.InNamespace(n.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzDriverNodes: %w", err)
	}
	views := make([]placement.NodeView, 0, len(all.Items))
	for i := range all.Items {
		node, err := kube.Find[corev1.Node](ctx, n.reader, client.ObjectKey{Name: all.Items[i].Name},
			client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, err
		}
		if node == nil {
			continue
		}
		v, err := n.view(ctx, &all.Items[i], node)
		if err == nil {
			err = n.addSlots(ctx, v, &all.Items[i])
		}
		if err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	return views, nil
}

func (n *Nodes) view(ctx context.Context, d *apiv1.AzDriverNode, node *corev1.Node) (*placement.NodeView, error) {
	identity, err := IdentityOf(ctx, n.reader, node, d)
	if err != nil {
		return nil, err
	}
	return &placement.NodeView{
		Node:      node,
		Zone:      identity.Zone,
		Location:  identity.Location,
		Health:    n.health(d, node, identity),
		Disturbed: Disturbed(d),
		FreeSlots: -1,
		Report:    d,
	}, nil
}

// addSlots adds to a view what decides whether the node may get another attachment.
func (n *Nodes) addSlots(ctx context.Context, v *placement.NodeView, d *apiv1.AzDriverNode) error {
	here, err := AttachmentsOfNode(ctx, n.reader, n.namespace, d.Name)
	if err != nil {
		return err
	}
	v.Volumes = make(map[string]bool, len(here))
	for _, a := range here {
		v.Volumes[a.Spec.VolumeName] = true
	}
	v.Capacity = d.Capacity()
	v.FreeSlots = attaching.FreeSlots(v.Capacity, here)
	return nil
}

// Disturbed reports whether the driver prepares for maintenance of the node's VM.
func Disturbed(d *apiv1.AzDriverNode) bool {
	return meta.IsStatusConditionFalse(d.Status.Conditions, apiv1.NodeConditionUndisturbed)
}

// health derives the health of a node for replicas. A node whose VM is not established gets none.
func (n *Nodes) health(d *apiv1.AzDriverNode, node *corev1.Node, identity identity.Identity) nodehealth.State {
	ready := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionPluginReady)
	return nodehealth.ForReplicas(nodehealth.ReplicaSigns{
		Judgement: n.judge.Health(d.Name),
		Node:      node,
		Now:       n.clock.Now(),
		Usable:    identity.VMID != "" && (ready == nil || ready.Status == metav1.ConditionTrue),
		Disturbed: Disturbed(d),
	})
}
