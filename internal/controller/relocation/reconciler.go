// Package relocation moves pods before Azure services their node's VM, if the policy of the kind of
// maintenance is move: it evicts the pods with replicated volumes through the Eviction API, which
// respects PodDisruptionBudgets. It cordons and drains nothing.
//
// maintenance.Evict decides. Nothing is kept in memory: the pods of a node are looked at until the
// maintenance has ended.
package relocation

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=pods;nodes;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumes;azvolumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// ReasonMoved of the event on a pod that is evicted.
const ReasonMoved = "MovedBeforeMaintenance"

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
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
}

// New makes a Reconciler.
func New(options Options) (*Reconciler, error) {
	r := &Reconciler{Options: options, evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "azuredisk_maintenance_evictions_total",
		Help: "Evictions of pods before maintenance of their nodes, by result: evicted, refused (by a PodDisruptionBudget) or failed.",
	}, []string{"result"})}
	return r, drivermetrics.Register(options.Metrics, "relocation", r.evictions)
}

// Reconcile evicts the pods of one node that have to move now.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d, err := cluster.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
	if err != nil || d == nil || !cluster.Disturbed(d) {
		return reconcile.Result{}, err // the pods would be steered back
	}
	node, err := cluster.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || node == nil {
		return reconcile.Result{}, err
	}
	event := r.Policies.Next(maintenance.Announced(d, node))
	if event == nil || r.Policies.Of(event.Kind) != maintenance.Move {
		return reconcile.Result{}, nil
	}
	pods, err := cluster.PodsOn(ctx, r.Client, d.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Pods that come, and replicas that are attached, are seen at the next look.
	after, faults := maintenance.MoveAgain, []error{}
	for _, p := range pods {
		pod, err := r.see(ctx, d, p)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		evict, in := r.Policies.Evict(event, pod, r.Clock.Now())
		if after = operation.Sooner(after, in); evict {
			faults = append(faults, r.evict(ctx, pod.Pod, event))
		}
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(faults...)
}

// see finds out whether a pod has replicated volumes, and where their replicas are.
func (r *Reconciler) see(ctx context.Context, d *apiv1.AzDriverNode, pod *corev1.Pod) (maintenance.Pod, error) {
	seen := maintenance.Pod{Pod: pod, Warm: true}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		claim, err := cluster.Find[corev1.PersistentVolumeClaim](ctx, r.Client, key, client.UnsafeDisableDeepCopy)
		if err != nil || claim == nil || claim.Spec.VolumeName == "" {
			return seen, err
		}
		pv, err := cluster.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName},
			client.UnsafeDisableDeepCopy)
		if err != nil || pv == nil {
			return seen, err
		}
		key = client.ObjectKey{Namespace: d.Namespace, Name: cluster.VolumeOf(pv, r.DriverName)}
		if key.Name == "" {
			continue
		}
		volume, err := cluster.Find[apiv1.AzVolume](ctx, r.Client, key, client.UnsafeDisableDeepCopy)
		if err != nil {
			return seen, err
		}
		if volume == nil || volume.WantedReplicas() == 0 {
			continue
		}
		warm, err := r.warm(ctx, d, volume)
		if err != nil {
			return seen, err
		}
		seen.Replicated, seen.Warm = true, seen.Warm && warm
	}
	return seen, nil
}

// warm reports whether a volume is attached to another node that stays.
func (r *Reconciler) warm(ctx context.Context, d *apiv1.AzDriverNode, volume *apiv1.AzVolume) (bool, error) {
	attachments, err := cluster.Attachments(ctx, r.Client, volume.Namespace, cluster.AttachmentVolume, volume.Name)
	if err != nil {
		return false, err
	}
	for _, a := range attachments {
		if a.Spec.NodeName == d.Name || a.DeletionTimestamp != nil || a.Status.State != apiv1.AttachmentAttached {
			continue
		}
		other, err := cluster.Find[apiv1.AzDriverNode](ctx, r.Client,
			client.ObjectKey{Namespace: d.Namespace, Name: a.Spec.NodeName}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, err
		}
		if other != nil && !cluster.Disturbed(other) {
			return true, nil
		}
	}
	return false, nil
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
			ReasonMoved, "event", event.EventID)
		r.Events.Eventf(pod, nil, corev1.EventTypeNormal, ReasonMoved, "EvictPod", "%s", maintenance.Describe(event))
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
			return []any{d.Status.Maintenance, cluster.Disturbed(d)}
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of relocations: %w", err)
	}
	return nil
}
