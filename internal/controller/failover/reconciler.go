// Package failover fences lost nodes from their volumes and informs Kubernetes: it decides to
// fence, waits for the proof that the attachment reconciler gets from Azure, deletes the pods that
// used the volumes, and removes the volumes from the Node's status.volumesInUse. Then Kubernetes
// itself unpublishes them, and publishes them where the new pods are.
//
// lostnode.Next decides what to do. Every decision is recorded before it has an effect, and any
// process carries out what was decided, in any later state of the node. The memory of the process
// serves metrics, and prevents repetition.
package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

const (
	// lookAgain is how often a node is reconciled whose failover is not over. Everything that
	// matters causes an event as well, except changes of PersistentVolumeClaims.
	lookAgain = 5 * time.Second
	// listenAgain is how often a new process checks whether it has received a heartbeat of a node
	// that has taints to remove: heartbeats cause no events here.
	listenAgain = time.Second
	// atOnce is how many volumes or pods of one node are written at once.
	atOnce = 32
)

// Monitor knows the health of the nodes.
type Monitor interface {
	// Health of a node at the moment. A node that it does not know is not Lost.
	Health(node string) nodehealth.Judgement
	// Subscribe returns a source of requests for the nodes whose health changed.
	Subscribe() source.Source
	// RequestHeartbeat has a heartbeat requested from a node, if the node answers requests. It
	// returns at once.
	RequestHeartbeat(node string)
}

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client  client.Client
	Reader  client.Reader
	Monitor Monitor
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// DriverName is the CSI driver's, by which Kubernetes names its volumes.
	DriverName string
	// OwnNamespace is the namespace of the driver's pods.
	OwnNamespace string
	// OutOfServiceTaint allows the taint of that name on Nodes whose VM is proved down.
	OutOfServiceTaint bool
	// Workers is how many nodes are reconciled at once.
	Workers int
	// Metrics is where the failovers are counted.
	Metrics prometheus.Registerer
}

// Reconciler fails over the volumes of lost nodes.
type Reconciler struct {
	Options
	journal *journal

	mu sync.Mutex
	// watched are the nodes whose pods and volumes are followed as they change.
	watched map[string]bool
	// first is the heartbeat of each node that this process saw when it began to look, or when it
	// last found the node unresponsive.
	first map[string]time.Time
}

// New makes a Reconciler.
func New(options Options) (*Reconciler, error) {
	j, err := newJournal(options)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		Options: options,
		journal: j,
		watched: map[string]bool{},
		first:   map[string]time.Time{},
	}, nil
}

// Reconcile takes the next step of one node. The request has the name of the node and the namespace
// of the custom resources.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.watch(request.Name, true)
	o, err := r.observe(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	step := lostnode.Next(o.Input)
	r.journal.look(ctx, o, step)
	refused, err := refusals(r.act(ctx, o, step))
	r.journal.refused(ctx, o, refused)
	open := step.Active || o.Health.State != nodehealth.Healthy
	r.watch(request.Name, open)
	switch {
	case onlyConflicts(err):
		// The cache was behind. The next reconciliation decides from the newer state.
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	case o.marked() && o.Health.State == nodehealth.Healthy && !o.Heard:
		r.Monitor.RequestHeartbeat(request.Name)
		return reconcile.Result{RequeueAfter: listenAgain}, nil
	case step.Active || len(refused) > 0 || o.Health.Fence():
		return reconcile.Result{RequeueAfter: operation.Sooner(lookAgain, o.answerIn)}, nil
	}
	return reconcile.Result{RequeueAfter: o.answerIn}, nil
}

// act does all of a step. The order of the fields is the order in which the parts depend on each
// other; a failure of one volume does not stop the others. No pod is deleted before the node is
// closed to new ones, unless the cluster forbids the taint: then the extender keeps new pods away,
// and a pod that starts there nevertheless is deleted again.
func (r *Reconciler) act(ctx context.Context, o observed, step lostnode.Step) error {
	failures := []error{
		each(ctx, step.Fence, func(v lostnode.Volume) error { return r.fence(ctx, o, v) }),
		each(ctx, step.Repair, func(v lostnode.Volume) error { return r.repair(ctx, o, v) }),
	}
	if err := r.taint(ctx, o, step); err != nil {
		failures = append(failures, err)
		if _, other := refusals(err); other != nil {
			return errors.Join(failures...)
		}
	}
	proofs := newProofs(r, o)
	failures = append(failures,
		each(ctx, step.Unserve, func(pod *corev1.Pod) error { return r.unserve(ctx, o, pod) }),
		each(ctx, step.Delete, func(d lostnode.PodDeletion) error { return r.deletePod(ctx, o, d, proofs) }),
		r.prune(ctx, o, step.Prune),
		each(ctx, step.Unblocked, func(v lostnode.Volume) error { return r.unblocked(ctx, o, v) }),
	)
	return errors.Join(failures...)
}

// each calls a function for all items, several at once.
func each[T any](ctx context.Context, things []T, do func(T) error) error {
	failures := make([]error, len(things))
	workqueue.ParallelizeUntil(ctx, atOnce, len(things), func(i int) { failures[i] = do(things[i]) })
	if err := ctx.Err(); err != nil && len(things) > 0 {
		return fmt.Errorf("interrupted: %w", err)
	}
	return errors.Join(failures...)
}

// refusals separates the writes that the cluster refuses, by its access rules or an admission
// policy, from other failures. A refused write is refused again until a person changes the rules,
// so nothing else may wait for it.
func refusals(err error) (refused []error, other error) {
	var others []error
	for _, part := range parts(err) {
		if apierrors.IsForbidden(part) || apierrors.IsInvalid(part) || apierrors.IsBadRequest(part) {
			refused = append(refused, part)
		} else {
			others = append(others, part)
		}
	}
	return refused, errors.Join(others...)
}

// onlyConflicts reports whether an error consists only of writes to objects that had changed or
// were deleted.
func onlyConflicts(err error) bool {
	return err != nil && !slices.ContainsFunc(parts(err),
		func(part error) bool { return !apierrors.IsConflict(part) && !apierrors.IsNotFound(part) })
}

// parts returns the errors that were joined into one; none for nil.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return []error{err}
	}
	for _, part := range joined.Unwrap() {
		all = append(all, parts(part)...)
	}
	return all
}

func (r *Reconciler) watch(node string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.watched[node] = true
	} else {
		delete(r.watched, node)
	}
}

func (r *Reconciler) watches(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched[node]
}

// heard reports whether the node's heartbeat changed since this process began to look, and since it
// last found the node unresponsive. For a node without a heartbeat it is false.
func (r *Reconciler) heard(d *apiv1.AzDriverNode, unresponsive bool) bool {
	if d == nil || d.Status.HeartbeatTime == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, seen := r.first[d.Name]
	if !seen || unresponsive {
		r.first[d.Name] = d.Status.HeartbeatTime.Time
	}
	return seen && !first.Equal(d.Status.HeartbeatTime.Time)
}

func (r *Reconciler) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.first, node)
}

// observed is a node with its pods and volumes.
type observed struct {
	lostnode.Input
	namespace string
	// answerIn is in what time the node must have answered a request; 0 if there is none that it
	// can still answer in time.
	answerIn time.Duration
	// claims are the PersistentVolumeClaims of the volumes, by the volume's name, as references.
	claims map[string]*corev1.PersistentVolumeClaim
}

// marked reports whether there are taints on the node, or the record of one, that may have to be
// removed.
func (o observed) marked() bool {
	if o.DriverNode != nil && meta.IsStatusConditionFalse(o.DriverNode.Status.Conditions, apiv1.NodeConditionInService) {
		return true
	}
	return o.Node != nil && (lostnode.OurOutOfServiceTaint(o.Node) ||
		nodehealth.HasTaint(o.Node, apiv1.TaintNodeLost) || nodehealth.HasTaint(o.Node, apiv1.TaintNodeUnresponsive))
}
