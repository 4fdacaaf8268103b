package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ControllerExpandVolume asks for a larger disk and waits for it. A shared disk cannot grow while
// it is attached, so with a primary that is FailedPrecondition; replicas are detached for it.
func (s *Server) ControllerExpandVolume(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	switch {
	case request.GetVolumeId() == "":
		return nil, invalidArgument("volume ID: missing")
	case request.GetCapacityRange() == nil:
		return nil, invalidArgument("capacity range: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	unlock, err := s.lock(handle.VolumeName())
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	size, err := s.expand(ctx, handle, request)
	if err != nil {
		return nil, statusOf(err)
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes: size, NodeExpansionRequired: request.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

func (s *Server) expand(ctx context.Context, handle volumehandle.Handle, request *csi.ControllerExpandVolumeRequest) (int64, error) {
	for range maxTries {
		v, err := s.volume(ctx, handle)
		if err == nil && v == nil {
			v, err = s.adopt(ctx, handle, nil, access{pattern: apiv1.AccessSingleNode, block: request.GetVolumeCapability().GetBlock() != nil})
		}
		if err != nil {
			return 0, err
		}
		p := volumeparams.Parameters{SKUName: v.Spec.Disk.SKUName}
		size, err := p.Size(request.GetCapacityRange().GetRequiredBytes(), request.GetCapacityRange().GetLimitBytes())
		if err != nil {
			return 0, err
		}
		if size <= v.Status.SizeBytes {
			return v.Status.SizeBytes, nil
		}
		if v.Spec.Disk.MaxShares > 1 {
			if err := s.unused(ctx, v); err != nil {
				return 0, grpcstatus.Errorf(codes.FailedPrecondition, "a shared disk cannot grow while it is attached: %s", grpcstatus.Convert(err).Message())
			}
		}
		if size > v.Spec.CapacityBytes {
			before := v.DeepCopy()
			v.Spec.CapacityBytes = size
			err = s.Client.Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
		switch {
		case err == nil:
			return s.awaitGrown(ctx, v, size)
		case !apierrors.IsConflict(err):
			return 0, fmt.Errorf("ask for a larger disk: %w", err)
		}
	}
	return 0, grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", handle.VolumeName())
}

func (s *Server) awaitGrown(ctx context.Context, v *apiv1.AzVolume, size int64) (int64, error) {
	current := &apiv1.AzVolume{}
	err := s.Watch.until(ctx, func() (bool, error) {
		if err := s.Client.Get(ctx, s.key(v.Name), current); client.IgnoreNotFound(err) != nil {
			return false, err
		}
		if e := current.Status.Error; e != nil && current.Status.ObservedGeneration >= v.Generation && current.Status.SizeBytes < size &&
			final(provisioner.Kind(e.Kind)) {
			return true, failureOf(e)
		}
		return current.Status.SizeBytes >= size, nil
	}, watched{kindVolume, v.Name})
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, grpcstatus.Errorf(codes.Aborted, "the disk is still growing")
	}
	return current.Status.SizeBytes, err
}
