package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ControllerGetVolume returns one volume, from the API server; Azure is asked whether its disk is there. What is wrong with a
// volume is told by ControllerGetVolumeHealth. A volume that nobody knows is NotFound.
func (s *Server) ControllerGetVolume(ctx context.Context, request *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, invalidArgument("volume ID: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	entry, err := s.getVolume(ctx, request.GetVolumeId(), handle)
	if err != nil {
		return nil, statusOf(err)
	}
	return &csi.ControllerGetVolumeResponse{Volume: entry.GetVolume(), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
		PublishedNodeIds: entry.GetStatus().GetPublishedNodeIds(),
	}}, nil
}

func (s *Server) getVolume(ctx context.Context, id string, handle volumehandle.Handle) (*csi.ListVolumesResponse_Entry, error) {
	v, err := s.volume(ctx, handle)
	if err != nil {
		if status.Code(err) != codes.FailedPrecondition {
			return nil, err
		}
		v = nil // the AzVolume is of another disk
	}
	look, err := s.newLook(ctx)
	if err != nil {
		return nil, err
	}
	disk, err := s.Disks.Get(ctx, handle.String())
	switch {
	case errors.Is(err, provisioner.NotFound) && (v == nil || v.Status.DiskURI == ""):
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	case errors.Is(err, provisioner.NotFound): // its health tells
	case err != nil:
		return nil, fmt.Errorf("read disk: %w", err)
	}
	if v == nil {
		return look.entryOfDisk(id, disk), nil
	}
	attachments, err := s.attachmentsOf(ctx, s.Reader, v.Name)
	if err != nil {
		return nil, err
	}
	return look.render(id, v.Status.SizeBytes, s.accessible(v.Spec.Disk), ownership.PublishedTo(v, attachments, look.back)), nil
}
