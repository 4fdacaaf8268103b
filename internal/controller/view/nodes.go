package view

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
)

// missedHeartbeats is how many promised heartbeats may fail to come before a node counts as silent.
const missedHeartbeats = 3

// lostAfter is how long a node may be silent and not ready before its replicas count as lost.
const lostAfter = 5 * time.Minute

// Nodes knows the health of nodes. It judges the age of a heartbeat by its own
// clock, from when it saw the heartbeat change; after a restart every node has its grace again.
type Nodes struct {
	reader     client.Reader
	namespace  string
	clock      clock.PassiveClock
	staleAfter time.Duration

	mu   sync.Mutex
	seen map[string]heartbeat
}

type heartbeat struct {
	value, at time.Time
}

// NewNodes makes a Nodes. A heartbeat is stale after staleAfter, or after three promised intervals if that is longer.
func NewNodes(reader client.Reader, namespace string, c clock.PassiveClock, staleAfter time.Duration) *Nodes {
	return &Nodes{reader: reader, namespace: namespace, clock: c, staleAfter: staleAfter, seen: map[string]heartbeat{}}
}

// Handler takes note of heartbeats. It is to be added to the informer of AzDriverNodes.
func (n *Nodes) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    n.note,
		UpdateFunc: func(_, after any) { n.note(after) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if d, ok := object.(*apiv1.AzDriverNode); ok {
				n.mu.Lock()
				defer n.mu.Unlock()
				delete(n.seen, d.Name)
			}
		},
	}
}

func (n *Nodes) note(object any) {
	d, ok := object.(*apiv1.AzDriverNode)
	if !ok {
		return
	}
	n.fresh(d)
}

// fresh says whether the node's heartbeat changed lately.
func (n *Nodes) fresh(d *apiv1.AzDriverNode) bool {
	if d.Status.HeartbeatTime == nil {
		return false
	}
	now := n.clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	last, known := n.seen[d.Name]
	if value := d.Status.HeartbeatTime.Time; !known || value.After(last.value) {
		last = heartbeat{value: value, at: now}
		n.seen[d.Name] = last
	}
	limit := max(n.staleAfter, missedHeartbeats*time.Duration(d.Status.HeartbeatSeconds)*time.Second)
	return now.Sub(last.at) <= limit
}

// Facts are what an attachment's next step needs to know of its node.
type Facts struct {
	// VMID from the AzDriverNode; "" if there is none.
	VMID string
	// MaxDataDisks is how many of the VM's data disks the driver may use; 0 if that is not known.
	MaxDataDisks int32
	// Lost says that no report is to be expected: the Node or the AzDriverNode is
	// gone, or the heartbeat is stale and the kubelet is not ready either.
	Lost bool
}

// Facts reads the facts of a node from the cache.
func (n *Nodes) Facts(ctx context.Context, name string) (Facts, error) {
	d, node, err := n.read(ctx, name)
	if err != nil {
		return Facts{}, err
	}
	if d == nil {
		return Facts{Lost: true}, nil
	}
	facts := Facts{VMID: d.Spec.VMID, Lost: node == nil || (!n.fresh(d) && !ready(node))}
	facts.MaxDataDisks = slots(d)
	return facts, nil
}

// slots is how many data disks of the VM are the driver's to use; 0 if that is not known. A VM
// that others have filled keeps one, and Azure's answer says that it is taken.
func slots(d *apiv1.AzDriverNode) int32 {
	c := d.Status.Capacity
	if c == nil || c.VMSize != d.Spec.VMSize || c.MaxDataDisks <= 0 {
		return 0
	}
	return max(c.MaxDataDisks-c.ForeignDisks, 1)
}

func (n *Nodes) read(ctx context.Context, name string) (*apiv1.AzDriverNode, *corev1.Node, error) {
	d, node := &apiv1.AzDriverNode{}, &corev1.Node{}
	if err := n.reader.Get(ctx, client.ObjectKey{Namespace: n.namespace, Name: name}, d); apierrors.IsNotFound(err) {
		d = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("get AzDriverNode: %w", err)
	}
	if err := n.reader.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		node = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("get Node: %w", err)
	}
	return d, node, nil
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// View returns a node as placement sees it, or nil if it has no Node or no AzDriverNode.
func (n *Nodes) View(ctx context.Context, name string) (*plan.NodeView, error) {
	d, node, err := n.read(ctx, name)
	if err != nil || d == nil || node == nil {
		return nil, err
	}
	return n.view(ctx, d, node)
}

// Views returns every node that has a Node and an AzDriverNode. It looks at the whole cluster; only placement needs that.
func (n *Nodes) Views(ctx context.Context) ([]plan.NodeView, error) {
	var all apiv1.AzDriverNodeList
	if err := n.reader.List(ctx, &all, client.InNamespace(n.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzDriverNodes: %w", err)
	}
	views := make([]plan.NodeView, 0, len(all.Items))
	for i := range all.Items {
		node := &corev1.Node{}
		if err := n.reader.Get(ctx, client.ObjectKey{Name: all.Items[i].Name}, node); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("get Node: %w", err)
		}
		v, err := n.view(ctx, &all.Items[i], node)
		if err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	return views, nil
}

func (n *Nodes) view(ctx context.Context, d *apiv1.AzDriverNode, node *corev1.Node) (*plan.NodeView, error) {
	v := &plan.NodeView{
		Node: node, Zone: d.Spec.Zone, Location: strings.ToLower(d.Spec.Location), Health: n.health(d, node),
		FreeSlots: -1, Volumes: map[string]bool{},
	}
	var here apiv1.AzVolumeAttachmentList
	err := n.reader.List(ctx, &here, client.InNamespace(n.namespace), client.MatchingFields{AttachmentNode: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list attachments of node %s: %w", d.Name, err)
	}
	taken := int32(0)
	for i := range here.Items {
		v.Volumes[here.Items[i].Spec.VolumeName] = true
		if here.Items[i].Status.State != apiv1.AttachmentFailed {
			taken++
		}
	}
	if most := slots(d); most > 0 {
		v.FreeSlots = max(most-taken, 0)
	}
	return v, nil
}

func (n *Nodes) health(d *apiv1.AzDriverNode, node *corev1.Node) plan.Health {
	if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReady); ready(node) && n.fresh(d) && (c == nil || c.Status == "True") {
		return plan.Healthy
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !n.fresh(d) && n.clock.Now().Sub(c.LastTransitionTime.Time) > lostAfter {
			return plan.Lost
		}
	}
	return plan.Doubtful
}
