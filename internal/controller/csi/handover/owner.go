package handover

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// acquire writes that the node holds the ownership of the volume (law 1). v has just been read from
// the API server.
func (s *Publisher) acquire(ctx context.Context, v *apiv1.AzVolume, node string) (apiv1.Ownership, error) {
	return s.acquireFrom(ctx, v, node, s.custody)
}

// acquireFrom is acquire with the check that decides whether another cluster uses the disk.
func (s *Publisher) acquireFrom(ctx context.Context, v *apiv1.AzVolume, node string, custody custodyCheck) (o apiv1.Ownership,
	err error) {
	err = s.onCurrent(ctx, v, func() error {
		if v.Leaving() {
			return grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
		}
		var changed bool
		o, changed, err = ownership.Acquire(v.Status.Primary, node, 0, s.clock.Now())
		if err != nil {
			return s.refused(ctx, v)
		}
		if !changed {
			return nil
		}
		if left := disk.Holds(v, s.clock.Now()); left > 0 && custody != nil {
			return &beingChanged{volume: v.Name, node: node, left: left}
		}
		last, known, err := s.history(ctx, v, node, custody)
		if err != nil {
			return err
		}
		o, _, _ = ownership.Acquire(v.Status.Primary, node, last, o.LastTransitionTime.Time)
		o.Exclusive = known == ownership.CustodyUnknown // Azure was asked
		confirmed := v.Status.ConfirmedUID
		if known != ownership.CustodyOurs {
			confirmed = "" // until the node has staged the volume
		}
		return s.write(ctx, v, func() {
			v.Status.Primary, v.Status.ConfirmedUID = &o, confirmed
			publishing.Obtained(v)
		})
	})
	return o, err
}

// onCurrent calls write, which decides from v and writes v. If v has changed, it reads v from the
// API server and calls write again.
func (s *Publisher) onCurrent(ctx context.Context, v *apiv1.AzVolume, write func() error) error {
	return cluster.RetryChanged("volume "+v.Name, func() error {
		err := write()
		if !cluster.IsChanged(err) {
			return err
		}
		if readErr := s.refresh(ctx, v); readErr != nil {
			return readErr
		}
		return err
	})
}

// refresh reads v again from the API server.
func (s *Publisher) refresh(ctx context.Context, v *apiv1.AzVolume) error {
	current, err := s.Volume(ctx, volumehandle.Of(v.Spec.Disk))
	if err != nil {
		return err
	}
	if current == nil {
		return grpcstatus.Errorf(codes.NotFound, "AzVolume %s was deleted during the call", v.Name)
	}
	*v = *current
	return nil
}

// ownershipUnchanged returns cluster.ErrChanged if the API server has another ownership than v, or
// no AzVolume.
func (s *Publisher) ownershipUnchanged(ctx context.Context, v *apiv1.AzVolume) error {
	current, err := s.Volume(ctx, volumehandle.Of(v.Spec.Disk))
	if err == nil && (current == nil || !equality.Semantic.DeepEqual(current.Status.Primary, v.Status.Primary)) {
		return cluster.ErrChanged
	}
	return err
}

// refused is the refusal to acquire the ownership from its holder. It says how the driver releases the
// volume, from the cache, because nothing is decided from it; without the attachment it says less.
func (s *Publisher) refused(ctx context.Context, v *apiv1.AzVolume) error {
	a, _ := s.Attachment(ctx, s.Client, v.Name, v.Status.Primary.NodeName)
	return provisioner.Errorf(provisioner.FailedPrecondition, "%s", publishing.Holder(v, a).Message)
}

// writeOwnership writes an ownership if the AzVolume has not changed since v was read, and updates
// v.
func (s *Publisher) writeOwnership(ctx context.Context, v *apiv1.AzVolume, o apiv1.Ownership,
	release *apiv1.ReleaseRecord) error {
	return s.write(ctx, v, func() {
		v.Status.Primary = &o
		if release != nil {
			v.Status.LastReleasedTime, v.Status.LastRelease = o.LastTransitionTime, release
			if ownership.ProvedByAzure(release.Proof) {
				v.Status.ConfirmedUID = "" // the disk may have been taken from the node long ago
			}
		}
	})
}

// write writes what edit changes in the status if the AzVolume has not changed since v was read.
func (s *Publisher) write(ctx context.Context, v *apiv1.AzVolume, edit func()) error {
	before := v.DeepCopy()
	edit()
	if err := kube.PatchStatus(ctx, s.Client, v, before); err != nil {
		return fmt.Errorf("write the ownership of volume %s by node %s: %w", v.Name, v.Status.Primary.NodeName, err)
	}
	return nil
}

// startRelease writes the node's ownership as Releasing, and reports whether the node has the
// ownership.
func (s *Publisher) startRelease(ctx context.Context, v *apiv1.AzVolume, node string) (holder bool, err error) {
	err = s.onCurrent(ctx, v, func() error {
		o, has, changed := ownership.StartRelease(v.Status.Primary, node, apiv1.CauseUnpublished, s.clock.Now())
		holder = has
		if !changed {
			return nil
		}
		return s.writeOwnership(ctx, v, o, nil)
	})
	return holder, err
}

// finishRelease waits for the proof, records it, and writes the ownership as Released. It returns
// the attachment after the proof is recorded.
func (s *Publisher) finishRelease(ctx context.Context, v *apiv1.AzVolume, node string,
	a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
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
	err = s.onCurrent(ctx, v, func() error {
		o := v.Status.Primary
		if o == nil || o.NodeName != node || o.Epoch != releasing.Epoch || o.State != apiv1.OwnershipReleasing {
			return grpcstatus.Errorf(codes.Aborted,
				"unpublish volume %s from node %s: another call changed its ownership while this one released it", v.Name, node)
		}
		crashpoint.At("unpublish-before-released")
		return s.writeOwnership(ctx, v, ownership.CompleteRelease(releasing, s.clock.Now()), &apiv1.ReleaseRecord{
			NodeName: node,
			Cause:    o.Cause,
			Proof:    *proof,
		})
	})
	if err != nil {
		return nil, err
	}
	crashpoint.At("unpublish-after-released")
	s.releases.WithLabelValues(string(proof.Type)).Inc()
	return a, nil
}
