// Package startuptaint removes the taint with which clusters keep pods off a new node until its
// storage works: <driver>/agent-not-ready, with any effect. The component that creates nodes sets
// it (the template of a node pool or of an autoscaler); the controller removes it once the node's
// plug-in is registered with the kubelet of this Node. The node plug-in cannot remove it: it may
// not write Nodes (law 7).
//
// The leader runs it. It keeps nothing in memory: a tainted Node is reconciled again whenever its
// AzDriverNode or CSINode changes.
package startuptaint

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch

// key returns the key of the taint; for the default driver name it is the V1 driver's.
func key(driverName string) string { return driverName + "/agent-not-ready" }

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	Events events.EventRecorder
	// DriverName makes the taint's key.
	DriverName string
	// Workers is how many nodes are reconciled at once.
	Workers int
}

// Reconciler removes the taint.
type Reconciler struct {
	Options
	namespace string
}

// New makes a Reconciler.
func New(options Options) *Reconciler { return &Reconciler{Options: options} }

// Reconcile removes the taint from one Node, if it has it and its plug-in is ready.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cached := &corev1.Node{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: request.Name}, cached); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !r.tainted(cached) {
		return reconcile.Result{}, nil
	}
	if waits, err := r.waitsFor(ctx, cached); err != nil || waits != "" {
		ctrl.LoggerFrom(ctx).V(1).Info("the start-up taint remains", "node", cached.Name, "reason", waits)
		return reconcile.Result{}, err
	}
	// A patch of a list replaces it, so it needs the current list, and fails if the list changes
	// before the patch.
	node := &corev1.Node{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(cached), node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if node.UID != cached.UID || !r.tainted(node) {
		return reconcile.Result{}, nil
	}
	before := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, r.ours)
	err := kube.Patch(ctx, r.Client, node, before)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		// It is refused until a person changes the rules. Nothing else shows it on the Node.
		r.Events.Eventf(node, nil, corev1.EventTypeWarning, apiv1.ReasonWriteRefused, "RemoveTaint",
			"driver %s is ready, but the cluster refuses to remove the taint %s, which keeps pods off: %s", r.DriverName,
			key(r.DriverName), err)
		return reconcile.Result{}, fmt.Errorf("remove start-up taint: %w", err)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("remove start-up taint: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("removed the start-up taint", "node", node.Name, "taint", key(r.DriverName))
	r.Events.Eventf(node, nil, corev1.EventTypeNormal, apiv1.ReasonStartupTaintRemoved, "RemoveTaint",
		"driver %s is ready: removed the taint %s",
		r.DriverName, key(r.DriverName))
	return reconcile.Result{}, nil
}

func (r *Reconciler) ours(taint corev1.Taint) bool { return taint.Key == key(r.DriverName) }

func (r *Reconciler) tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, r.ours)
}

// waitsFor returns what is missing until a node's driver is ready; "" for nothing. A machine that
// was re-created under an old name may still have the AzDriverNode of the old one, so the CSINode,
// which belongs to the Node, must list the driver too, with the number of volumes that the
// scheduler counts to.
func (r *Reconciler) waitsFor(ctx context.Context, node *corev1.Node) (string, error) {
	csiNode := &storagev1.CSINode{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: node.Name}, csiNode); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get CSINode: %w", err)
	}
	for _, owner := range csiNode.OwnerReferences {
		if owner.Kind == "Node" && owner.UID != node.UID {
			return "the CSINode belongs to an earlier Node of that name", nil
		}
	}
	listed := slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == r.DriverName && d.Allocatable != nil && d.Allocatable.Count != nil
	})
	if !listed {
		return "the kubelet has not registered the driver yet", nil
	}
	d := &apiv1.AzDriverNode{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: node.Name}, d); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get AzDriverNode: %w", err)
	}
	if !meta.IsStatusConditionTrue(d.Status.Conditions, apiv1.NodeConditionPluginReady) {
		return "the node plug-in has not reported that it is ready", nil
	}
	return "", nil
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	r.namespace = namespace
	sameName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetName()}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("startuptaint").
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			node, ok := o.(*corev1.Node)
			return ok && r.tainted(node)
		}))).
		Watches(&storagev1.CSINode{}, sameName).
		Watches(&apiv1.AzDriverNode{}, sameName, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			return meta.IsStatusConditionTrue(d.Status.Conditions, apiv1.NodeConditionPluginReady)
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of start-up taints: %w", err)
	}
	return nil
}
