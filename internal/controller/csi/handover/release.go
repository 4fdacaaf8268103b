package handover

import (
	"context"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// completeRelease completes the release of another node's ownership that an unpublish has started,
// if there is a proof, and updates v. Normally the caller repeats the unpublish. If a user removed
// the finalizer of the VolumeAttachment, it does not, and the volume could never be published
// again.
func (s *Publisher) completeRelease(ctx context.Context, v *apiv1.AzVolume, node string) error {
	o := v.Status.Primary
	if o == nil || o.State != apiv1.OwnershipReleasing || o.NodeName == node || ownership.FenceDecided(v, o.NodeName) {
		return nil
	}
	proof, _, _, err := s.findProof(ctx, v, o.NodeName, o.Epoch)
	if proof == nil {
		return err
	}
	handle := volumehandle.Of(v.Spec.Disk)
	unlock, err := s.Lock(handle.VolumeName() + " on node " + o.NodeName)
	if err != nil {
		return err // an unpublish is running, and completes the release
	}
	defer unlock()
	if err := s.unpublish(ctx, handle, o.NodeName); err != nil {
		return err
	}
	return s.refresh(ctx, v)
}
