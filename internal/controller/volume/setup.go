package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/view"
)

// SetUp adds the reconciler to a manager. namespace is that of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	toVolume := func(name string) []reconcile.Request {
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("azvolume").
		For(&apiv1.AzVolume{}).
		Watches(&apiv1.AzVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
				return toVolume(a.Spec.VolumeName)
			}
			return nil
		})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return toVolume(view.VolumeOf(o, r.DriverName))
		})).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			var requests []reconcile.Request
			if d, ok := o.(*apiv1.AzDriverNode); ok {
				for _, s := range d.Status.StagedVolumes {
					requests = append(requests, toVolume(s.VolumeName)...)
				}
			}
			return requests
		}), builder.WithPredicates(reportChanged())).
		Watches(&corev1.Node{}, r.onNode(namespace), builder.WithPredicates(readinessChanged())).
		WatchesRawSource(r.Jobs.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of volumes: %w", err)
	}
	return nil
}

// onNode asks for the volumes that have an attachment on a node.
func (r *Reconciler) onNode(namespace string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var here apiv1.AzVolumeAttachmentList
		if err := r.Client.List(ctx, &here, client.InNamespace(namespace), client.MatchingFields{view.AttachmentNode: o.GetName()}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "attachments not found", "node", o.GetName())
			return nil
		}
		requests := make([]reconcile.Request, 0, len(here.Items))
		for i := range here.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: here.Items[i].Spec.VolumeName}})
		}
		return requests
	})
}

// reportChanged leaves out the heartbeats.
func reportChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*apiv1.AzDriverNode)
		after, isNode := e.ObjectNew.(*apiv1.AzDriverNode)
		return ok && isNode && !equality.Semantic.DeepEqual(before.Status.StagedVolumes, after.Status.StagedVolumes)
	}}
}

func readinessChanged() predicate.Predicate {
	status := func(o client.Object) corev1.ConditionStatus {
		if n, ok := o.(*corev1.Node); ok {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c.Status
				}
			}
		}
		return corev1.ConditionUnknown
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return status(e.ObjectOld) != status(e.ObjectNew) },
	}
}
