// Package inuse tells Kubernetes at once that a node no longer uses a volume.
//
// The kubelet removes an unmounted volume from its Node's status.volumesInUse with its periodic
// status, up to ten seconds later, and until then the attach/detach controller does not call
// ControllerUnpublishVolume. The node plug-in knows it earlier: the volume is no longer in its
// report. This reconciler updates the Node from the report.
//
// A wrong decision here is safe. The field is Kubernetes' own protection against a detach under a
// mounted filesystem; this driver's protection is the proof that ControllerUnpublishVolume waits
// for, whatever the field says (ADR 0001).
package inuse

import (
	"context"
	"fmt"
	"slices"

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
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods;persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes;azvolumeattachments;azdrivernodes,verbs=get;list;watch

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

// Reconcile handles the volumes for which one node is primary.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	report := &apiv1.AzDriverNode{}
	if err := r.Client.Get(ctx, request.NamespacedName, report); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	disks, err := r.unused(ctx, report)
	if err != nil || len(disks) == 0 {
		return reconcile.Result{}, err
	}
	pruned, err := Pruner{Client: r.Client, Reader: r.Reader, DriverName: r.DriverName}.Prune(ctx, report.Name, disks)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	case len(pruned) > 0:
		ctrl.LoggerFrom(ctx).Info("the node no longer uses volumes", "node", report.Name, "volumesInUse", pruned)
	}
	return reconcile.Result{}, nil
}

// unused returns the disks of the volumes that the node no longer uses and still is primary for.
func (r *Reconciler) unused(ctx context.Context, report *apiv1.AzDriverNode) ([]volumehandle.Handle, error) {
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, report.Namespace, report.Name)
	if err != nil {
		return nil, err
	}
	var disks []volumehandle.Handle
	for i := range here {
		if here[i].Spec.Role != apiv1.RolePrimary {
			continue
		}
		v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{
			Namespace: report.Namespace,
			Name:      here[i].Spec.VolumeName,
		})
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		pods, err := r.users(ctx, v)
		if err != nil {
			return nil, err
		}
		if ownership.NoLongerUsed(v.Name, report.Name, report, pods) {
			disks = append(disks, volumehandle.Of(v.Spec.Disk))
		}
	}
	return disks, nil
}

// users returns the pods that use a volume by any PersistentVolume of its disk, or name its disk
// themselves.
func (r *Reconciler) users(ctx context.Context, v *apiv1.AzVolume) ([]*corev1.Pod, error) {
	pvs, err := cluster.PersistentVolumes(ctx, r.Client, v.Name)
	if err != nil {
		return nil, err
	}
	pods, err := cluster.PodsNaming(ctx, r.Client, v.Name)
	if err != nil {
		return nil, err
	}
	for _, pv := range pvs {
		if !cluster.IsOf(v, pv) {
			continue
		}
		of, err := cluster.PodsOf(ctx, r.Client, pv)
		if err != nil {
			return nil, err
		}
		pods = append(pods, of...)
	}
	return pods, nil
}

// Pruner removes disks of the driver from Nodes' status.volumesInUse. Reader reads the API server.
type Pruner struct {
	Client     client.Client
	Reader     client.Reader
	DriverName string
}

// Prune removes disks from a Node's status.volumesInUse, in all spellings, and returns the names
// that were there. It reads the Node from the API server and writes nothing if none was. Errors: a
// Conflict if another writer changed the Node between the read and the write, after which the
// caller calls it again; a missing Node is no error.
func (p Pruner) Prune(ctx context.Context, node string, disks []volumehandle.Handle) ([]corev1.UniqueVolumeName, error) {
	n, err := kube.Find[corev1.Node](ctx, p.Reader, client.ObjectKey{Name: node})
	if err != nil || n == nil {
		return nil, err
	}
	before := n.DeepCopy()
	var pruned []corev1.UniqueVolumeName
	for _, disk := range disks {
		pruned = append(pruned, cluster.InUseNames(n.Status.VolumesInUse, p.DriverName, disk)...)
	}
	if len(pruned) == 0 {
		return nil, nil
	}
	n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse, func(name corev1.UniqueVolumeName) bool {
		return slices.Contains(pruned, name)
	})
	if err := kube.PatchStatus(ctx, p.Client, n, before); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("remove volumes from the Node's volumesInUse: %w", err))
	}
	return pruned, nil
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	onPod := func(_ context.Context, o client.Object) []reconcile.Request {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: p.Spec.NodeName}}}
		}
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("volumesinuse").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(cluster.StagedVolumes))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(onPod), builder.WithPredicates(deletions())).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of volumes in use: %w", err)
	}
	return nil
}

// deletions passes pods that are deleted or being deleted, if they use a volume.
func deletions() predicate.Predicate {
	uses := func(o client.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && len(cluster.PodClaimKeys(p)) > 0
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return uses(e.ObjectNew) && e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return uses(e.Object) },
	}
}
