package volume

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
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
		Watches(&apiv1.AzVolumeAttachment{},
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
				if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
					return toVolume(a.Spec.VolumeName)
				}
				return nil
			})).
		Watches(&corev1.PersistentVolume{},
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
				return toVolume(cluster.VolumeOf(o, r.DriverName))
			})).
		Watches(&corev1.PersistentVolumeClaim{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
				return r.ofClaim(ctx, namespace, o)
			}), builder.WithPredicates(claimChanged)).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(r.ofReport),
			builder.WithPredicates(cluster.Changed(cluster.StagedVolumes))).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, o client.Object) []reconcile.Request {
				var requests []reconcile.Request
				if d, ok := o.(*apiv1.AzDriverNode); ok {
					for _, lost := range d.Status.LostWrites {
						requests = append(requests, toVolume(lost.VolumeName)...)
					}
					for _, p := range d.Status.VolumeProblems {
						requests = append(requests, toVolume(p.VolumeName)...)
					}
				}
				return requests
			}), builder.WithPredicates(cluster.Changed(toldOfVolumes))).
		Watches(&apiv1.AzDriverNode{}, r.onNode(namespace), builder.WithPredicates(cluster.Changed(impaired))).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(r.lackingReplicas),
			builder.WithPredicates(onlySuitabilityChanged)).
		Watches(&corev1.Node{}, r.onNode(namespace), builder.WithPredicates(nodeChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.repelledBy(ctx, namespace, o)
		}), builder.WithPredicates(placed)).
		WatchesRawSource(r.Jobs.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of volumes: %w", err)
	}
	return nil
}

// toldOfVolumes is what a node reports of volumes beside what it has staged.
func toldOfVolumes(d *apiv1.AzDriverNode) any {
	return []any{d.Status.LostWrites, d.Status.VolumeProblems}
}

// ofReport returns the volumes that a node's report names.
func (r *Reconciler) ofReport(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	d, ok := o.(*apiv1.AzDriverNode)
	if !ok {
		return nil
	}
	names, err := cluster.Reported(ctx, r.Client, d)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "volumes of a report not found", "node", d.Name)
	}
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: d.Namespace, Name: name}})
	}
	return requests
}

// onNode requests the volumes that have an attachment on a node, and the volumes with too few
// replicas, which may find a place there. It requests nothing for the nodes in the initial list:
// each volume in the cache is requested anyway, and no volume is reconciled before the cache has
// all nodes. A search of all volumes for each node would take quadratic time.
func (r *Reconciler) onNode(namespace string) handler.EventHandler {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		here, err := cluster.AttachmentsOfNode(ctx, r.Client, namespace, o.GetName())
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "attachments not found", "node", o.GetName())
		}
		requests := make([]reconcile.Request, 0, len(here))
		for _, a := range here {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{
				Namespace: namespace,
				Name:      a.Spec.VolumeName,
			}})
		}
		return append(requests, r.lacking(ctx, namespace)...)
	})
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !e.IsInInitialList {
				all.Create(ctx, e, queue)
			}
		},
		UpdateFunc: all.Update,
		DeleteFunc: all.Delete,
	}
}

// lackingReplicas requests the volumes with too few replicas, which may find a place on a node.
func (r *Reconciler) lackingReplicas(ctx context.Context, o client.Object) []reconcile.Request {
	return r.lacking(ctx, o.GetNamespace())
}

func (r *Reconciler) lacking(ctx context.Context, namespace string) []reconcile.Request {
	var list apiv1.AzVolumeList
	lacking, err := kube.FindBy(ctx, r.Client, &list, &list.Items, namespace, cluster.VolumeReplicas,
		cluster.VolumeReplicasMissing)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "volumes that lack replicas not found")
	}
	requests := make([]reconcile.Request, 0, len(lacking))
	for _, v := range lacking {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(v)})
	}
	return requests
}

// impaired is why a node cannot keep its replicas, or its primary: the conditions that are not
// true. What a new node has at once, and its capacity, change nothing for a disk that is attached
// already.
func impaired(d *apiv1.AzDriverNode) any {
	found := statuses(d)
	maps.DeleteFunc(found, func(kind string, status metav1.ConditionStatus) bool {
		return status == metav1.ConditionTrue || kind == apiv1.NodeConditionProbeable || kind == apiv1.NodeConditionGuards ||
			kind == apiv1.NodeConditionFailoverEnabled
	})
	return found
}

// onlySuitabilityChanged passes the updates after which nothing has changed but whether the node
// may get another replica. onNode has the creations, the deletions and the other updates.
var onlySuitabilityChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return cluster.Changed(suitability).Update(e) && !cluster.Changed(impaired).Update(e)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// suitability is what decides whether a node may get another replica.
func suitability(d *apiv1.AzDriverNode) any { return []any{d.Status.Capacity, statuses(d)} }

// statuses are the statuses of the conditions but Ready, which summarises others.
func statuses(d *apiv1.AzDriverNode) map[string]metav1.ConditionStatus {
	found := make(map[string]metav1.ConditionStatus, len(d.Status.Conditions))
	for _, c := range d.Status.Conditions {
		found[c.Type] = c.Status
	}
	delete(found, apiv1.NodeConditionReady)
	return found
}

// placed passes pods that have come to a node. Those in the initial list tell nothing new: each volume in the cache is
// requested anyway.
var placed = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && nodeOf(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool { return nodeOf(e.ObjectOld) == "" && nodeOf(e.ObjectNew) != "" },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func nodeOf(o client.Object) string {
	if p, is := o.(*corev1.Pod); is {
		return p.Spec.NodeName
	}
	return ""
}

// nodeChanged passes changes that decide where pods, and so replicas, can be: readiness, cordon,
// taints and labels.
func nodeChanged() predicate.Predicate {
	ready := func(n *corev1.Node) corev1.ConditionStatus {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
		return corev1.ConditionUnknown
	}
	return cluster.Changed(func(n *corev1.Node) any { return []any{ready(n), n.Spec.Unschedulable, n.Spec.Taints, n.Labels} })
}
