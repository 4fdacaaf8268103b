package controller

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ValidateVolumeCapabilities says whether a volume can be used as asked. It changes nothing.
func (s *Server) ValidateVolumeCapabilities(ctx context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, invalidArgument("volume ID: missing")
	}
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, invalidArgument("volume capabilities: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	shares, pattern, err := s.existing(ctx, handle)
	if err != nil {
		return nil, statusOf(err)
	}
	a, fault, err := accessOf(request.GetVolumeCapabilities(), shares)
	if err != nil {
		return nil, err
	}
	if fault == "" && a.pattern == apiv1.AccessMultiNode && pattern == apiv1.AccessSingleNode {
		fault = "the volume is for one node at a time"
	}
	if fault != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: fault}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: request.GetVolumeContext(), VolumeCapabilities: request.GetVolumeCapabilities(), Parameters: request.GetParameters(),
	}}, nil
}

// existing returns the shares and the access pattern of a volume; the pattern is "" for a disk that has not been adopted.
func (s *Server) existing(ctx context.Context, handle volumehandle.Handle) (int32, apiv1.AccessPattern, error) {
	v, err := s.volume(ctx, handle)
	if err != nil {
		return 0, "", err
	}
	if v != nil {
		return v.Spec.Disk.MaxShares, v.Spec.Access, nil
	}
	disk, err := s.Disks.Get(ctx, handle.String())
	if errors.Is(err, provisioner.NotFound) {
		return 0, "", grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	}
	return disk.MaxShares, "", err
}
