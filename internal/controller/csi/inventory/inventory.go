// Package inventory answers the calls of the CSI controller server about the volumes that exist: it
// lists them, says where they are published and how they can be used, and reports their health. It
// changes nothing.
package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Options of a Lister.
type Options struct {
	*cluster.Records
	*call.Calls
	Disks    provisioner.Disks
	Clock    clock.PassiveClock
	Topology topology.Key
	// DriverName by which PersistentVolumes name the driver.
	DriverName string
}

// Lister serves the calls.
type Lister struct {
	Options
	cached *diskCache
}

// New makes a Lister.
func New(options Options) *Lister {
	return &Lister{Options: options, cached: newDiskCache(options.Disks, options.Clock)}
}

// ControllerGetVolume returns one volume, from the API server, and asks Azure whether its disk
// exists. The health of a volume is reported by ControllerGetVolumeHealth. A volume without an
// AzVolume and a disk is NotFound.
func (s *Lister) ControllerGetVolume(ctx context.Context,
	request *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	entry, err := s.getVolume(ctx, request.GetVolumeId(), handle)
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.ControllerGetVolumeResponse{Volume: entry.GetVolume(), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
		PublishedNodeIds: entry.GetStatus().GetPublishedNodeIds(),
	}}, nil
}

func (s *Lister) getVolume(ctx context.Context, id string, handle volumehandle.Handle) (*csi.ListVolumesResponse_Entry, error) {
	v, err := s.Volume(ctx, handle)
	if err != nil && status.Code(err) != codes.FailedPrecondition { // there is none, or it is of another disk
		return nil, err
	}
	look, err := s.newLook(ctx)
	if err != nil {
		return nil, err
	}
	var disk provisioner.Disk
	if refusal.Paused(v, "") == nil {
		disk, err = s.Disks.Get(ctx, handle.String())
	}
	switch {
	case errors.Is(err, provisioner.NotFound) && (v == nil || v.Status.DiskID == ""):
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	case errors.Is(err, provisioner.NotFound): // ControllerGetVolumeHealth reports it
	case err != nil:
		return nil, fmt.Errorf("read disk: %w", err)
	}
	if v == nil {
		return look.entryOfDisk(id, disk), nil
	}
	attachments, err := s.Attachments(ctx, s.Reader, v.Name)
	if err != nil {
		return nil, err
	}
	return look.render(id, v.Status.SizeBytes, s.Topology.Accessible(v.Spec.Disk),
		ownership.PublishedTo(v, attachments, s.reachable(ctx))), nil
}

// ValidateVolumeCapabilities reports whether a volume can be used as asked. It changes nothing.
func (s *Lister) ValidateVolumeCapabilities(ctx context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	switch {
	case request.GetVolumeId() != "" && len(request.GetVolumeCapabilities()) == 0:
		return nil, call.InvalidArgument("volume capabilities: missing")
	case err != nil:
		return nil, err
	}
	shares, pattern, err := s.existing(ctx, handle)
	if err != nil {
		return nil, status.From(err)
	}
	a, fault, err := call.AccessOf(request.GetVolumeCapabilities(), shares)
	if err != nil {
		return nil, err
	}
	if fault == "" && a.Pattern == apiv1.AccessMultiNode && pattern == apiv1.AccessSingleNode {
		fault = "the volume is for one node at a time"
	}
	if err := call.CheckMountOptions(request.GetVolumeCapabilities()); err != nil && fault == "" {
		fault = err.Error()
	}
	if fault != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: fault}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      request.GetVolumeContext(),
		VolumeCapabilities: request.GetVolumeCapabilities(),
		Parameters:         request.GetParameters(),
	}}, nil
}

// existing returns the shares and the access pattern of a volume; the pattern is "" for a disk that
// has not been adopted.
func (s *Lister) existing(ctx context.Context, handle volumehandle.Handle) (int32, apiv1.AccessPattern, error) {
	v, err := s.Volume(ctx, handle)
	if err != nil {
		return 0, "", err
	}
	if v != nil {
		return v.Shares(), v.Spec.Access, nil
	}
	disk, err := s.Disks.Get(ctx, handle.String())
	if errors.Is(err, provisioner.NotFound) {
		return 0, "", grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	}
	return disk.MaxShares, "", err
}
