package drivernode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
)

// tellIdentity maintains the condition VMKnown, and writes an event on the Node when it turns
// False. The condition decides nothing: the node can write it, too.
func (r *Reconciler) tellIdentity(ctx context.Context, d *apiv1.AzDriverNode, established identity.Identity) error {
	c := metav1.Condition{
		Type:   apiv1.NodeConditionVMKnown,
		Status: metav1.ConditionTrue,
		Reason: apiv1.ReasonVMEstablished,
	}
	if established.VMID == "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, established.Reason, established.Message
	}
	if told, err := r.tell(ctx, d, c); err != nil || !told {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("which VM the node is", "node", d.Name, "vmID", established.VMID, "reason", c.Reason, "message",
		c.Message)
	if r.Events != nil && c.Status == metav1.ConditionFalse {
		r.Events.Eventf(aboutNode(d.Name), nil, corev1.EventTypeWarning, c.Reason, "IdentifyNode",
			"%s; no disk is attached to the node", c.Message)
	}
	return nil
}

// tell writes a condition of an AzDriverNode if it is not there as it should be, and reports whether
// it did. A node for which it was never False gets no condition, which saves a write per node.
func (r *Reconciler) tell(ctx context.Context, d *apiv1.AzDriverNode, c metav1.Condition) (told bool, err error) {
	before := meta.FindStatusCondition(d.Status.Conditions, c.Type)
	switch {
	case before == nil && c.Status == metav1.ConditionTrue:
		return false, nil
	case before != nil && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message:
		return false, nil
	}
	c.ObservedGeneration, c.LastTransitionTime = d.Generation, metav1.NewTime(r.Clock.Now())
	changed := d.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, c)
	if err := kube.PatchStatus(ctx, r.Client, changed, d); err != nil {
		return false, fmt.Errorf("write condition %s of node %s: %w", c.Type, d.Name, err)
	}
	changed.DeepCopyInto(d)
	return true, nil
}

// aboutNode returns what an event about a Node is about. Events on Nodes carry the name as UID, as
// the kubelet's do.
func aboutNode(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       name,
		UID:        types.UID(name),
	}
}

// rivals requests the other nodes that name the VM of an AzDriverNode: their identities may have
// changed.
func (r *Reconciler) rivals(ctx context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*apiv1.AzDriverNode)
	if !ok {
		return nil
	}
	others, err := cluster.NodesNamingVM(ctx, r.Client, d.Namespace, d.Spec.VMID)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "nodes of a VM not found", "vmID", d.Spec.VMID)
		return nil
	}
	var requests []reconcile.Request
	for _, other := range others {
		if other.Name != d.Name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)})
		}
	}
	return requests
}
