// Package scaledown asks autoscalers, by annotations of the Node, not to remove a node whose
// reservation of a disk keeps a fenced node from writing.
//
// The leader runs it. It keeps nothing in memory: an annotation of the Node records which others the
// driver has set.
package scaledown

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/scaledown"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes;azvolumeattachments;azdrivernodes,verbs=get;list;watch

// again is how often a node that is needed is looked at again: a later owner of the volume causes no
// event of it, and another program may have removed the annotations.
const again = 30 * time.Second

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	// Workers is how many nodes are reconciled at once.
	Workers int
}

// Reconciler sets and removes the annotations.
type Reconciler struct {
	Options
}

// New makes a Reconciler.
func New(options Options) *Reconciler { return &Reconciler{options} }

// Reconcile annotates one Node. The request has the name of the node and the namespace of the custom
// resources.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cached, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: request.Name})
	if err != nil || cached == nil {
		return reconcile.Result{}, err
	}
	fenced, err := r.needed(ctx, request)
	if err != nil || fenced == "" && !plan.Recorded(cached.Annotations) {
		return reconcile.Result{}, err
	}
	// The cache has only the driver's own annotation.
	node, err := kube.Find[corev1.Node](ctx, r.Reader, client.ObjectKey{Name: request.Name})
	if err != nil || node == nil {
		return reconcile.Result{}, err
	}
	if wanted, changed := plan.Annotate(node.Annotations, fenced != ""); changed {
		before := node.DeepCopy()
		node.Annotations = wanted
		err := kube.Patch(ctx, r.Client, node, before)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("write the annotations of Node for autoscalers: %w", err)
		}
		ctrl.LoggerFrom(ctx).Info("wrote the annotations for autoscalers", "node", node.Name, "keepsFenced", fenced,
			"annotations", wanted[apiv1.AnnotationScaleDownDisabled])
	}
	if fenced == "" {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// needed returns a node that only the reservation of this one keeps from writing; "" for none.
func (r *Reconciler) needed(ctx context.Context, request reconcile.Request) (string, error) {
	report, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName)
	if err != nil {
		return "", err
	}
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, request.Namespace, request.Name)
	if err != nil {
		return "", err
	}
	var disks []plan.Disk
	for _, a := range here {
		all, err := r.beside(ctx, a)
		if err != nil {
			return "", err
		}
		if len(all) < 2 {
			continue
		}
		v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.VolumeName})
		if err != nil {
			return "", err
		}
		disks = append(disks, plan.Disk{Volume: v, Attachment: a, All: all})
	}
	return plan.Needed(report, disks), nil
}

// beside returns all attachments of the volume of an attachment.
func (r *Reconciler) beside(ctx context.Context, a *apiv1.AzVolumeAttachment) ([]*apiv1.AzVolumeAttachment, error) {
	return cluster.Attachments(ctx, r.Client, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("scaledown").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			return []any{d.FenceRequests(), d.Status.FenceResults}
		}))).
		Watches(&apiv1.AzVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.onAttachment)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of the annotations for autoscalers: %w", err)
	}
	return nil
}

// onAttachment returns the nodes with the disk of a volume from which a node was fenced by a
// pre-emption.
func (r *Reconciler) onAttachment(ctx context.Context, o client.Object) []reconcile.Request {
	a, ok := o.(*apiv1.AzVolumeAttachment)
	if !ok {
		return nil
	}
	all, err := r.beside(ctx, a)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the attachments of a volume", "volume", a.Spec.VolumeName)
		return nil
	}
	if !ownership.Preempted(a) && !slices.ContainsFunc(all, ownership.Preempted) {
		return nil
	}
	var requests []reconcile.Request
	for _, other := range append([]*apiv1.AzVolumeAttachment{a}, all...) {
		requests = append(requests, reconcile.Request{
			NamespacedName: client.ObjectKey{Namespace: a.Namespace, Name: other.Spec.NodeName}})
	}
	return requests
}
