package disks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// DeleteVolume deletes an AzVolume with its replicas and its disk, and waits until it is gone. A
// volume that a node uses, or that a PersistentVolume needs, is FailedPrecondition; a volume that does
// not exist counts as deleted.
func (s *Provisioner) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil // no volume has such an ID
	}
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, s.Do(ctx, handle.VolumeName(),
		func(ctx context.Context) error { return s.deleteVolume(ctx, handle) })
}

func (s *Provisioner) deleteVolume(ctx context.Context, handle volumehandle.Handle) error {
	// A NotFound of the API server means that the AzVolume was deleted, and not that the disk was:
	// Azure is asked.
	return cluster.RetryChanged("volume "+handle.VolumeName(), func() error {
		if err := s.unneeded(ctx, handle); err != nil {
			return err
		}
		v, err := s.Volume(ctx, handle)
		if err == nil && v == nil {
			// A disk of the V1 driver that this driver has never published.
			v, err = s.AdoptUnused(ctx, handle, call.Access{Pattern: apiv1.AccessSingleNode})
		}
		if err == nil && v.Spec.Origin == apiv1.OriginAdopted && v.Status.DiskID == "" && !v.Leaving() {
			// Until the disk has been read, the AzVolume may not delete it.
			v, err = s.awaitCreatedOrDeleted(ctx, v)
		}
		if status.Code(err) == codes.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.awaitUnused(ctx, handle, v); err != nil {
			return err
		}
		if err := refusal.Paused(v, "delete volume "+v.Name); err != nil {
			return err
		}
		if err := s.discard(ctx, v); err != nil {
			return err
		}
		return s.awaitVolumeGone(ctx, v)
	})
}

// unneeded returns a FailedPrecondition if the disk must stay for a PersistentVolume: two of them can
// name one disk, and the call is for the one that was released. The cache may not show yet that a
// PersistentVolume was released, so the API server is asked.
func (s *Provisioner) unneeded(ctx context.Context, handle volumehandle.Handle) error {
	pvs, err := cluster.PersistentVolumes(ctx, s.Client, handle.VolumeName())
	if err != nil {
		return err
	}
	for _, cached := range pvs {
		named, err := volumehandle.Parse(cached.Spec.CSI.VolumeHandle)
		if err != nil || !named.Same(handle) || disk.NeededBy(cached) == "" {
			continue
		}
		pv, err := kube.Find[corev1.PersistentVolume](ctx, s.Reader, client.ObjectKeyFromObject(cached))
		if err != nil {
			return err
		}
		if pv == nil {
			continue
		}
		if why := disk.NeededBy(pv); why != "" {
			return grpcstatus.Errorf(codes.FailedPrecondition,
				"disk %s is not deleted: %s and names it%s. To delete the disk, delete that first; to keep it, set the reclaim policy of the released PersistentVolume to Retain and delete the PersistentVolume",
				handle, why, ofClaim(pv))
		}
	}
	return nil
}

func ofClaim(pv *corev1.PersistentVolume) string {
	if c := pv.Spec.ClaimRef; c != nil {
		return fmt.Sprintf(" for claim %s/%s", c.Namespace, c.Name)
	}
	return ""
}

// discard deletes an AzVolume and its disk: it sets spec.deletionPolicy before the deletion. The error
// is a conflict if the AzVolume has changed: a node may have acquired ownership.
func (s *Provisioner) discard(ctx context.Context, v *apiv1.AzVolume) error {
	if !v.DeletesDisk() {
		before := v.DeepCopy()
		v.Spec.DeletionPolicy = apiv1.DeletionDelete
		if err := kube.Patch(ctx, s.Client, v, before); err != nil {
			return fmt.Errorf("set spec.deletionPolicy of AzVolume %s: %w", v.Name, err)
		}
		if v.Generation == before.Generation {
			// The API server drops unknown fields without an error, and the disk would stay.
			return grpcstatus.Error(codes.FailedPrecondition,
				"the CustomResourceDefinition of AzVolumes is older than the driver and has no spec.deletionPolicy: upgrade it (charts/azuredisk/files/crds)")
		}
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	if err := kube.Delete(ctx, s.Client, v); err != nil {
		return fmt.Errorf("delete AzVolume: %w", err)
	}
	return nil
}

// releaseTimeout limits how long a deletion waits for the release of the volume. It is short,
// because the call occupies a worker of the caller, and the caller calls again.
const releaseTimeout = 10 * time.Second

// awaitUnused returns a FailedPrecondition for a volume that a node uses. Where the driver itself
// unpublishes the volume, Kubernetes does not wait for that, and calls for the deletion when the
// pod is gone: the call waits for the release. It updates v.
func (s *Provisioner) awaitUnused(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume) error {
	used := s.unused(ctx, v)
	if !s.PublishedByPods || status.Code(used) != codes.FailedPrecondition {
		return used
	}
	attachments, err := s.Attachments(ctx, s.Client, v.Name)
	if err != nil {
		return err
	}
	changes := []cluster.Object{cluster.VolumeNamed(v.Name)}
	for _, a := range attachments {
		changes = append(changes, cluster.AttachmentNamed(a.Name))
	}
	bounded, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err = s.Watch.Until(bounded, func() (bool, error) {
		current, err := s.Volume(bounded, handle)
		if err == nil && current == nil {
			err = cluster.ErrChanged
		}
		if err != nil {
			return false, err
		}
		*v = *current
		if used = s.unused(bounded, v); status.Code(used) == codes.FailedPrecondition {
			return false, nil
		}
		return true, used
	}, changes...)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return used
	}
	return err
}

// unused returns a FailedPrecondition for a volume that has a primary.
func (s *Provisioner) unused(ctx context.Context, v *apiv1.AzVolume) error {
	if v.Spec.Access == apiv1.AccessSingleNode {
		if ownership.HasPrimary(v, nil) {
			return grpcstatus.Errorf(codes.FailedPrecondition, "volume %s is published to node %s", v.Name,
				v.Status.Primary.NodeName)
		}
		return nil
	}
	attachments, err := s.Attachments(ctx, s.Reader, v.Name)
	if err != nil {
		return err
	}
	for _, a := range attachments {
		if !ownership.ProvedReleased(v, a) {
			return grpcstatus.Errorf(codes.FailedPrecondition, "volume %s is published to node %s", v.Name, a.Spec.NodeName)
		}
	}
	return nil
}

// uncached reports whether an AzVolume is gone from the cache too, so that the next list does not
// contain it.
func (s *Provisioner) uncached(ctx context.Context, v *apiv1.AzVolume) (bool, error) {
	cached, err := kube.Find[apiv1.AzVolume](ctx, s.Client, s.Key(v.Name))
	return err == nil && (cached == nil || cached.UID != v.UID), err
}

// awaitVolumeGone waits until an AzVolume is gone, or its deletion has failed since the call began.
func (s *Provisioner) awaitVolumeGone(ctx context.Context, v *apiv1.AzVolume) error {
	since := s.Clock.Now().Truncate(time.Second)
	reason := ""
	err := s.Watch.Until(ctx, func() (bool, error) {
		current, err := kube.Find[apiv1.AzVolume](ctx, s.Reader, s.Key(v.Name))
		if err != nil {
			return false, err
		}
		if current == nil || current.UID != v.UID {
			return s.uncached(ctx, v)
		}
		if e := current.Status.Error; current.Status.State == apiv1.VolumeDeletionFailed && e != nil &&
			!e.FailureTime.Time.Before(since) {
			return true, call.Failure(e)
		}
		for _, c := range current.Status.Conditions {
			if c.Type == apiv1.VolumeConditionReady {
				reason = c.Reason + ": " + c.Message
			}
		}
		return false, nil
	}, cluster.VolumeNamed(v.Name))
	if errors.Is(err, context.DeadlineExceeded) {
		return grpcstatus.Errorf(codes.Aborted, "volume %s is still being deleted (%s)", v.Name, reason)
	}
	return err
}
