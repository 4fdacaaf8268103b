package attachment

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// observe reads the attachment's surroundings from the cache. The objects are the cache's own, and
// only to be read.
func (r *Reconciler) observe(ctx context.Context, a *apiv1.AzVolumeAttachment) (attaching.Input, error) {
	in := attaching.Input{
		Now:          r.Clock.Now(),
		LeadingSince: r.leadingSince,
		Overlap:      r.Overlap,
		Attachment:   a,
		Job:          r.Jobs.Job(a),
		HasFinalizer: controllerutil.ContainsFinalizer(a, apiv1.FinalizerAttachment),
	}
	volume, err := r.volume(ctx, a.Namespace, a.Spec.VolumeName)
	if err == nil && volume != nil && ownership.OlderThan(volume, a) {
		// A node that the old copy says to fence may hold the volume under the attachment's epoch.
		volume, err = kube.Find[apiv1.AzVolume](ctx, r.Reader, client.ObjectKeyFromObject(volume))
	}
	if err != nil {
		return in, err
	}
	in.Volume = volume
	facts, err := r.Nodes.Facts(ctx, a.Spec.NodeName)
	if err != nil {
		return in, err
	}
	if ownership.ReportCounts(volume, a) && !facts.Identity.Another(a) {
		if in.ReportProof, err = r.reportProof(ctx, a, in.Now); err != nil {
			return in, err
		}
	}
	if err := r.observeNode(ctx, &in, facts); err != nil {
		return in, err
	}
	if err := r.observeOthers(ctx, &in); err != nil {
		return in, err
	}
	if in.Helpers, err = r.helpers(ctx, volume, a); err != nil {
		return in, err
	}
	if volume != nil && in.Job.Phase == operation.PhaseBegun {
		in.Waiting = r.Cloud.Attachments().Waiting(a.Status.VMID, volume.Status.DiskID)
	}
	if volume != nil && a.DeletionTimestamp == nil && a.Status.State != apiv1.AttachmentAttached {
		in.Room, err = r.room(ctx, in, facts.MaxDataDisks)
	}
	return in, err
}

// observeNode sets what is known of the attachment's node.
func (r *Reconciler) observeNode(ctx context.Context, in *attaching.Input, facts cluster.NodeFacts) (err error) {
	a := in.Attachment
	in.VMID, in.VMUnknown = facts.Identity.VMID, facts.Identity.Message
	if a.DeletionTimestamp != nil && in.VMID == "" {
		// The status may have been lost while the disk is attached. No look at the VM would find
		// that without an AzDriverNode.
		in.VMID = facts.ProviderVM
	}
	in.NodeLost, in.NotReadySince = facts.NoReport || facts.Identity.Another(a), facts.NotReadySince
	in.Alive = facts.Alive
	if attaching.MayBeDeserted(*in) {
		if in.UsedByPod, err = cluster.UsedOn(ctx, r.Client, r.Client, a.Spec.VolumeName, a.Spec.NodeName); err != nil {
			return err
		}
	}
	if attaching.NeedsReport(*in) {
		key := client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.NodeName}
		in.Report, err = cluster.ReportOfVM(ctx, r.Reader, key, a.Status.VMID)
	}
	return err
}

// observeOthers sets what the other attachments of the volume forbid.
func (r *Reconciler) observeOthers(ctx context.Context, in *attaching.Input) error {
	a := in.Attachment
	if a.DeletionTimestamp == nil && !ownership.OwnedBy(in.Volume, a.Spec.NodeName) && !attaching.AttachUnproved(a) {
		return nil
	}
	all, err := cluster.Attachments(ctx, r.Client, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
	if err != nil {
		return err
	}
	in.SharedWith = attaching.SharedVM(in.Volume, a, in.VMID, all)
	in.GuardsAgainst, err = r.guardsAgainst(ctx, r.Client, *in, all)
	return err
}

// reportProof returns what the node's report proves, which is read from the API server.
func (r *Reconciler) reportProof(ctx context.Context, a *apiv1.AzVolumeAttachment, now time.Time) (*apiv1.ReleaseProof, error) {
	report, err := r.driverNode(ctx, r.Reader, a.Namespace, a.Spec.NodeName)
	if err != nil || report == nil {
		return nil, err
	}
	proof, _ := ownership.UnstagedProof(report, a.Spec.VolumeName, a.Spec.Epoch, now)
	return proof, nil
}

func (r *Reconciler) volume(ctx context.Context, namespace, name string) (*apiv1.AzVolume, error) {
	return kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{
		Namespace: namespace,
		Name:      name,
	}, client.UnsafeDisableDeepCopy)
}

func (r *Reconciler) room(ctx context.Context, in attaching.Input, maxDataDisks int32) (attaching.SlotDecision, error) {
	a := in.Attachment
	ofVolume, err := cluster.Attachments(ctx, r.Client, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
	if err != nil {
		return attaching.SlotDecision{}, err
	}
	onNode, err := cluster.Attachments(ctx, r.Client, a.Namespace, cluster.AttachmentNode, a.Spec.NodeName)
	if err != nil {
		return attaching.SlotDecision{}, err
	}
	return attaching.Slots(attaching.SlotInput{
		Attachment:    a,
		MaxShares:     in.Volume.Shares(),
		MaxDataDisks:  maxDataDisks,
		ReservedSlots: r.ReservedSlots,
		OfVolume:      ofVolume,
		OnNode:        onNode,
		AzureFull: in.Job.Phase == operation.PhaseEnded && in.Job.Work == operation.WorkAttach &&
			provisioner.KindOf(in.Job.Err) == provisioner.InsufficientCapacity,
		HasPrimary: func(name string) bool {
			v, err := r.volume(ctx, a.Namespace, name)
			return err != nil || (v != nil && ownership.HasPrimary(v, nil))
		},
		Guards: func(replica *apiv1.AzVolumeAttachment) bool { return r.guards(ctx, replica) },
		Paused: func(a *apiv1.AzVolumeAttachment) bool {
			v, err := r.volume(ctx, a.Namespace, a.Spec.VolumeName)
			return err == nil && v != nil && annotation.Paused.Switched(v.Annotations) != ""
		},
	}), nil
}
