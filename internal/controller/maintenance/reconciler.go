// Package maintenance prepares a node for maintenance that Azure has announced for its VM. It writes
// the condition Undisturbed of the AzDriverNode. If the policy of the kind of maintenance is move, it
// also evicts the pods with replicated volumes through the Eviction API, which respects
// PodDisruptionBudgets. It cordons and drains nothing.
//
// Policies.Next of plan/maintenance decides for the node, and Policies.Evict for each pod. The pods of a
// node are looked at until the maintenance has ended. When an event was seen first is kept in memory. A
// process that starts takes the time of the condition instead, so that it evicts no pod again that came
// after that.
package maintenance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=pods;nodes;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumes;azvolumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// evictionsPerSecond and evictionsAtOnce are the pace for the cluster. All pods of a spot pool leave
// within the 30 s of notice if they are fewer than about 300.
const evictionsPerSecond, evictionsAtOnce = 10, 20

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	// Events records events about Nodes with announced maintenance, and about pods that are evicted.
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Nodes are where pods can go.
	Nodes interface {
		Views(ctx context.Context) ([]placement.NodeView, error)
	}
	// Policies of the kinds of maintenance.
	Policies   maintenance.Policies
	DriverName string
	// Workers is how many nodes are reconciled at once.
	Workers int
	// Metrics registers the metrics; nil for none.
	Metrics prometheus.Registerer
}

// Reconciler publishes maintenance and evicts pods.
type Reconciler struct {
	Options
	evictions *prometheus.CounterVec
	pace      flowcontrol.PassiveRateLimiter

	mu sync.Mutex
	// seen is when each event of a node was seen first, by the node and the event's ID.
	seen map[string]map[string]time.Time
}

// New makes a Reconciler.
func New(options Options) (*Reconciler, error) {
	r := &Reconciler{Options: options, seen: map[string]map[string]time.Time{}}
	r.evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "azuredisk_maintenance_evictions_total",
		Help: "Evictions of pods before maintenance of their nodes, by result: Evicted, Refused (by a PodDisruptionBudget) or Failed.",
	}, []string{"result"})
	r.pace = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(evictionsPerSecond, evictionsAtOnce, options.Clock)
	return r, drivermetrics.Register(options.Metrics, "maintenance", r.evictions)
}

// Reconcile publishes what is announced for one node, and evicts the pods there that have to move now.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if d == nil || d.DeletionTimestamp != nil {
		r.forget(request.Name)
		return reconcile.Result{}, nil
	}
	node, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || node == nil {
		return reconcile.Result{}, err
	}
	events := maintenance.Announced(d, node)
	next := r.Policies.Next(events)
	// Before the condition is written, the pods would be steered back.
	if err := r.publish(ctx, d, next); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil // a heartbeat came first
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if next == nil {
		r.forget(d.Name)
		return reconcile.Result{}, nil
	}
	announced := r.announced(d, events)
	if r.Policies.Of(next.Type) != maintenance.Move {
		return reconcile.Result{}, nil
	}
	after, err := r.move(ctx, d, announced)
	return reconcile.Result{RequeueAfter: after}, err
}

// publish maintains the condition Undisturbed, by which the placement of replicas and the scheduler
// know that Azure has announced maintenance of the VM. next is the event that decides, nil for none.
func (r *Reconciler) publish(ctx context.Context, d *apiv1.AzDriverNode, next *apiv1.MaintenanceEvent) error {
	c := metav1.Condition{
		Type:               apiv1.NodeConditionUndisturbed,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.ReasonNoMaintenance,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if next != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonMaintenanceAnnounced, maintenance.Describe(next)
		if r.Policies.Of(next.Type) == maintenance.Move {
			c.Reason = apiv1.ReasonMaintenancePodsMove
		}
	}
	if written, err := cluster.WriteCondition(ctx, r.Client, d, c); err != nil || !written {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("maintenance of the node", "node", d.Name, "reason", c.Reason, "message", c.Message)
	if c.Status == metav1.ConditionFalse {
		r.Events.Eventf(cluster.AboutNode(d.Name), nil, corev1.EventTypeNormal, c.Reason, "PrepareMaintenance", "%s", c.Message)
	}
	return nil
}

// SetUp adds the reconciler to a manager. namespace is the namespace of the custom resources.
func (r *Reconciler) SetUp(mgr ctrl.Manager, namespace string) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("maintenance").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			return []any{d.Status.Maintenance, meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)}
		}))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: o.GetName()}}}
		}), builder.WithPredicates(cluster.Changed(func(n *corev1.Node) any { return maintenance.FromNode(n) }))).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of maintenance: %w", err)
	}
	return nil
}
