package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
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
	response, err := s.expand(ctx, handle, request)
	if err != nil {
		return nil, statusOf(err)
	}
	return response, nil
}

func (s *Server) expand(ctx context.Context, handle volumehandle.Handle, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	block, known := request.GetVolumeCapability().GetBlock() != nil, request.GetVolumeCapability() != nil
	var size int64
	v, err := s.rewrite(ctx, handle, access{pattern: apiv1.AccessSingleNode, block: block}, func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
		p := existingParameters(v, spec)
		var err error
		size, err = p.Size(request.GetCapacityRange().GetRequiredBytes(), request.GetCapacityRange().GetLimitBytes())
		if err != nil || size <= v.Status.SizeBytes {
			return err
		}
		if v.Spec.Disk.MaxShares > 1 {
			if err := s.unused(ctx, v); err != nil {
				return grpcstatus.Errorf(codes.FailedPrecondition, "a shared disk cannot grow while it is attached: %s", grpcstatus.Convert(err).Message())
			}
		}
		spec.CapacityBytes = max(spec.CapacityBytes, size)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v, err = s.awaitUpdate(ctx, v,
		func(is apiv1.AzVolumeStatus) bool { return is.SizeBytes >= size },
		func(is apiv1.AzVolumeStatus) *apiv1.Refusal { return is.RefusedCapacity }); err != nil {
		return nil, err
	}
	block = block || v.Spec.Access == apiv1.AccessMultiNode || !known && v.Spec.Origin == apiv1.OriginProvisioned && v.Spec.Disk.FSType == ""
	response := &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Status.SizeBytes, NodeExpansionRequired: true}
	if block {
		// A node that has the volume must look at its device again; one that gets it later does so anyway.
		response.NodeExpansionRequired, err = s.inUse(ctx, handle)
	}
	return response, err
}

// inUse says whether a node may be using the volume.
func (s *Server) inUse(ctx context.Context, handle volumehandle.Handle) (bool, error) {
	v, err := s.volume(ctx, handle)
	if err != nil {
		return false, err
	}
	if v == nil {
		return false, provisioner.Errorf(provisioner.NotFound, "volume %s has just gone", handle.VolumeName())
	}
	return v.Spec.Access == apiv1.AccessMultiNode || ownership.HasPrimary(v, nil), nil
}
