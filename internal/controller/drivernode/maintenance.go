package drivernode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

// tellMaintenance maintains the condition Undisturbed, by which the placement of replicas and the
// scheduler know that Azure has announced maintenance of the VM. A node for which nothing was ever
// announced gets no condition, which saves a write per node.
func (r *Reconciler) tellMaintenance(ctx context.Context, d *apiv1.AzDriverNode, node *corev1.Node) error {
	before := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)
	c := metav1.Condition{
		Type:               apiv1.NodeConditionUndisturbed,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.UndisturbedNoMaintenance,
		ObservedGeneration: d.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if e := r.Policies.Next(maintenance.Announced(d, node)); e != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.UndisturbedMaintenanceAnnounced, maintenance.Describe(e)
		if r.Policies.Of(e.Kind) == maintenance.Move {
			c.Reason = apiv1.UndisturbedPodsMove
		}
	}
	switch {
	case before == nil && c.Status == metav1.ConditionTrue:
		return nil
	case before != nil && before.Status == c.Status && before.Message == c.Message:
		return nil
	}
	changed := d.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, c)
	if err := r.Client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write condition %s of node %s: %w", c.Type, d.Name, err)
	}
	changed.DeepCopyInto(d)
	ctrl.LoggerFrom(ctx).Info("maintenance of the node", "node", d.Name, "reason", c.Reason, "message", c.Message)
	if r.Events != nil && c.Status == metav1.ConditionFalse {
		r.Events.Eventf(aboutNode(d.Name), nil, corev1.EventTypeNormal, c.Reason, "PrepareMaintenance", "%s", c.Message)
	}
	return nil
}
