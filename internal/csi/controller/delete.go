package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// DeleteVolume deletes an AzVolume and waits until it is gone, and with it replicas and disk. A volume
// that a node uses is FailedPrecondition; what is not there is deleted already.
func (s *Server) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, invalidArgument("volume ID: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return &csi.DeleteVolumeResponse{}, nil // a volume that cannot be needs no deletion
	}
	unlock, err := s.lock(handle.VolumeName())
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.deleteVolume(ctx, handle); err != nil {
		return nil, statusOf(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (s *Server) deleteVolume(ctx context.Context, handle volumehandle.Handle) error {
	for range maxTries {
		v, err := s.volume(ctx, handle)
		if err != nil {
			return err
		}
		if v == nil {
			// A disk of the V1 driver that was never published by this one.
			v, err = s.adopt(ctx, handle, nil, access{pattern: apiv1.AccessSingleNode})
		}
		if err == nil && v.Spec.Origin == apiv1.OriginAdopted && v.Status.DiskURI == "" && v.DeletionTimestamp == nil {
			// Until the disk has been read it is not the volume's to delete.
			v, err = s.awaitCreated(ctx, v)
		}
		if err != nil {
			if status.Code(err) == codes.NotFound {
				return nil
			}
			return err
		}
		if err := s.unused(ctx, v); err != nil {
			return err
		}
		err = s.discard(ctx, v)
		switch {
		case err == nil:
			return s.awaitVolumeGone(ctx, v)
		case apierrors.IsNotFound(err):
			// Somebody has deleted the record. Whether the disk has gone is Azure's to tell.
		case !apierrors.IsConflict(err):
			return err
		}
	}
	return grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", handle.VolumeName())
}

// discard deletes an AzVolume and has its disk go with it, which is said first. It is a conflict if the volume has changed: a node may have claimed it.
func (s *Server) discard(ctx context.Context, v *apiv1.AzVolume) error {
	if !v.Spec.DeleteDisk {
		before := v.DeepCopy()
		v.Spec.DeleteDisk = true
		if err := s.Client.Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("have the disk go with its AzVolume: %w", err)
		}
		if v.Generation == before.Generation {
			// The API server drops what it does not know without a word, and the disk would stay.
			return grpcstatus.Error(codes.FailedPrecondition, "the CustomResourceDefinition of AzVolumes is older than the driver and has no spec.deleteDisk: upgrade it (charts/azuredisk/files/crds)")
		}
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	if err := s.Client.Delete(ctx, v, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}); err != nil {
		return fmt.Errorf("delete AzVolume: %w", err)
	}
	return nil
}

// unused returns a FailedPrecondition for a volume that has a primary.
func (s *Server) unused(ctx context.Context, v *apiv1.AzVolume) error {
	if v.Spec.Access == apiv1.AccessSingleNode {
		if ownership.HasPrimary(v, nil) {
			return grpcstatus.Errorf(codes.FailedPrecondition, "volume %s is published to node %s", v.Name, v.Status.Primary.NodeName)
		}
		return nil
	}
	var list apiv1.AzVolumeAttachmentList
	if err := s.Reader.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{attachmentVolume: v.Name}); err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	for i := range list.Items {
		if !ownership.ProvedReleased(v, &list.Items[i]) {
			return grpcstatus.Errorf(codes.FailedPrecondition, "volume %s is published to node %s", v.Name, list.Items[i].Spec.NodeName)
		}
	}
	return nil
}

// forgotten says that the cache, too, has seen that an AzVolume is gone, so that a list that comes next does not have it.
func (s *Server) forgotten(ctx context.Context, v *apiv1.AzVolume) (bool, error) {
	cached := &apiv1.AzVolume{}
	err := s.Client.Get(ctx, s.key(v.Name), cached)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && cached.UID != v.UID, err
}

// awaitVolumeGone waits until an AzVolume is gone, or its deletion has failed since the call began.
func (s *Server) awaitVolumeGone(ctx context.Context, v *apiv1.AzVolume) error {
	since := s.Clock.Now().Truncate(time.Second)
	held := ""
	err := s.Watch.until(ctx, func() (bool, error) {
		current := &apiv1.AzVolume{}
		err := s.Reader.Get(ctx, s.key(v.Name), current)
		if apierrors.IsNotFound(err) || (err == nil && current.UID != v.UID) {
			return s.forgotten(ctx, v)
		}
		if err != nil {
			return false, err
		}
		if e := current.Status.Error; current.Status.State == apiv1.VolumeDeletionFailed && e != nil && !e.Time.Time.Before(since) {
			return true, failureOf(e)
		}
		for _, c := range current.Status.Conditions {
			if c.Type == disk.ConditionReady {
				held = c.Reason + ": " + c.Message
			}
		}
		return false, nil
	}, watched{kindVolume, v.Name})
	if errors.Is(err, context.DeadlineExceeded) {
		return grpcstatus.Errorf(codes.Aborted, "volume %s is still being deleted (%s)", v.Name, held)
	}
	return err
}
