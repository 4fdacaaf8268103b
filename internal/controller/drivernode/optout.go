package drivernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
)

// tellOptOut maintains the condition FailoverEnabled, and writes an event on the Node when it turns False. The
// failover reads the Node itself.
func (r *Reconciler) tellOptOut(ctx context.Context, d *apiv1.AzDriverNode, node *corev1.Node) error {
	c := r.failoverEnabled()
	if why := annotation.Failover.Switched(node.Annotations); why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonOptedOut, "the Node has "+why
	}
	if written, err := cluster.WriteCondition(ctx, r.Client, d, c); err != nil || !written {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("whether the node's volumes are moved if it is lost", "node", d.Name, "reason", c.Reason,
		"message", c.Message)
	if r.Events != nil && c.Status == metav1.ConditionFalse {
		r.Events.Eventf(cluster.AboutNode(d.Name), nil, corev1.EventTypeNormal, c.Reason, "PauseFailover",
			"%s; its volumes stay there if it is lost", c.Message)
	}
	return nil
}

// failoverEnabled is the condition FailoverEnabled of a node that does not opt out.
func (r *Reconciler) failoverEnabled() metav1.Condition {
	return metav1.Condition{
		Type:               apiv1.NodeConditionFailoverEnabled,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.ReasonFailoverEnabled,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
}
