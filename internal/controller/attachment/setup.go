package attachment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("azvolumeattachment").
		For(&apiv1.AzVolumeAttachment{}).
		Watches(&apiv1.AzVolumeAttachment{}, r.roomMade()).
		Watches(&apiv1.AzVolume{}, r.enqueue(namespace, cluster.AttachmentVolume)).
		Watches(&apiv1.AzDriverNode{}, r.enqueue(namespace, cluster.AttachmentNode),
			builder.WithPredicates(cluster.Changed(whichVM))).
		Watches(&apiv1.AzDriverNode{}, r.capacityKnown(),
			builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any { return d.Status.Capacity == nil }))).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(answered),
			builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any { return d.Status.FenceResults }))).
		Watches(&corev1.Node{}, r.enqueue(namespace, cluster.AttachmentNode),
			builder.WithPredicates(nodeChanged())).
		WatchesRawSource(r.Jobs.Source()).
		WatchesRawSource(source.Func(r.lead)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of attachments: %w", err)
	}
	return nil
}

// lead notes since when this process leads: the sources of the controller start then.
func (r *Reconciler) lead(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.leadingSince = r.Clock.Now()
	return nil
}

// enqueue requests the attachments that an object's name leads to.
func (r *Reconciler) enqueue(namespace, field string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		all, err := cluster.Attachments(ctx, r.Client, namespace, field, o.GetName())
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "attachments not found", "of", o.GetName())
			return nil
		}
		requests := make([]reconcile.Request, 0, len(all))
		for _, a := range all {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
		}
		return requests
	})
}

// roomMade requests the attachments that may wait for a slot, when the slots or the waiting
// attachments have changed: one is deleted or being deleted, or one more waits, which may be first
// in order and so get the slot that another one has waited for. Each of them takes the slot of a
// replica of its own (attaching.Slots), but only if it is reconciled.
func (r *Reconciler) roomMade() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if due(e.Object) {
				r.wake(ctx, e.Object, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			going := e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
			if going || due(e.ObjectOld) != due(e.ObjectNew) {
				r.wake(ctx, e.ObjectNew, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.wake(ctx, e.Object, queue)
		},
	}
}

func due(o client.Object) bool {
	a, ok := o.(*apiv1.AzVolumeAttachment)
	return ok && attaching.DueForSlot(a)
}

// wake requests the attachments of the same node and of the same volume that are not attached.
func (r *Reconciler) wake(ctx context.Context, o client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if gone, ok := o.(*apiv1.AzVolumeAttachment); ok {
		r.wakeBy(ctx, gone.Namespace, cluster.AttachmentVolume, gone.Spec.VolumeName, queue)
		r.wakeBy(ctx, gone.Namespace, cluster.AttachmentNode, gone.Spec.NodeName, queue)
	}
}

// wakeBy requests the attachments that a key of an index names and that are not attached.
func (r *Reconciler) wakeBy(ctx context.Context, namespace, field, key string,
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	all, err := cluster.Attachments(ctx, r.Client, namespace, field, key)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "attachments not found", field, key)
	}
	for _, a := range all {
		if a.Status.State != apiv1.AttachmentAttached {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
		}
	}
}

// capacityKnown requests the attachments to a node that are not attached, once it is known how many
// disks its VM can have. If it has become known at the same time which VM that is, all attachments
// are requested.
func (r *Reconciler) capacityKnown() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent,
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if cluster.Changed(whichVM).Update(e) {
			return
		}
		r.wakeBy(ctx, e.ObjectNew.GetNamespace(), cluster.AttachmentNode, e.ObjectNew.GetName(), queue)
	}}
}

// whichVM is the part of an AzDriverNode that says which VM the node is, and whether the controller
// believes it.
func whichVM(d *apiv1.AzDriverNode) any {
	return []any{d.Spec, meta.IsStatusConditionFalse(d.Status.Conditions, apiv1.NodeConditionVMKnown)}
}

// nodeChanged passes Nodes that are created or deleted, and changes between Ready and not Ready,
// for which the release of a volume may wait; see attaching.DesertedGrace. A providerID that
// becomes known may establish which VM the node is.
func nodeChanged() predicate.Predicate {
	return cluster.Changed(func(n *corev1.Node) any { return [2]any{nodehealth.KubeletReady(n), n.Spec.ProviderID} })
}
