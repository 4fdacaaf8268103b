// Package volume reconciles AzVolumes: it creates, grows and deletes their disks, keeps as many
// replicas as there should be, completes interrupted hand-overs, and cleans up.
//
// What to do is decided in package plan. Azure is called in jobs beside the reconciler, never by
// it.
package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

const (
	// firstPlaceRetry and lastPlaceRetry limit how often a place is searched while there is none.
	firstPlaceRetry, lastPlaceRetry = 15 * time.Second, 2 * time.Minute
	// defaultDrainGrace is for Options that set none.
	defaultDrainGrace = time.Minute
)

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	Cloud  provisioner.Cloud
	Jobs   *work.Runner
	Nodes  *cluster.Nodes
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// DriverName is the CSI driver's, by which its PersistentVolumes are known.
	DriverName string
	// CleanUpDelay is how long after its release a volume keeps its replicas.
	CleanUpDelay time.Duration
	// DrainGrace is how long the pods may be kept off a node before its replicas are replaced; see
	// placement.Closed. 0 for a minute.
	DrainGrace time.Duration
	// ReservedSlots of each node are kept free for primaries.
	ReservedSlots int32
	// NodeLabel is the key of the label by which nodes may have replicas; "" for all nodes.
	NodeLabel string
	// Workers is how many volumes are reconciled at once.
	Workers int
	// Metrics is where replicas are counted.
	Metrics prometheus.Registerer
	// Leading is closed when this process leads; nil if it always does. Standbys do not serve the gauges.
	Leading <-chan struct{}
}

// Reconciler reconciles AzVolumes.
type Reconciler struct {
	Options
	metrics *metrics
	claims  *claims
	closed  closedNodes
}

// New makes a Reconciler.
func New(options Options) (*Reconciler, error) {
	m, err := newMetrics(options.Metrics, options.Leading)
	if err != nil {
		return nil, err
	}
	if options.DrainGrace == 0 {
		options.DrainGrace = defaultDrainGrace
	}
	return &Reconciler{Options: options, metrics: m, claims: newClaims()}, nil
}

// observed is a volume and what belongs to it. The objects are the cache's own, and only to be
// read.
type observed struct {
	volume      *apiv1.AzVolume
	attachments []*apiv1.AzVolumeAttachment
	pv          *corev1.PersistentVolume
	job         operation.Job
	now         time.Time
}

// Reconcile takes the next step of one volume.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if v == nil {
		r.Jobs.Forget(request.NamespacedName)
		r.metrics.forget(request.Name)
		r.claims.forget(request.Name)
		r.closed.see(request.Name, nil, r.Clock.Now())
		return reconcile.Result{}, nil
	}
	o, err := r.observe(ctx, v)
	if err != nil {
		return reconcile.Result{}, err
	}
	after, err := r.step(ctx, o)
	if err == nil {
		var again time.Duration
		again, err = r.tellClaim(ctx, o)
		after = operation.Sooner(after, again)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The cache was behind. The next reconciliation decides from the newer state.
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	}
	return reconcile.Result{RequeueAfter: after}, err
}

func (r *Reconciler) observe(ctx context.Context, v *apiv1.AzVolume) (observed, error) {
	o := observed{
		volume: v,
		job:    r.Jobs.Job(v),
		now:    r.Clock.Now(),
	}
	var err error
	if o.attachments, err = cluster.Attachments(ctx, r.Client, v.Namespace, cluster.AttachmentVolume, v.Name); err != nil {
		return o, err
	}
	o.pv, err = cluster.PersistentVolume(ctx, r.Client, v)
	return o, err
}

func (r *Reconciler) step(ctx context.Context, o observed) (time.Duration, error) {
	step := disk.Next(disk.Input{
		Now:              o.now,
		Volume:           o.volume,
		HasFinalizer:     controllerutil.ContainsFinalizer(o.volume, apiv1.FinalizerVolume),
		Attachments:      o.attachments,
		PersistentVolume: o.pv,
		Job:              o.job,
	})
	if givesUp(o.volume, step) {
		if err := r.unneeded(ctx, o.volume); err != nil {
			return 0, err
		}
	}
	if step.AddFinalizer || step.RemoveFinalizer {
		return 0, r.setFinalizer(ctx, o.volume, step)
	}
	replicas, err := r.planReplicas(ctx, o)
	if err != nil {
		return 0, err
	}
	found, err := r.record(ctx, o, &step)
	if err != nil {
		return 0, err
	}
	replicas.status(o, &step.Status)
	step.Status.Size = quantity(step.Status.SizeBytes)
	written, err := r.writeStatus(ctx, o, step)
	if err != nil {
		return 0, err
	}
	r.tell(ctx, o, found)
	if !written && o.job.Phase == operation.PhaseEnded {
		r.Jobs.Forget(client.ObjectKeyFromObject(o.volume))
		// What was asked for while the job ran has not been looked at, and no event will say so
		// again.
		step.RequeueAfter = operation.Sooner(step.RequeueAfter, operation.ConflictRetry)
	}
	if step.Spec != nil {
		return step.RequeueAfter, r.writeSpec(ctx, o.volume, *step.Spec)
	}
	if step.Forget {
		return step.RequeueAfter, r.forget(ctx, o.volume, step.Message)
	}
	if step.Start != operation.WorkNone {
		if err := r.start(ctx, o.volume, step, written); err != nil {
			return 0, err
		}
	}
	if step.DetachAll != "" {
		if !written {
			if err := r.unchanged(ctx, o.volume); err != nil {
				return 0, err
			}
		}
		return step.RequeueAfter, r.detachAll(ctx, o, step.DetachAll)
	}
	after, err := r.actOnReplicas(ctx, o, replicas)
	return operation.Sooner(step.RequeueAfter, after), err
}

// quantity returns a size as users write it; nil for 0.
func quantity(sizeBytes int64) *resource.Quantity {
	if sizeBytes == 0 {
		return nil
	}
	return resource.NewQuantity(sizeBytes, resource.BinarySI)
}

// findings are what the reports of nodes say of a volume and its status did not.
type findings struct {
	// notReserved is as in disk.NotReserved.
	notReserved string
	loss        *disk.Loss
	problem     *disk.Problem
}

// tell writes the events about findings that were recorded.
func (r *Reconciler) tell(ctx context.Context, o observed, found findings) {
	if found.notReserved != "" {
		r.event(o.volume, true, apiv1.ReasonDiskNotReserved, found.notReserved)
	}
	if found.loss != nil {
		r.tellLoss(ctx, o, *found.loss)
	}
	if found.problem != nil {
		r.tellProblem(ctx, o, *found.problem)
	}
}

// record records what the reports of nodes say of the volume.
func (r *Reconciler) record(ctx context.Context, o observed, step *disk.Step) (found findings, err error) {
	loss, after, err := r.lostWrites(ctx, o, &step.Status)
	if err != nil {
		return found, err
	}
	found.loss, step.RequeueAfter = loss, operation.Sooner(step.RequeueAfter, after)
	if found.problem, err = r.usable(ctx, o, &step.Status); err != nil {
		return found, err
	}
	found.notReserved, err = r.recordUse(ctx, o, step)
	return found, err
}

// recordUse records the filesystem that the primary's node reports, how that node is fenced, and that
// the node uses the disk. It returns the message of an event; see disk.NotReserved.
func (r *Reconciler) recordUse(ctx context.Context, o observed, step *disk.Step) (notReserved string, err error) {
	primary := o.volume.Status.Primary
	if primary == nil || primary.NodeName == "" {
		return "", nil
	}
	report, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client, client.ObjectKey{
		Namespace: o.volume.Namespace,
		Name:      primary.NodeName,
	}, client.UnsafeDisableDeepCopy)
	if err != nil || report == nil {
		return "", err
	}
	if found := disk.FilesystemRecord(o.volume, report); found != nil {
		step.Status.Filesystem = found
	}
	step.Status.Fencing = disk.Fencing(o.volume, report)
	step.Status.ConfirmedUID = disk.ConfirmedUID(o.volume, o.attachments, report)
	return disk.NotReserved(o.volume, report), nil
}

// start starts the job of a step. If the status did not have to be written, which would have shown
// a change, the object is read again first: a step derived from an old copy must not reach Azure.
func (r *Reconciler) start(ctx context.Context, v *apiv1.AzVolume, step disk.Step, written bool) error {
	if !written {
		if err := r.unchanged(ctx, v); err != nil {
			return err
		}
	}
	disks := diskWork{
		cloud:  r.Cloud,
		reader: r.Reader,
		cache:  r.Client,
	}
	switch step.Start {
	case operation.WorkCreateDisk:
		r.Jobs.Start(v, step.Start, step.Status.Operation, disks.create(v, step.Resume))
	case operation.WorkAdoptDisk:
		r.Jobs.Start(v, step.Start, step.Status.Operation, disks.adopt(v))
	case operation.WorkUpdateDisk:
		r.Jobs.Start(v, step.Start, step.Status.Operation, disks.update(v, step.Resume, step.Uncertain))
	case operation.WorkReadDisk:
		r.Jobs.Start(v, step.Start, step.Status.Operation, disks.look(v))
	case operation.WorkDeleteDisk:
		r.Jobs.Start(v, step.Start, step.Status.Operation, disks.remove(v, step.Resume))
	default:
		return fmt.Errorf("no such work for a volume: %s", step.Start)
	}
	return nil
}

// unchanged returns a conflict if the volume has changed since the cache read it. The attachments
// in the cache may be newer than the volume: one of them may belong to an ownership that the cached
// volume does not show yet.
func (r *Reconciler) unchanged(ctx context.Context, v *apiv1.AzVolume) error {
	current := &apiv1.AzVolume{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(v), current); err != nil {
		return fmt.Errorf("read volume again: %w", err)
	}
	if current.ResourceVersion != v.ResourceVersion {
		return conflict(v, "it changed")
	}
	return nil
}
