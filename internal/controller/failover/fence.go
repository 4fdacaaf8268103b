package failover

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// fence writes the decision to fence the node from a volume. From then on the attachment reconciler
// establishes the proof.
func (r *Reconciler) fence(ctx context.Context, o observed, v lostnode.Volume) error {
	written, err := false, error(nil)
	crashpoint.At("failover-before-release")
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		written, err = r.fenceMultiNode(ctx, v.Attachment)
	} else {
		written, err = r.fenceOwnership(ctx, o, v)
	}
	if err != nil || !written {
		return err
	}
	crashpoint.At("failover-after-release-started")
	r.journal.decided(ctx, o, v)
	return nil
}

// fenceOwnership makes the node's ownership Releasing because the node was lost, and reports
// whether it did. The first try decides from the cache: its write succeeds only if the cache is
// current.
func (r *Reconciler) fenceOwnership(ctx context.Context, o observed, v lostnode.Volume) (written bool, err error) {
	current := v.Volume.DeepCopy()
	err = kube.Retry(apierrors.IsConflict, func() error {
		primary, holder, changed := ownership.StartRelease(current.Status.Primary, o.NodeName, apiv1.CauseNodeLost, r.Clock.Now())
		if !holder || !changed || primary.Epoch != v.Epoch() || !r.Monitor.Health(o.NodeName).Fence() {
			return nil
		}
		before := current.DeepCopy()
		current.Status.Primary = &primary
		err := r.Client.Status().Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(v.Volume), current); err != nil {
				return fmt.Errorf("read volume again: %w", err)
			}
		}
		written = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("start the release of the ownership of lost node %s: %w", o.NodeName, err)
	}
	return written, nil
}

// fenceMultiNode adds the finalizer to the node's attachment, which is the decision, and deletes
// it; repair deletes it if that fails. The finalizer keeps the attachment as the record of the
// decision until Kubernetes is informed.
func (r *Reconciler) fenceMultiNode(ctx context.Context, a *apiv1.AzVolumeAttachment) (bool, error) {
	if a.DeletionTimestamp != nil {
		return false, nil // being deleted, and fenced because the node is lost
	}
	fenced, err := r.setFinalizer(ctx, a, true)
	if err != nil {
		return false, err
	}
	crashpoint.At("failover-between-finalizer-and-deletion")
	return true, r.deleteFenced(ctx, fenced)
}

// deleteFenced deletes a fenced attachment, if it has not changed: one that was unblocked since may
// have been published again.
func (r *Reconciler) deleteFenced(ctx context.Context, a *apiv1.AzVolumeAttachment) error {
	if err := r.Client.Delete(ctx, a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion}); err != nil {
		return fmt.Errorf("delete attachment to a lost node: %w", err)
	}
	return nil
}

// setFinalizer adds or removes the finalizer, and returns the attachment as it is after that.
func (r *Reconciler) setFinalizer(ctx context.Context, a *apiv1.AzVolumeAttachment, want bool) (*apiv1.AzVolumeAttachment,
	error) {
	changed := a.DeepCopy()
	if want && !controllerutil.AddFinalizer(changed, apiv1.FinalizerFenced) || !want &&
		!controllerutil.RemoveFinalizer(changed, apiv1.FinalizerFenced) {
		return a, nil
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(a, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("set finalizer of fenced attachment: %w", err)
	}
	return changed, nil
}

// repair makes the node's attachment the primary of the ownership that is being fenced, or deletes
// the attachment of a multi-node volume, as the process that wrote the decision would have done. It
// deletes an attachment that is Preempted.
func (r *Reconciler) repair(ctx context.Context, o observed, v lostnode.Volume) error {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return r.deleteFenced(ctx, v.Attachment)
	}
	current := &apiv1.AzVolume{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(v.Volume), current); err != nil {
		return fmt.Errorf("read volume again: %w", err)
	}
	if !ownership.BeingFenced(current, o.NodeName) || current.Status.Primary.Epoch != v.Epoch() {
		return nil
	}
	if v.Attachment != nil && ownership.Preempted(v.Attachment) {
		// It is the record that only a reservation keeps the node from writing. When it is gone, it
		// is created again.
		return r.deleteFenced(ctx, v.Attachment)
	}
	if v.Attachment != nil {
		changed := v.Attachment.DeepCopy()
		changed.Spec.Role, changed.Spec.Epoch = apiv1.RolePrimary, v.Epoch()
		if err := r.Client.Patch(ctx, changed,
			client.MergeFromWithOptions(v.Attachment, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("make attachment the primary of its ownership: %w", err)
		}
		return nil
	}
	err := r.Client.Create(ctx, &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  o.namespace,
			Name:       apiv1.AttachmentName(v.Volume.Name, o.NodeName),
			Finalizers: []string{apiv1.Finalizer},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: v.Volume.Name,
			NodeName:   o.NodeName,
			Role:       apiv1.RolePrimary,
			Epoch:      v.Epoch(),
		},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create attachment of an ownership: %w", err)
	}
	return nil
}

// unblocked ends the failover of a volume: Kubernetes does the rest and unpublishes it.
func (r *Reconciler) unblocked(ctx context.Context, o observed, v lostnode.Volume) error {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		if _, err := r.setFinalizer(ctx, v.Attachment, false); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	r.journal.unblocked(ctx, o, v)
	return nil
}
