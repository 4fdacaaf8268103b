// Package attachment reconciles AzVolumeAttachments: it brings Azure's attachments to what the
// objects say, and establishes Azure's proofs that a lost node can no longer write.
//
// attaching.Next decides what to do. Azure is called in jobs beside the reconciler, never by it.
package attachment

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status;azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

const (
	// silenceRetry is how often a node is checked whose proof is awaited: its silence causes no
	// event.
	silenceRetry = 5 * time.Second
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
	// ReservedSlots of each node are kept free for primaries.
	ReservedSlots int32
	// Workers is how many attachments are reconciled at once.
	Workers int
	// Overlap is how long after this process has begun to lead a former leader may still send
	// requests; 0 without leader election.
	Overlap time.Duration
	// Metrics is where the proofs and replicas are counted.
	Metrics prometheus.Registerer
}

// Reconciler reconciles AzVolumeAttachments.
type Reconciler struct {
	Options
	disks  diskWork
	proofs *prometheus.CounterVec
	// leadingSince is set before the first reconciliation.
	leadingSince time.Time
}

// New makes a Reconciler.
func New(options Options) (*Reconciler, error) {
	proofs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "azuredisk_release_proofs_total", Help: "Proofs of release that the controller obtained from Azure.",
	}, []string{"proof"})
	r := &Reconciler{
		Options: options,
		proofs:  proofs,
		disks:   newDiskWork(options.Cloud),
	}
	return r, metrics.Register(options.Metrics, "attachments", proofs)
}

// Reconcile takes the next step of one attachment.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	a, err := kube.Find[apiv1.AzVolumeAttachment](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if a == nil {
		r.Jobs.Forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	in, err := r.observe(ctx, a)
	if err != nil {
		return reconcile.Result{}, err
	}
	step := attaching.Next(in)
	if step.Deserted {
		if err := r.readTruth(ctx, &in); err != nil {
			return reconcile.Result{}, err
		}
		step = attaching.Next(in)
	}
	result, err := r.act(ctx, in, step)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The cache was behind. The next reconciliation decides from the newer state.
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	}
	return result, err
}

func (r *Reconciler) act(ctx context.Context, in attaching.Input, step attaching.Step) (reconcile.Result, error) {
	a := in.Attachment
	switch {
	case step.AddFinalizer:
		_, err := keeper.AddFinalizer(ctx, r.Client, a, apiv1.FinalizerAttachment)
		return reconcile.Result{}, err
	case step.RemoveFinalizer:
		if err := keeper.RemoveFinalizer(ctx, r.Client, a, apiv1.FinalizerAttachment); err != nil {
			return reconcile.Result{}, err
		}
		r.say(ctx, a, step)
		return reconcile.Result{}, nil
	case step.GiveWay != "":
		if err := r.giveWay(ctx, a, step.GiveWay); err != nil {
			return reconcile.Result{}, err
		}
	}
	written, err := r.writeStatus(ctx, in, step)
	if err != nil {
		return reconcile.Result{}, err
	}
	if written && step.Deserted {
		r.tellDeserted(ctx, in, step.Message)
	}
	if !written && in.Job.Phase == operation.PhaseEnded {
		r.Jobs.Forget(client.ObjectKeyFromObject(a))
	}
	if step.Start != operation.WorkNone {
		if err := r.start(ctx, in, step, written); err != nil {
			return reconcile.Result{}, err
		}
	}
	if step.Ask != "" {
		if err := r.ask(ctx, in.Volume, a, step.Ask); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: requeue(in, step)}, nil
}

// requeue adds to the step's own time the checks of a node whose proof is awaited.
func requeue(in attaching.Input, step attaching.Step) time.Duration {
	a := in.Attachment
	awaited := (a.Spec.Role == apiv1.RolePrimary || a.DeletionTimestamp != nil) && !ownership.ProvedReleased(in.Volume, a) &&
		step.Status.Proof == a.Status.Proof &&
		(a.DeletionTimestamp != nil || (ownership.OwnedBy(in.Volume, a.Spec.NodeName) &&
			in.Volume.Status.Primary.State == apiv1.OwnershipReleasing))
	// The Runner has dropped a job that has ended, and that causes no event.
	quiet := in.Job.Phase == operation.PhaseIdle || in.Job.Phase == operation.PhaseEnded
	if (step.RequeueAfter == 0 || step.RequeueAfter > silenceRetry) && awaited && quiet {
		return silenceRetry
	}
	return step.RequeueAfter
}

// giveWay deletes a replica whose slot a primary takes (law 8), unless the replica has changed
// since.
func (r *Reconciler) giveWay(ctx context.Context, to *apiv1.AzVolumeAttachment, name string) error {
	victim := &apiv1.AzVolumeAttachment{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: to.Namespace, Name: name}, victim); err != nil {
		return fmt.Errorf("get the replica to delete for a primary: %w", err)
	}
	if victim.Spec.Role != apiv1.RoleReplica || victim.DeletionTimestamp != nil {
		return nil
	}
	if err := keeper.Delete(ctx, r.Client, victim); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("deleting a replica to free its slot", "replica", name, "reason", apiv1.ReasonReplicaGaveWay)
	r.event(victim, corev1.EventTypeNormal, apiv1.ReasonReplicaGaveWay, "its slot is needed by "+to.Name)
	return nil
}

// writeStatus writes the status if it changed, and reports whether it did.
func (r *Reconciler) writeStatus(ctx context.Context, in attaching.Input, step attaching.Step) (bool, error) {
	a := in.Attachment
	if equality.Semantic.DeepEqual(a.Status, step.Status) {
		return false, nil
	}
	proves := step.Status.Proof != nil && a.Status.Proof == nil
	if proves {
		crashpoint.At("fence-before-proof")
	}
	if _, err := keeper.WriteStatus(ctx, r.Client, a, step.Status); err != nil {
		return false, err
	}
	if op := step.Status.Operation; op != nil && op.Type == string(operation.WorkFence) {
		crashpoint.At("fence-after-token")
	}
	if proves {
		crashpoint.At("fence-after-proof")
		r.proofs.WithLabelValues(string(step.Status.Proof.Type)).Inc()
	}
	if a.Status.State != step.Status.State || step.Reason == apiv1.ReasonVolumeFenced {
		r.say(ctx, a, step)
	}
	return true, nil
}

// start starts the job of a step. If the status did not have to be written, which would have shown
// a change, the object is read again first: a step derived from an old copy must not reach Azure.
func (r *Reconciler) start(ctx context.Context, in attaching.Input, step attaching.Step, written bool) error {
	a := in.Attachment
	if !written {
		current := &apiv1.AzVolumeAttachment{}
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(a), current); err != nil {
			return fmt.Errorf("read attachment again: %w", err)
		}
		if current.ResourceVersion != a.ResourceVersion {
			return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), a.Name,
				fmt.Errorf("it changed"))
		}
	}
	if step.Start != operation.WorkAttach {
		if err := r.mayDetach(ctx, in, step); err != nil {
			return err
		}
	}
	vmID := a.Status.VMID
	if vmID == "" {
		vmID = in.VMID
	}
	diskID, err := r.diskID(ctx, in)
	if err != nil {
		return err
	}
	switch step.Start {
	case operation.WorkAttach:
		r.Jobs.Start(a, step.Start, step.Status.Operation,
			r.withCustody(in, vmID, r.disks.attach(in.Volume, vmID, step.Resume, r.otherLUNs(a))))
	case operation.WorkDetach:
		r.Jobs.Start(a, step.Start, step.Status.Operation, r.disks.detach(a.Spec.VolumeName, diskID, vmID, step.Resume))
	case operation.WorkFence:
		work := r.fence(in, diskID, vmID, step.Resume)
		if step.ReadOnly {
			work = r.disks.readVM(vmID, a.Spec.Epoch)
		}
		r.Jobs.Start(a, step.Start, step.Status.Operation, work)
	default:
		return fmt.Errorf("no such work for an attachment: %s", step.Start)
	}
	return nil
}

// mayDetach returns a conflict if the API server knows something that forbids the detach, and the
// cache does not: another attachment that names the VM, or a node for which the disk must stay
// attached. An attachment names its VM before Azure is asked to attach the disk, so no disk is
// detached that another attachment has.
func (r *Reconciler) mayDetach(ctx context.Context, in attaching.Input, step attaching.Step) error {
	a := in.Attachment
	all, err := cluster.Attachments(ctx, r.Reader, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
	if err != nil {
		return err
	}
	if other := attaching.SharedVM(in.Volume, a, in.VMID, all); other != in.SharedWith {
		return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), a.Name,
			fmt.Errorf("it names the same VM as attachment %q, not %q", other, in.SharedWith))
	}
	if step.ReadOnly || step.Resume != "" {
		return nil
	}
	guardsAgainst, err := r.guardsAgainst(ctx, r.Reader, in, all)
	if err == nil && guardsAgainst != "" {
		return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), a.Name,
			fmt.Errorf("its node keeps node %s from writing", guardsAgainst))
	}
	return err
}

// guardsAgainst returns the node for which the disk must stay attached to the attachment's node; all
// are the attachments of the volume. Only the disks of shares above 1 are reserved.
func (r *Reconciler) guardsAgainst(
	ctx context.Context, reader client.Reader, in attaching.Input, all []*apiv1.AzVolumeAttachment,
) (string, error) {
	a := in.Attachment
	if len(all) < 2 || in.Volume != nil && in.Volume.Spec.Disk.MaxShares < 2 {
		return "", nil
	}
	report, err := r.driverNode(ctx, reader, a.Namespace, a.Spec.NodeName)
	if err != nil {
		return "", err
	}
	return attaching.GuardsAgainst(in.Volume, a, all, report), nil
}

// guards reports whether a replica must not give way. If that cannot be read, the replica is kept.
func (r *Reconciler) guards(ctx context.Context, replica *apiv1.AzVolumeAttachment) bool {
	volume, err := r.volume(ctx, replica.Namespace, replica.Spec.VolumeName)
	if err != nil {
		return true
	}
	all, err := cluster.Attachments(ctx, r.Client, replica.Namespace, cluster.AttachmentVolume, replica.Spec.VolumeName)
	return err != nil || ownership.GuardsAgainst(volume, replica, all) != ""
}

func (r *Reconciler) say(ctx context.Context, a *apiv1.AzVolumeAttachment, step attaching.Step) {
	ctrl.LoggerFrom(ctx).Info("attachment changes state", "volume", a.Spec.VolumeName, "node", a.Spec.NodeName, "role",
		a.Spec.Role,
		"state", step.Status.State, "reason", step.Reason, "message", step.Message)
	kind := corev1.EventTypeNormal
	if step.Status.Error != nil {
		kind = corev1.EventTypeWarning
	}
	if step.Reason != "" {
		r.event(a, kind, step.Reason, step.Message)
	}
}

func (r *Reconciler) event(a *apiv1.AzVolumeAttachment, kind, reason, message string) {
	if message == "" {
		message = fmt.Sprintf("disk %s, node %s", a.Spec.VolumeName, a.Spec.NodeName)
	}
	r.Events.Eventf(a, nil, kind, reason, reason, "%s", message)
}

// otherLUNs returns the LUNs at which the other disks of an attachment's node are recorded, from
// the cache.
func (r *Reconciler) otherLUNs(a *apiv1.AzVolumeAttachment) func(context.Context) ([]int32, error) {
	return func(ctx context.Context) (luns []int32, err error) {
		here, err := cluster.AttachmentsOfNode(ctx, r.Client, a.Namespace, a.Spec.NodeName)
		for _, other := range here {
			if lun := other.Status.LUN; lun != nil && other.Name != a.Name {
				luns = append(luns, *lun)
			}
		}
		return luns, err
	}
}
