// Package drivernode reconciles AzDriverNodes: it fills in how many disks a VM can have and how
// many of its slots are used from outside the driver, deletes the object of a node that does not
// exist, and finds attachments at Azure whose objects were lost, and objects whose attachments
// were. It reads from Azure every few minutes, and sooner when an attachment finds no slot.
package drivernode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes;persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// cloudTimeout limits the reads of the platform; they are single requests.
const cloudTimeout = 30 * time.Second

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	Cloud  provisioner.Cloud
	// FirstConditions returns the conditions that are missing in the status of a new node. They are
	// written with its capacity.
	FirstConditions func(*apiv1.AzDriverNode) []metav1.Condition
	// Events records events about Nodes whose VM is not known; nil records none.
	Events events.EventRecorder
	// Clock paces the looks at Azure; nil for the real one.
	Clock clock.PassiveClock
	// Workers is how many nodes are reconciled at once.
	Workers int
}

// Reconciler reconciles AzDriverNodes.
type Reconciler struct {
	Options
	// mu guards looked, which has the last question of this process to Azure about the disks of
	// each node's VM. It only saves repetition.
	mu     sync.Mutex
	looked map[types.NamespacedName]looked
	survey survey
}

type looked struct {
	vmID string
	at   time.Time
}

// New makes a Reconciler.
func New(options Options) *Reconciler {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: options, looked: map[types.NamespacedName]looked{}}
}

// Reconcile takes the next step of one node.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName)
	if err != nil || d == nil || d.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	node, err := r.nodeOf(ctx, d.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if node == nil {
		return reconcile.Result{}, r.remove(ctx, d)
	}
	if err := r.withdraw(ctx, d); err != nil {
		return reconcile.Result{}, err
	}
	identity, err := cluster.IdentityOf(ctx, r.Client, node, d)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err = r.tellIdentity(ctx, d, identity); err == nil {
		err = r.tellOptOut(ctx, d, node)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil // a heartbeat came first
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if identity.VMID == "" {
		return reconcile.Result{RequeueAfter: lookAgain}, nil // what Azure says about that VM does not concern this node
	}
	// Disks that cannot be counted must not keep the VM's size from the node, which waits for it to
	// register.
	outside, next, err := r.look(ctx, d)
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	if err := errors.Join(err, r.fillCapacity(ctx, d, identity, outside)); err != nil {
		r.forget(client.ObjectKeyFromObject(d)) // a count that was not written does not count
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// forget makes the next reconciliation read the disks of a node's VM alone, however recent the last
// read is.
func (r *Reconciler) forget(node types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.looked, node)
	delete(r.survey.answers, node)
	if r.survey.running {
		r.survey.stale[node] = true
	}
}

// nodeOf returns the Node, nil if it does not exist. It reads from the API server, because a cache
// may not know a new Node yet. The Node may share memory with the cache and must not be changed.
func (r *Reconciler) nodeOf(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: name}, client.UnsafeDisableDeepCopy)
	if err != nil || node != nil {
		return node, err
	}
	return kube.Find[corev1.Node](ctx, r.Reader, client.ObjectKey{Name: name})
}

// remove deletes the AzDriverNode of a node that does not exist, once nothing is attached there any
// more: until then it says which VM to ask for the proof of release.
func (r *Reconciler) remove(ctx context.Context, d *apiv1.AzDriverNode) error {
	here, _, err := r.attachments(ctx, d.Namespace, d.Name)
	if err != nil || len(here) > 0 {
		return err
	}
	err = kube.Delete(ctx, r.Client, d)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete AzDriverNode: %w", err)
	}
	r.forget(client.ObjectKeyFromObject(d))
	ctrl.LoggerFrom(ctx).Info("node does not exist any more", "node", d.Name, "reason", apiv1.ReasonNodeGone)
	return nil
}

// fillCapacity writes the number of the VM's slots, if it has changed. outside is nil if the disks
// were not counted.
func (r *Reconciler) fillCapacity(ctx context.Context, d *apiv1.AzDriverNode, identity identity.Identity, outside *int32) error {
	if d.Spec.VMSize == "" {
		return nil
	}
	var capacity apiv1.NodeCapacity
	if d.Status.Capacity != nil {
		capacity = *d.Status.Capacity
	}
	limits, err := r.Cloud.SKUs().VM(ctx, identity.Location, d.Spec.VMSize)
	news := capacity.VMSize != d.Spec.VMSize
	switch {
	case err == nil || (news && errors.Is(err, provisioner.NotFound)):
		// If Azure does not list the size, the node uses its fallback, and Azure decides on each
		// attach. For a size that it does not list any more, the last known capacity remains.
		capacity.MaxDataDisks, capacity.VMSize = limits.MaxDataDisks, d.Spec.VMSize
		capacity.LacksPremium, capacity.LacksUltra = lacks(limits, identity.Zone)
		capacity.UncachedIOPS, capacity.UncachedBytesPerSecond = limits.UncachedIOPS, limits.UncachedBytesPerSecond
	case news:
		return fmt.Errorf("look up VM size %s: %w", d.Spec.VMSize, err)
	}
	if outside != nil {
		capacity.ForeignDisks = *outside
	}
	if d.Status.Capacity != nil && *d.Status.Capacity == capacity {
		return nil
	}
	if err := r.writeCapacity(ctx, d, capacity); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write capacity: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("capacity of node", "node", d.Name, "vmSize", capacity.VMSize, "maxDataDisks",
		capacity.MaxDataDisks, "foreignDisks", capacity.ForeignDisks)
	return nil
}

// writeCapacity writes the capacity, and the first conditions of a new node, whose VM is known. If another
// writer of conditions comes first, it writes the capacity alone; the reconciliation that follows it writes
// VMKnown.
func (r *Reconciler) writeCapacity(ctx context.Context, d *apiv1.AzDriverNode, capacity apiv1.NodeCapacity) error {
	changed := d.DeepCopy()
	changed.Status.Capacity = &capacity
	if d.Status.Capacity == nil && r.FirstConditions != nil {
		all := changed.DeepCopy()
		meta.SetStatusCondition(&all.Status.Conditions, r.vmKnown())
		if meta.FindStatusCondition(all.Status.Conditions, apiv1.NodeConditionFailoverEnabled) == nil {
			meta.SetStatusCondition(&all.Status.Conditions, r.failoverEnabled())
		}
		for _, c := range r.FirstConditions(all) {
			meta.SetStatusCondition(&all.Status.Conditions, c)
		}
		if err := kube.PatchStatus(ctx, r.Client, all, d); !apierrors.IsConflict(err) {
			return err
		}
	}
	return r.Client.Status().Patch(ctx, changed, client.MergeFrom(d))
}

// lacks returns the SKUs of disks that a VM in a zone cannot have. They are not known for a size
// that Azure does not list.
func lacks(limits provisioner.VMLimits, zone string) (premium, ultra bool) {
	if limits.MaxDataDisks == 0 {
		return false, false
	}
	if zone == "" {
		return !limits.PremiumIO, !limits.UltraRegional
	}
	return !limits.PremiumIO, !slices.Contains(limits.UltraZones, zone)
}

// retries paces the repetitions of a reconciliation that failed. This reconciler asks Azure itself,
// and what Azure has refused, or cannot answer, rarely changes within milliseconds.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](operation.FirstRetry, operation.LastRetry)
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	toNode := func(name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("azdrivernode").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			vm := d.Spec
			vm.Requests = nil // a request for a heartbeat changes nothing here
			return []any{vm, d.FenceRequests(), d.Status.Capacity == nil}
		}))).
		Watches(&apiv1.AzDriverNode{}, handler.EnqueueRequestsFromMapFunc(r.rivals),
			builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any { return d.Spec.VMID }))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return toNode(o.GetName())
		}), builder.WithPredicates(cluster.Changed(func(n *corev1.Node) any {
			return [2]string{n.Spec.ProviderID, annotation.Failover.Switched(n.Annotations)}
		}))).
		Watches(&apiv1.AzVolumeAttachment{},
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
				if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
					return toNode(a.Spec.NodeName)
				}
				return nil
			}), builder.WithPredicates(r.goneOrWithoutRoom())).
		Watches(&apiv1.AzVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.asked), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Watches(&apiv1.AzVolume{}, handler.EnqueueRequestsFromMapFunc(r.unrecorded), builder.WithPredicates(readAgain)).
		WatchesRawSource(source.Func(func(_ context.Context,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.survey.queue = queue
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers, RateLimiter: retries()}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of nodes: %w", err)
	}
	return nil
}

// goneOrWithoutRoom passes attachments that are deleted, and attachments that Azure, or the count
// of slots, has just refused. If an attachment was deleted by force, its VM is read at once: its
// disk is still attached.
func (r *Reconciler) goneOrWithoutRoom() predicate.Predicate {
	return predicate.Funcs{
		DeleteFunc: func(e event.DeleteEvent) bool {
			a, ok := e.Object.(*apiv1.AzVolumeAttachment)
			if ok && a.Status.VMID != "" && a.Status.State != apiv1.AttachmentDetaching {
				r.forget(client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.NodeName})
			}
			return ok
		},
		CreateFunc: func(e event.CreateEvent) bool {
			a, ok := e.Object.(*apiv1.AzVolumeAttachment)
			return ok && !noRoomAt(a).IsZero()
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*apiv1.AzVolumeAttachment)
			after, isAttachment := e.ObjectNew.(*apiv1.AzVolumeAttachment)
			return ok && isAttachment && noRoomAt(after).After(noRoomAt(before))
		},
	}
}
