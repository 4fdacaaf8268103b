package drivernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
)

// tellIdentity maintains the condition VMKnown, and writes an event on the Node when it turns
// False, or is False for another reason. The condition decides nothing: the node can write it, too.
func (r *Reconciler) tellIdentity(ctx context.Context, d *apiv1.AzDriverNode, established identity.Identity) error {
	c := r.vmKnown()
	if established.VMID == "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, established.Reason, established.Message
	}
	if written, err := cluster.WriteCondition(ctx, r.Client, d, c); err != nil || !written {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("which VM the node is", "node", d.Name, "vmID", established.VMID, "reason", c.Reason, "message",
		c.Message)
	if r.Events != nil && c.Status == metav1.ConditionFalse {
		r.Events.Eventf(cluster.AboutNode(d.Name), nil, corev1.EventTypeWarning, c.Reason, "IdentifyNode",
			"%s; no disk is attached to the node", c.Message)
	}
	return nil
}

// vmKnown is the condition VMKnown of a node that is believed.
func (r *Reconciler) vmKnown() metav1.Condition {
	return metav1.Condition{
		Type:               apiv1.NodeConditionVMKnown,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.ReasonVMEstablished,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
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
