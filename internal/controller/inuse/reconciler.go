// Package inuse tells Kubernetes at once that a node is done with a volume.
//
// The kubelet takes an unmounted volume out of its Node's status.volumesInUse with its periodic status, up to ten seconds later, and
// until then the attach/detach controller does not call ControllerUnpublishVolume. The node plug-in knows it earlier: the volume has left its
// report. This reconciler carries that over.
//
// It is safe to be wrong here. The field is Kubernetes' own protection against a detach under a mounted filesystem; this driver's is the
// proof that ControllerUnpublishVolume waits for, whatever the field says (ADR 0001).
package inuse

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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/view"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods;persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes;azvolumeattachments;azdrivernodes,verbs=get;list;watch

// conflictRetry is how soon to look again at a Node that the kubelet changed meanwhile.
const conflictRetry = 25 * time.Millisecond

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	// DriverName is the CSI driver's, by which Kubernetes names its volumes.
	DriverName string
	// Workers is how many nodes are reconciled at once.
	Workers int
}

// Reconciler reconciles the status.volumesInUse of Nodes with the reports of their node plug-ins.
type Reconciler struct{ Options }

// New makes a Reconciler.
func New(options Options) *Reconciler { return &Reconciler{Options: options} }

// Reconcile looks at the volumes for which one node is primary.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	report := &apiv1.AzDriverNode{}
	if err := r.Client.Get(ctx, request.NamespacedName, report); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	names, err := r.letGo(ctx, report)
	if err != nil || len(names) == 0 {
		return reconcile.Result{}, err
	}
	pruned, err := Prune(ctx, r.Client, r.Reader, report.Name, names)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	case len(pruned) > 0:
		ctrl.LoggerFrom(ctx).Info("the node is done with volumes", "node", report.Name, "volumesInUse", pruned)
	}
	return reconcile.Result{}, nil
}

// letGo returns the volumes, by Kubernetes' names, that the node is done with and still primary for.
func (r *Reconciler) letGo(ctx context.Context, report *apiv1.AzDriverNode) ([]corev1.UniqueVolumeName, error) {
	var here apiv1.AzVolumeAttachmentList
	err := r.Client.List(ctx, &here, client.InNamespace(report.Namespace), client.MatchingFields{view.AttachmentNode: report.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list attachments of node: %w", err)
	}
	var names []corev1.UniqueVolumeName
	for i := range here.Items {
		volume := here.Items[i].Spec.VolumeName
		if here.Items[i].Spec.Role != apiv1.RolePrimary {
			continue
		}
		pv, pods, err := r.users(ctx, volume)
		if err != nil {
			return nil, err
		}
		if pv != nil && plan.LetGo(volume, report.Name, report, pods) {
			names = append(names, plan.InUseName(r.DriverName, pv.Spec.CSI.VolumeHandle))
		}
	}
	return names, nil
}

// users returns the PersistentVolume of a volume, nil if there is none, and the pods that use it.
func (r *Reconciler) users(ctx context.Context, volume string) (*corev1.PersistentVolume, []*corev1.Pod, error) {
	var pvs corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &pvs, client.MatchingFields{view.PersistentVolumeVolume: volume}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	if len(pvs.Items) == 0 {
		return nil, nil, nil
	}
	pv := &pvs.Items[0]
	claim := pv.Spec.ClaimRef
	if claim == nil {
		return pv, nil, nil
	}
	var list corev1.PodList
	err := r.Client.List(ctx, &list, client.MatchingFields{view.PodClaim: claim.Namespace + "/" + claim.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pv, pods, nil
}

// Prune takes volumes out of a Node's status.volumesInUse and returns which of them were there. It reads the
// Node from the API server and writes nothing if none was. Errors: a Conflict if somebody else changed the Node
// meanwhile, after which it is to be called again; a Node that is gone is no error.
func Prune(ctx context.Context, writer client.Client, reader client.Reader, node string, volumes []corev1.UniqueVolumeName) ([]corev1.UniqueVolumeName, error) {
	n := &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: node}, n); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read Node: %w", err)
	}
	before := n.DeepCopy()
	var pruned []corev1.UniqueVolumeName
	n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse, func(name corev1.UniqueVolumeName) bool {
		if !slices.Contains(volumes, name) {
			return false
		}
		pruned = append(pruned, name)
		return true
	})
	if len(pruned) == 0 {
		return nil, nil
	}
	if err := writer.Status().Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("take volumes out of the Node's volumesInUse: %w", err))
	}
	return pruned, nil
}

// SetUp adds the reconciler to a manager. namespace is that of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	onPod := func(_ context.Context, o client.Object) []reconcile.Request {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: p.Spec.NodeName}}}
		}
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("volumesinuse").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(view.Changed(view.StagedVolumes))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(onPod), builder.WithPredicates(deletions())).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of volumes in use: %w", err)
	}
	return nil
}

// deletions lets pods through that are gone or begin to go, if they use a volume.
func deletions() predicate.Predicate {
	uses := func(o client.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && len(view.PodClaimKeys(p)) > 0
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return uses(e.ObjectNew) && e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return uses(e.Object) },
	}
}
