// Package keeper makes, promotes, demotes, repairs and deletes AzVolumeAttachments. It is the only
// writer of them in the controller: the CSI server publishes with it, the failover fences with it,
// the placement of replicas and the look at a VM's disks repair with it.
//
// Every write depends on what the caller has read: an object is created only if the name is free,
// changed only if it has the resource version that was read, and deleted only if it has the UID and
// the resource version. So a decision from an old cache is never carried out. A write that came too
// late, and one that a guard of this package forbids, is an AlreadyExists, Conflict or NotFound of
// the API server. The caller reads again and decides again; each function can be repeated.
//
// No function changes the attachment that it is given.
package keeper

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Create creates the attachment that spec describes. Its finalizer keeps the object until Azure has
// detached the disk. The error is AlreadyExists if the volume has an attachment to the node.
func Create(ctx context.Context, c client.Writer, namespace string,
	spec apiv1.AzVolumeAttachmentSpec) (*apiv1.AzVolumeAttachment, error) {
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  namespace,
			Name:       apiv1.AttachmentName(spec.VolumeName, spec.NodeName),
			Labels:     apiv1.AttachmentLabels(spec.VolumeName, spec.NodeName),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: spec,
	}
	if err := c.Create(ctx, a); err != nil {
		return nil, fmt.Errorf("create the attachment of volume %s to node %s: %w", spec.VolumeName, spec.NodeName, err)
	}
	return a, nil
}

// Promote gives an attachment the spec of a primary, and returns it as it is after that. A proof
// that the attachment has for the same epoch is removed: all attachments of a multi-node volume have
// one epoch, and the proof of the last release must not count for the next one.
//
// An attachment that is being deleted, that is Preempted, or that has a later epoch is not promoted.
// One that is Preempted is the record that only a reservation keeps the node from writing.
func Promote(ctx context.Context, c client.Client, a *apiv1.AzVolumeAttachment,
	spec apiv1.AzVolumeAttachmentSpec) (*apiv1.AzVolumeAttachment, error) {
	switch {
	case a.DeletionTimestamp != nil:
		return nil, forbidden(a, "it is being deleted")
	case ownership.Preempted(a):
		return nil, forbidden(a, "its disk is being detached by force")
	case a.Spec.Epoch > spec.Epoch:
		return nil, forbidden(a, fmt.Sprintf("it has epoch %d, and the ownership has epoch %d", a.Spec.Epoch, spec.Epoch))
	}
	promoted := a.DeepCopy()
	promoted.Spec = spec
	promoted.Spec.Role = apiv1.RolePrimary
	if promoted.Spec != a.Spec {
		if err := kube.Patch(ctx, c, promoted, a); err != nil {
			return nil, fmt.Errorf("make the attachment to node %s the primary: %w", a.Spec.NodeName, err)
		}
	}
	if a.Spec.Role != apiv1.RolePrimary || !ownership.HasProof(promoted) {
		return promoted, nil
	}
	status := promoted.Status
	status.Proof = nil
	return WriteStatus(ctx, c, promoted, status)
}

// Demote makes the attachment of a former primary a replica, and returns it as it is after that. It
// needs the proof that the node has released the volume (law 3), and refuses an attachment that is
// being deleted or Preempted.
func Demote(ctx context.Context, c client.Writer, v *apiv1.AzVolume,
	a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
	switch {
	case a.DeletionTimestamp != nil:
		return nil, forbidden(a, "it is being deleted")
	case ownership.Preempted(a):
		return nil, forbidden(a, "its disk is being detached by force")
	case !ownership.ProvedReleased(v, a):
		return nil, forbidden(a, "there is no proof that its node released the volume")
	}
	demoted := a.DeepCopy()
	demoted.Spec.Role = apiv1.RoleReplica
	if err := kube.Patch(ctx, c, demoted, a); err != nil {
		return nil, fmt.Errorf("make the attachment to node %s a replica: %w", a.Spec.NodeName, err)
	}
	return demoted, nil
}

// Restore makes the attachment of an ownership that is being released what it was: the primary of
// its epoch. It creates an attachment that is missing (a is nil), and promotes one that was edited,
// both with the guards of Create and Promote. It deletes one that is Preempted: when that is gone, it
// is created again. Without the attachment nothing would fence the node, because the proof is
// recorded there. It returns the attachment as it is after that.
func Restore(ctx context.Context, c client.Client, v *apiv1.AzVolume,
	a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
	o := v.Status.Primary
	spec := apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: o.NodeName, Role: apiv1.RolePrimary, Epoch: o.Epoch}
	switch {
	case a == nil:
		return Create(ctx, c, v.Namespace, spec)
	case a.DeletionTimestamp == nil && ownership.Preempted(a):
		return a, Delete(ctx, c, a)
	case ownership.Intact(o, a):
		return a, nil
	}
	spec.ReadOnly = a.Spec.ReadOnly
	return Promote(ctx, c, a, spec)
}

// Delete deletes an attachment if its UID and its resource version are those that were read: a
// replica that was promoted since stays. The object is removed when Azure has detached the disk.
func Delete(ctx context.Context, c client.Writer, a *apiv1.AzVolumeAttachment) error {
	if err := kube.Delete(ctx, c, a); err != nil {
		return fmt.Errorf("delete the attachment of volume %s to node %s: %w", a.Spec.VolumeName, a.Spec.NodeName, err)
	}
	return nil
}

// RecordProof records the proof that the attachment's node released the volume, and returns the
// attachment as it is after that. A proof of the same or of a later epoch stays, and so does
// Preempted until the disk is detached.
func RecordProof(ctx context.Context, c client.StatusClient, a *apiv1.AzVolumeAttachment,
	proof *apiv1.ReleaseProof) (*apiv1.AzVolumeAttachment, error) {
	if a.Status.Proof != nil && a.Status.Proof.Epoch >= proof.Epoch || ownership.Preempted(a) {
		return a, nil
	}
	status := a.Status
	status.Proof = proof
	return WriteStatus(ctx, c, a, status)
}

// WriteStatus writes the status, and returns the attachment as it is after that.
func WriteStatus(ctx context.Context, c client.StatusClient, a *apiv1.AzVolumeAttachment,
	status apiv1.AzVolumeAttachmentStatus) (*apiv1.AzVolumeAttachment, error) {
	changed := a.DeepCopy()
	changed.Status = status
	if err := kube.PatchStatus(ctx, c, changed, a); err != nil {
		return nil, fmt.Errorf("write the status of the attachment of volume %s to node %s: %w", a.Spec.VolumeName,
			a.Spec.NodeName, err)
	}
	return changed, nil
}

// AddFinalizer adds a finalizer, and returns the attachment as it is after that.
func AddFinalizer(ctx context.Context, c client.Writer, a *apiv1.AzVolumeAttachment,
	finalizer string) (*apiv1.AzVolumeAttachment, error) {
	changed := a.DeepCopy()
	if !controllerutil.AddFinalizer(changed, finalizer) {
		return a, nil
	}
	return changed, patched(a, kube.Patch(ctx, c, changed, a))
}

// RemoveFinalizer removes a finalizer. An attachment that is not being deleted keeps the one for which
// its disk is detached.
func RemoveFinalizer(ctx context.Context, c client.Writer, a *apiv1.AzVolumeAttachment, finalizer string) error {
	changed := a.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, finalizer) {
		return nil
	}
	if a.DeletionTimestamp == nil && finalizer == apiv1.FinalizerAttachment {
		return forbidden(a, "it is not being deleted")
	}
	return patched(a, kube.Patch(ctx, c, changed, a))
}

func patched(a *apiv1.AzVolumeAttachment, err error) error {
	if err != nil {
		return fmt.Errorf("set the finalizers of the attachment of volume %s to node %s: %w", a.Spec.VolumeName, a.Spec.NodeName, err)
	}
	return nil
}

// forbidden is the Conflict of a write that a guard forbids.
func forbidden(a *apiv1.AzVolumeAttachment, why string) error {
	return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), a.Name, errors.New(why))
}
