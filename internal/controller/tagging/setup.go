package tagging

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
)

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("tagging").
		For(&apiv1.AzVolume{}, builder.WithPredicates(cluster.Changed(func(v *apiv1.AzVolume) any {
			return []any{v.Spec.Disk.FollowedTags, v.Status.PersistentVolume}
		}), predicate.NewPredicateFuncs(func(o client.Object) bool {
			v, ok := o.(*apiv1.AzVolume)
			return ok && follows(v)
		}))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, o client.Object) []reconcile.Request { return r.ofClaim(ctx, namespace, o) }),
			builder.WithPredicates(onlyUpdates)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, o client.Object) []reconcile.Request {
				return r.ofNamespace(ctx, namespace, o)
			}),
			builder.WithPredicates(onlyUpdates)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of tags: %w", err)
	}
	return nil
}

// onlyUpdates is for objects whose labels can change: volumes are compared with those that are
// there when the volumes appear.
var onlyUpdates = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ofClaim requests the volume of a claim.
func (r *Reconciler) ofClaim(ctx context.Context, namespace string, o client.Object) []reconcile.Request {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	pv, err := cluster.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName},
		client.UnsafeDisableDeepCopy)
	if err != nil || pv == nil {
		return nil
	}
	name := cluster.VolumeOf(pv, r.DriverName)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// ofNamespace requests the volumes whose tags follow a namespace.
func (r *Reconciler) ofNamespace(ctx context.Context, namespace string, o client.Object) []reconcile.Request {
	var volumes apiv1.AzVolumeList
	if err := r.Client.List(ctx, &volumes, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "volumes of a namespace not found", "namespace", o.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if !follows(v) || !volumeparams.ReadsNamespace(v.Spec.Disk.FollowedTags) {
			continue
		}
		pv, err := cluster.PersistentVolume(ctx, r.Client, v)
		if err == nil && pv != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace == o.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(v)})
		}
	}
	return requests
}
