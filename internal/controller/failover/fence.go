package failover

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
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
		err := kube.PatchStatus(ctx, r.Client, current, before)
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
	fenced, err := keeper.AddFinalizer(ctx, r.Client, a, apiv1.FinalizerFenced)
	if err != nil {
		return false, err
	}
	crashpoint.At("failover-between-finalizer-and-deletion")
	return true, keeper.Delete(ctx, r.Client, fenced)
}

// repair makes the node's attachment the primary of the ownership that is being fenced, or deletes
// the attachment of a multi-node volume, as the process that wrote the decision would have done. It
// deletes an attachment that is Preempted. One that was unblocked since may have been published
// again, and is not deleted.
func (r *Reconciler) repair(ctx context.Context, o observed, v lostnode.Volume) error {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return keeper.Delete(ctx, r.Client, v.Attachment)
	}
	current := &apiv1.AzVolume{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(v.Volume), current); err != nil {
		return fmt.Errorf("read volume again: %w", err)
	}
	if !ownership.FenceDecided(current, o.NodeName) || current.Status.Primary.Epoch != v.Epoch() {
		return nil
	}
	if _, err := keeper.Restore(ctx, r.Client, current, v.Attachment); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// unblocked ends the failover of a volume: Kubernetes does the rest and unpublishes it.
func (r *Reconciler) unblocked(ctx context.Context, o observed, v lostnode.Volume) error {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		if err := keeper.RemoveFinalizer(ctx, r.Client, v.Attachment, apiv1.FinalizerFenced); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	r.journal.unblocked(ctx, o, v)
	return nil
}
