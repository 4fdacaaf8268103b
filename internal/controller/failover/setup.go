package failover

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	request := func(node string, wanted bool) []reconcile.Request {
		if node == "" || !wanted {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: node}}}
	}
	onVolume := func(_ context.Context, o client.Object) []reconcile.Request {
		if v, ok := o.(*apiv1.AzVolume); ok && v.Status.Primary != nil {
			node := v.Status.Primary.NodeName
			return request(node, r.watches(node) || ownership.FenceDecided(v, node))
		}
		return nil
	}
	onAttachment := func(_ context.Context, o client.Object) []reconcile.Request {
		if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
			return request(a.Spec.NodeName, r.watches(a.Spec.NodeName) || ownership.MultiNodeFenceDecided(a))
		}
		return nil
	}
	onPod := func(_ context.Context, o client.Object) []reconcile.Request {
		if p, ok := o.(*corev1.Pod); ok {
			return request(p.Spec.NodeName, len(p.Spec.Volumes) > 0 && r.watches(p.Spec.NodeName))
		}
		return nil
	}
	onNode := func(_ context.Context, o client.Object) []reconcile.Request { return request(o.GetName(), true) }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("failover").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			return []any{d.Status.Conditions, d.FenceRequests(), d.Status.FenceResults}
		}))).
		Watches(&apiv1.AzVolume{}, handler.EnqueueRequestsFromMapFunc(onVolume)).
		Watches(&apiv1.AzVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(onAttachment)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(onPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(onNode),
			builder.WithPredicates(r.nodeChanged())).
		WatchesRawSource(r.Monitor.Subscribe()).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of failovers: %w", err)
	}
	return nil
}

// nodeChanged passes what decides on taints, whether the Node opts out, and, of nodes that are watched, the volumes in use.
func (r *Reconciler) nodeChanged() predicate.Predicate {
	return cluster.Changed(func(n *corev1.Node) any {
		inUse := n.Status.VolumesInUse
		if !r.watches(n.Name) {
			inUse = nil
		}
		return []any{n.Spec.Taints, n.Status.Conditions, inUse, annotation.Failover.Switched(n.Annotations)}
	})
}
