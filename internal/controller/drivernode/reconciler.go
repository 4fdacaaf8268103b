// Package drivernode reconciles AzDriverNodes: it fills in how many disks a VM can
// take, deletes the object of a node that is gone, and finds attachments at Azure whose objects were lost.
package drivernode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=update;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// cloudTimeout bounds the reads of the platform; they are single requests.
const cloudTimeout = 30 * time.Second

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	Cloud  provisioner.Cloud
	// Workers is how many nodes are reconciled at once.
	Workers int
}

// Reconciler reconciles AzDriverNodes.
type Reconciler struct {
	Options
	// compared holds the VMs whose disks this process has compared with the objects. It only saves repetition.
	mu       sync.Mutex
	compared map[string]bool
}

// New makes a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{Options: options, compared: map[string]bool{}}
}

// Reconcile takes the next step of one node.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d := &apiv1.AzDriverNode{}
	if err := r.Client.Get(ctx, request.NamespacedName, d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if d.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	gone, err := r.nodeGone(ctx, d.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if gone {
		return reconcile.Result{}, r.remove(ctx, d)
	}
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	return reconcile.Result{}, errors.Join(r.fillCapacity(ctx, d), r.compare(ctx, d))
}

// nodeGone asks the API server itself, because a cache may not know a new Node yet.
func (r *Reconciler) nodeGone(ctx context.Context, name string) (bool, error) {
	node := &corev1.Node{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, client.ObjectKey{Name: name}, node)
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Node: %w", err)
	}
	return false, nil
}

// remove deletes the AzDriverNode of a node that is gone, once nothing is attached there any more: until then it
// says which VM to ask for the proof of release.
func (r *Reconciler) remove(ctx context.Context, d *apiv1.AzDriverNode) error {
	here, err := r.attachments(ctx, d)
	if err != nil || len(here) > 0 {
		return err
	}
	err = r.Client.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete AzDriverNode: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("node is gone", "node", d.Name, "reason", plan.ReasonNodeGone)
	return nil
}

func (r *Reconciler) attachments(ctx context.Context, d *apiv1.AzDriverNode) (map[string]bool, error) {
	var list apiv1.AzVolumeAttachmentList
	err := r.Client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{view.AttachmentNode: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list attachments of node: %w", err)
	}
	volumes := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		volumes[list.Items[i].Spec.VolumeName] = true
	}
	return volumes, nil
}

func (r *Reconciler) fillCapacity(ctx context.Context, d *apiv1.AzDriverNode) error {
	if d.Spec.VMSize == "" || (d.Status.Capacity != nil && d.Status.Capacity.VMSize == d.Spec.VMSize) {
		return nil
	}
	most, err := r.Cloud.SKUs().MaxDataDisks(ctx, d.Spec.Location, d.Spec.VMSize)
	if errors.Is(err, provisioner.NotFound) {
		// Azure does not list the size, so Azure decides on each attach.
		ctrl.LoggerFrom(ctx).Info("VM size is not known", "node", d.Name, "vmSize", d.Spec.VMSize)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up VM size %s: %w", d.Spec.VMSize, err)
	}
	changed := d.DeepCopy()
	changed.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: most, VMSize: d.Spec.VMSize}
	if err := r.Client.Status().Patch(ctx, changed, client.MergeFrom(d)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write capacity: %w", err)
	}
	return nil
}

// compare finds disks of ours that are attached to the VM though there is no object that says so, and makes the
// object: as a primary, whose end needs proof, where the node may be using the volume.
func (r *Reconciler) compare(ctx context.Context, d *apiv1.AzDriverNode) error {
	if r.hasCompared(d.Spec.VMID) {
		return nil
	}
	disks, err := r.Cloud.Attachments().List(ctx, d.Spec.VMID)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return fmt.Errorf("read disks of VM: %w", err)
	}
	known, err := r.attachments(ctx, d)
	if err != nil {
		return err
	}
	for _, disk := range disks {
		if err := r.rebuild(ctx, d, disk, known); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compared[d.Spec.VMID] = true
	return nil
}

func (r *Reconciler) hasCompared(vmID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compared[vmID]
}

func (r *Reconciler) rebuild(ctx context.Context, d *apiv1.AzDriverNode, disk provisioner.Attachment, known map[string]bool) error {
	handle, err := volumehandle.Parse(disk.DiskID)
	if err != nil || known[handle.VolumeName()] {
		return nil //nolint:nilerr // a disk whose ID is not a disk's is nothing of ours
	}
	v := &apiv1.AzVolume{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: handle.VolumeName()}, v)
	if apierrors.IsNotFound(err) || (err == nil && !volumehandle.Of(v.Spec.Disk).Same(handle)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get volume of a disk that is attached: %w", err)
	}
	role, epoch := apiv1.RoleReplica, int64(0)
	switch {
	case v.Spec.Access == apiv1.AccessMultiNode:
		role, epoch = apiv1.RolePrimary, plan.MultiNodeEpoch
	case plan.Holds(v, d.Name):
		role, epoch = apiv1.RolePrimary, v.Status.Primary.Epoch
	}
	err = r.Client.Create(ctx, &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: apiv1.AttachmentName(v.Name, d.Name), Finalizers: []string{apiv1.Finalizer}},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: d.Name, Role: role, Epoch: epoch},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create attachment anew: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("attachment was lost", "volume", v.Name, "node", d.Name, "role", role, "reason", plan.ReasonAttachmentLost)
	return nil
}

// SetUp adds the reconciler to a manager. namespace is that of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	toNode := func(name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("azdrivernode").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(specChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return toNode(o.GetName())
		}), builder.WithPredicates(deletions())).
		Watches(&apiv1.AzVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
				return toNode(a.Spec.NodeName)
			}
			return nil
		}), builder.WithPredicates(deletions())).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of nodes: %w", err)
	}
	return nil
}

// specChanged leaves out the heartbeats.
func specChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*apiv1.AzDriverNode)
		after, isNode := e.ObjectNew.(*apiv1.AzDriverNode)
		return ok && isNode && before.Spec != after.Spec
	}}
}

func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
