package handover

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/records"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// claim writes the node's claim to be primary (law 1). v has just been read from the API server.
func (s *Publisher) claim(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string) (claim apiv1.Ownership, err error) {
	err = s.onCurrent(ctx, handle, v, func() error {
		if v.DeletionTimestamp != nil {
			return grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
		}
		var changed bool
		claim, changed, err = ownership.Acquire(v.Status.Primary, node, 0, s.clock.Now())
		if err != nil {
			return s.refused(ctx, v, err)
		}
		if !changed {
			return nil
		}
		last, err := s.history(ctx, v, node)
		if err != nil {
			return err
		}
		claim, _, _ = ownership.Acquire(v.Status.Primary, node, last, claim.Since.Time)
		return s.writeClaim(ctx, v, claim, nil)
	})
	return claim, err
}

// onCurrent calls write, which decides from v and writes v. If v has changed, it reads v from the API server and calls write again.
func (s *Publisher) onCurrent(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, write func() error) error {
	return records.Retry("volume "+v.Name, func() error {
		err := write()
		if !records.Changed(err) {
			return err
		}
		if err := s.refresh(ctx, handle, v); err != nil {
			return err
		}
		return err
	})
}

// refresh reads v again from the API server.
func (s *Publisher) refresh(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume) error {
	current, err := s.Volume(ctx, handle)
	if err != nil {
		return err
	}
	if current == nil {
		return grpcstatus.Errorf(codes.NotFound, "AzVolume %s was deleted during the call", v.Name)
	}
	*v = *current
	return nil
}

// claimUnchanged returns records.ErrChanged if the API server has another claim than v, or no AzVolume.
func (s *Publisher) claimUnchanged(ctx context.Context, v *apiv1.AzVolume) error {
	current, err := s.Volume(ctx, volumehandle.Of(v.Spec.Disk))
	if err == nil && (current == nil || !equality.Semantic.DeepEqual(current.Status.Primary, v.Status.Primary)) {
		return records.ErrChanged
	}
	return err
}

// refused adds to the refusal of a claim what the driver is doing to release the volume. The cache is good enough for that.
func (s *Publisher) refused(ctx context.Context, v *apiv1.AzVolume, refusal error) error {
	a, err := s.Attachment(ctx, s.Client, v.Name, v.Status.Primary.NodeName)
	wait := attachdetach.Holder(v, a)
	if err != nil || wait.Message == "" || !errors.Is(refusal, provisioner.FailedPrecondition) {
		return refusal
	}
	return provisioner.Errorf(provisioner.FailedPrecondition, "%s", wait.Message)
}

// writeClaim writes a claim if nothing of the AzVolume has changed since v was read, and updates v.
func (s *Publisher) writeClaim(ctx context.Context, v *apiv1.AzVolume, claim apiv1.Ownership, release *apiv1.ReleaseRecord) error {
	before := v.DeepCopy()
	v.Status.Primary = &claim
	if release != nil {
		v.Status.LastReleasedTime, v.Status.LastRelease = claim.Since, release
	}
	if err := s.Client.Status().Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write claim of node %q: %w", claim.NodeName, err)
	}
	return nil
}

// startRelease writes the node's claim as Releasing, and says whether the node holds it at all.
func (s *Publisher) startRelease(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string) (holder bool, err error) {
	err = s.onCurrent(ctx, handle, v, func() error {
		var claim apiv1.Ownership
		var changed bool
		claim, holder, changed = ownership.StartRelease(v.Status.Primary, node, apiv1.CauseUnpublished, s.clock.Now())
		if !holder || !changed {
			return nil
		}
		return s.writeClaim(ctx, v, claim, nil)
	})
	return holder, err
}

// finishRelease waits for the proof, records it, and writes the claim as Released. It returns the attachment after the proof is recorded.
func (s *Publisher) finishRelease(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string, a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
	releasing := *v.Status.Primary
	a, err := s.restoreAttachment(ctx, v, a)
	if err != nil {
		return nil, err
	}
	proof, err := s.awaitProof(ctx, v, node, releasing.Epoch)
	if err != nil {
		return nil, err
	}
	if a, err = s.recordProof(ctx, v.Name, node, a, proof); err != nil {
		return nil, err
	}
	err = s.onCurrent(ctx, handle, v, func() error {
		c := v.Status.Primary
		if c == nil || c.NodeName != node || c.Epoch != releasing.Epoch || c.State != apiv1.OwnershipReleasing {
			return grpcstatus.Errorf(codes.Aborted, "the claim of node %s changed while it was being released", node)
		}
		crashpoint.At("unpublish-before-released")
		return s.writeClaim(ctx, v, ownership.CompleteRelease(releasing, s.clock.Now()), &apiv1.ReleaseRecord{NodeName: node, Cause: c.Cause, Proof: *proof})
	})
	if err != nil {
		return nil, err
	}
	crashpoint.At("unpublish-after-released")
	s.releases.WithLabelValues(string(proof.Kind)).Inc()
	return a, nil
}
