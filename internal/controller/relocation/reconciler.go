// Package relocation moves pods before Azure services their node's VM, if the policy of the kind of
// maintenance is move: it evicts the pods with replicated volumes through the Eviction API, which
// respects PodDisruptionBudgets. It cordons and drains nothing.
//
// maintenance.Evict decides. The pods of a node are looked at until the maintenance has ended. When an
// event was seen first is kept in memory. A process that starts takes the time of the condition
// Undisturbed instead, so that it evicts no pod again that came after that.
package relocation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

const (
	// evictionsPerSecond and evictionsAtOnce are the pace for the cluster. All pods of a spot pool
	// leave within the 30 s of notice if they are fewer than about 300.
	evictionsPerSecond, evictionsAtOnce = 10, 20
	// paceRetry is when an eviction is tried again that the pace did not allow.
	paceRetry = 500 * time.Millisecond
)

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache.
	Client client.Client
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

// Reconciler evicts pods.
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
		Help: "Evictions of pods before maintenance of their nodes, by result: evicted, refused (by a PodDisruptionBudget) or failed.",
	}, []string{"result"})
	r.pace = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(evictionsPerSecond, evictionsAtOnce, options.Clock)
	return r, drivermetrics.Register(options.Metrics, "relocation", r.evictions)
}

// Reconcile evicts the pods of one node that have to move now.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
	if err == nil && (d == nil || !cluster.Disturbed(d)) { // the pods would be steered back
		r.forget(request.Name)
	}
	if err != nil || d == nil || !cluster.Disturbed(d) {
		return reconcile.Result{}, err
	}
	node, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || node == nil {
		return reconcile.Result{}, err
	}
	announced := r.announced(d, maintenance.Announced(d, node))
	moves := func(a maintenance.Announcement) bool { return r.Policies.Of(a.Kind) == maintenance.Move }
	if !slices.ContainsFunc(announced, moves) {
		return reconcile.Result{}, nil
	}
	pods, err := cluster.PodsOn(ctx, r.Client, d.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := r.Nodes.Views(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the nodes that pods can go to: %w", err)
	}
	// Pods that come, and replicas that are attached, are seen at the next look.
	after, faults := maintenance.MoveAgain, []error{}
	for _, p := range pods {
		pod, err := r.see(ctx, d.Namespace, p, nodes)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		because, in := r.Policies.Evict(announced, pod, r.Clock.Now())
		switch after = operation.Sooner(after, in); {
		case because == nil:
		case r.pace.TryAccept():
			faults = append(faults, r.evict(ctx, pod.Pod, because))
		default:
			after = operation.Sooner(after, paceRetry)
		}
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(faults...)
}

// announced returns the events of a node with the time at which each was seen first. Those that this
// process finds at its first look may have been seen by an earlier one.
func (r *Reconciler) announced(d *apiv1.AzDriverNode, events []apiv1.MaintenanceEvent) []maintenance.Announcement {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, looked := r.seen[d.Name]
	seen := make(map[string]time.Time, len(events))
	announced := make([]maintenance.Announcement, 0, len(events))
	for i, e := range events {
		at, known := before[e.EventID]
		if !known {
			at = r.Clock.Now()
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed); !looked && c != nil {
			at = c.LastTransitionTime.Time
		}
		seen[e.EventID] = at
		announced = append(announced, maintenance.Announcement{MaintenanceEvent: &events[i], Seen: at})
	}
	r.seen[d.Name] = seen
	return announced
}

func (r *Reconciler) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, node)
}

// see finds out whether a pod has replicated volumes, where it could go, and whether its replicas are
// there.
func (r *Reconciler) see(ctx context.Context, namespace string, pod *corev1.Pod,
	nodes []placement.NodeView) (maintenance.Pod, error) {
	seen := maintenance.Pod{Pod: pod, Warm: true}
	view, err := cluster.PodView(ctx, r.Client, r.DriverName, pod, "")
	if err != nil {
		return seen, err
	}
	var volumes, replicated []*apiv1.AzVolume
	for _, name := range view.Volumes {
		volume, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: namespace, Name: name},
			client.UnsafeDisableDeepCopy)
		switch {
		case err != nil:
			return seen, err
		case volume == nil:
			continue
		case volume.WantedReplicas() > 0:
			replicated = append(replicated, volume)
		}
		volumes = append(volumes, volume)
	}
	if seen.Replicated = len(replicated) > 0; !seen.Replicated {
		return seen, nil
	}
	around, err := cluster.Surroundings(ctx, r.Client, []*corev1.Pod{pod})
	if err != nil {
		return seen, fmt.Errorf("read the surroundings of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	homes := placement.Homes(view, volumes, nodes, around)
	homes = slices.DeleteFunc(homes, func(node string) bool { return node == pod.Spec.NodeName })
	seen.Homeless = len(homes) == 0
	for _, v := range replicated {
		warm, err := r.warm(ctx, v, homes)
		if err != nil {
			return seen, err
		}
		seen.Warm = seen.Warm && warm
	}
	return seen, nil
}

// warm reports whether a volume is attached to one of the nodes.
func (r *Reconciler) warm(ctx context.Context, volume *apiv1.AzVolume, nodes []string) (bool, error) {
	attachments, err := cluster.Attachments(ctx, r.Client, volume.Namespace, cluster.AttachmentVolume, volume.Name)
	return slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return slices.Contains(nodes, a.Spec.NodeName) && a.DeletionTimestamp == nil && a.Status.State == apiv1.AttachmentAttached
	}), err
}

// evict asks Kubernetes to evict a pod. A PodDisruptionBudget that does not allow it is asked again
// at the next look.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod, event *apiv1.MaintenanceEvent) error {
	err := r.Client.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	switch {
	case err == nil:
		r.evictions.WithLabelValues("evicted").Inc()
		ctrl.LoggerFrom(ctx).Info("pod evicted", "pod", client.ObjectKeyFromObject(pod), "node", pod.Spec.NodeName, "reason",
			apiv1.ReasonMovedBeforeMaintenance, "event", event.EventID)
		r.Events.Eventf(pod, nil, corev1.EventTypeNormal, apiv1.ReasonMovedBeforeMaintenance, "EvictPod", "%s", maintenance.Describe(event))
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone, or another pod has its name
	case apierrors.IsTooManyRequests(err):
		r.evictions.WithLabelValues("refused").Inc()
		return nil
	}
	r.evictions.WithLabelValues("failed").Inc()
	return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// SetUp adds the reconciler to a manager. A namespace is not needed: the requests name the
// AzDriverNodes.
func (r *Reconciler) SetUp(mgr ctrl.Manager, _ string) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("relocation").
		For(&apiv1.AzDriverNode{}, builder.WithPredicates(cluster.Changed(func(d *apiv1.AzDriverNode) any {
			return []any{d.Status.Maintenance, meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)}
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of relocations: %w", err)
	}
	return nil
}
