package attachdetach

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

const (
	// workers is how many volumes are reconciled at once. Each waits for Azure, which costs
	// nothing.
	workers = 200
	// firstRetry and lastRetry are the pauses before a failed call is repeated. The first is short,
	// because the usual failure is a node that is about to release the volume.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// pauses grow from firstRetry to lastRetry.
func pauses() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	mapped := func(volumes volumesOf) handler.EventHandler { return r.mapped(namespace, volumes) }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("attachdetach").
		For(&apiv1.AzVolume{}).
		Watches(&apiv1.AzVolumeAttachment{}, mapped(ofAttachment)).
		Watches(&corev1.PersistentVolume{}, mapped(r.ofPersistentVolume)).
		Watches(&corev1.PersistentVolumeClaim{}, mapped(r.ofClaim)).
		Watches(&corev1.Pod{}, mapped(r.ofPod), builder.WithPredicates(cluster.Changed(whereabouts))).
		Watches(&apiv1.AzDriverNode{}, mapped(r.ofReport),
			builder.WithPredicates(cluster.Changed(cluster.StagedVolumes))).
		// A report that a node has begun to stand by, and the lack of one, say something of each
		// volume that it does not name.
		Watches(&apiv1.AzDriverNode{}, mapped(r.onNode(namespace)),
			builder.WithPredicates(cluster.Changed(cluster.Scanned))).
		Watches(&corev1.Node{}, mapped(r.onNode(namespace)),
			builder.WithPredicates(cluster.Changed(func(n *corev1.Node) any { return nodehealth.KubeletReady(n) }))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             pauses(),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler that attaches and detaches: %w", err)
	}
	return nil
}

// volumesOf returns the names of the volumes that an object says something about; "" counts as none.
type volumesOf func(context.Context, client.Object) ([]string, error)

// mapped requests the reconciliation of the volumes that an object says something about.
func (r *Reconciler) mapped(namespace string, volumes volumesOf) handler.EventHandler {
	to := func(names ...string) []reconcile.Request {
		var requests []reconcile.Request
		for _, name := range names {
			if name != "" {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
			}
		}
		return requests
	}
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		names, err := volumes(ctx, o)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "volumes not found", "object", o.GetName())
		}
		return to(names...)
	})
	return handler.Funcs{
		UpdateFunc: all.Update,
		DeleteFunc: all.Delete,
		CreateFunc: func(ctx context.Context, e event.CreateEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.IsInInitialList {
				if names, err := volumes(ctx, e.Object); err == nil && r.haveVolumes(ctx, to(names...)) {
					return // each AzVolume that is there at the start is reconciled then
				}
			}
			all.Create(ctx, e, queue)
		},
	}
}

// haveVolumes reports whether there is an AzVolume for each of the requests.
func (r *Reconciler) haveVolumes(ctx context.Context, requests []reconcile.Request) bool {
	return !slices.ContainsFunc(requests, func(request reconcile.Request) bool {
		v, _ := kube.Find[apiv1.AzVolume](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
		return v == nil // there is none, or it cannot be read
	})
}

// whereabouts is the part of a pod that decides on which node it needs a volume.
func whereabouts(p *corev1.Pod) any {
	return struct {
		Node   string
		Ending bool
	}{p.Spec.NodeName, p.DeletionTimestamp != nil}
}

func ofAttachment(_ context.Context, o client.Object) ([]string, error) {
	return cluster.AttachmentVolumeKeys(o), nil
}

func (r *Reconciler) ofPersistentVolume(_ context.Context, o client.Object) ([]string, error) {
	return []string{cluster.VolumeOf(o, r.DriverName)}, nil
}

// ofReport returns the node's own volumes that a report names. For an update the old report counts
// too, so that a volume that has left it is found.
func (r *Reconciler) ofReport(ctx context.Context, o client.Object) ([]string, error) {
	d, ok := o.(*apiv1.AzDriverNode)
	if !ok {
		return nil, nil
	}
	return cluster.Reported(ctx, r.Client, d)
}

func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) ([]string, error) {
	return r.boundTo(ctx, o.GetNamespace()+"/"+o.GetName())
}

func (r *Reconciler) ofPod(ctx context.Context, o client.Object) ([]string, error) {
	names := cluster.PodDiskKeys(r.DriverName)(o)
	for _, claim := range cluster.PodClaimKeys(o) {
		found, err := r.boundTo(ctx, claim)
		if err != nil {
			return names, err
		}
		names = append(names, found...)
	}
	return names, nil
}

// boundTo returns the volumes of the PersistentVolumes that are bound to a PersistentVolumeClaim.
// It searches the PersistentVolumes, because they still exist when the PersistentVolumeClaim is
// deleted.
func (r *Reconciler) boundTo(ctx context.Context, claim string) ([]string, error) {
	var list corev1.PersistentVolumeList
	pvs, err := kube.FindBy(ctx, r.Client, &list, &list.Items, "", cluster.PersistentVolumeClaim, claim)
	var names []string
	for _, pv := range pvs {
		names = append(names, cluster.VolumeOf(pv, r.DriverName))
	}
	return names, err
}

// onNode returns the volumes that are attached to a node, that it owns, or that its pods use.
func (r *Reconciler) onNode(namespace string) volumesOf {
	return func(ctx context.Context, o client.Object) ([]string, error) {
		here, err := cluster.AttachmentsOfNode(ctx, r.Client, namespace, o.GetName())
		if err != nil {
			return nil, err
		}
		var names []string
		for _, a := range here {
			names = append(names, a.Spec.VolumeName)
		}
		// A publish that was cut short leaves an ownership without an attachment.
		held, err := cluster.Held(ctx, r.Client, namespace, o.GetName())
		if err != nil {
			return names, err
		}
		for _, v := range held {
			names = append(names, v.Name)
		}
		pods, err := cluster.PodsOn(ctx, r.Client, o.GetName())
		if err != nil {
			return names, err
		}
		for _, p := range pods {
			found, err := r.ofPod(ctx, p)
			if err != nil {
				return names, err
			}
			names = append(names, found...)
		}
		return names, nil
	}
}
