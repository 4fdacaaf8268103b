package drivernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

// tellMaintenance maintains the condition Undisturbed, by which the placement of replicas and the
// scheduler know that Azure has announced maintenance of the VM.
func (r *Reconciler) tellMaintenance(ctx context.Context, d *apiv1.AzDriverNode, node *corev1.Node) error {
	c := metav1.Condition{
		Type:   apiv1.NodeConditionUndisturbed,
		Status: metav1.ConditionTrue,
		Reason: apiv1.ReasonNoMaintenance,
	}
	if e := r.Policies.Next(maintenance.Announced(d, node)); e != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonMaintenanceAnnounced, maintenance.Describe(e)
		if r.Policies.Of(e.Kind) == maintenance.Move {
			c.Reason = apiv1.ReasonPodsMove
		}
	}
	if told, err := r.tell(ctx, d, c); err != nil || !told {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("maintenance of the node", "node", d.Name, "reason", c.Reason, "message", c.Message)
	if r.Events != nil && c.Status == metav1.ConditionFalse {
		r.Events.Eventf(aboutNode(d.Name), nil, corev1.EventTypeNormal, c.Reason, "PrepareMaintenance", "%s", c.Message)
	}
	return nil
}
