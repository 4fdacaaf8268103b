package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/csi/condition"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodeGetVolumeStats implements csi.NodeServer.
func (s *Server) NodeGetVolumeStats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	response, err := s.stats(ctx, request)
	if err != nil {
		return nil, status.From(err)
	}
	return response, nil
}

func (s *Server) stats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	name, _, err := s.inUseAt(ctx, request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	record, recorded, err := s.options.Records.Get(name)
	if err != nil {
		return nil, err
	}
	response := &csi.NodeGetVolumeStatsResponse{}
	if recorded {
		faults, err := s.faults(ctx, record)
		if err != nil {
			return nil, err
		}
		condition.Attach(response, len(faults) > 0, abnormal(faults))
	}
	if recorded && record.Block {
		response.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: record.SizeBytes}}
		return response, nil
	}
	stats, err := s.options.Host.Filesystems().Stats(ctx, request.GetVolumePath())
	if err != nil {
		return nil, fmt.Errorf("read use of volume %s: %w", name, err)
	}
	response.Usage = []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: stats.TotalBytes, Used: stats.UsedBytes, Available: stats.AvailableBytes},
		{Unit: csi.VolumeUsage_INODES, Total: stats.TotalInodes, Used: stats.UsedInodes, Available: stats.AvailableInodes},
	}
	return response, nil
}

// inUseAt returns the volume's name and what is mounted at the path. Errors: NotFound where nothing is.
func (s *Server) inUseAt(ctx context.Context, volumeID, path string) (string, provisioner.MountPoint, error) {
	if volumeID == "" {
		return "", provisioner.MountPoint{}, invalid("volume_id is missing")
	}
	if path == "" {
		return "", provisioner.MountPoint{}, invalid("volume_path is missing")
	}
	name, err := volumeName(volumeID)
	if err != nil {
		return "", provisioner.MountPoint{}, err
	}
	mount, mounted, err := s.mountAt(ctx, path)
	if err != nil {
		return "", provisioner.MountPoint{}, err
	}
	if !mounted {
		return "", provisioner.MountPoint{}, provisioner.Errorf(provisioner.NotFound, "volume %s is not mounted at %s", name, path)
	}
	return name, mount, nil
}

// NodeExpandVolume implements csi.NodeServer.
func (s *Server) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	response, err := s.expand(ctx, request)
	if err != nil {
		return nil, status.From(err)
	}
	return response, nil
}

func (s *Server) expand(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	name, mount, err := s.inUseAt(ctx, request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	device, err := s.options.Host.Devices().Rescan(ctx, mount.Source)
	if err != nil {
		return nil, fmt.Errorf("rescan device of volume %s: %w", name, err)
	}
	if required := request.GetCapacityRange().GetRequiredBytes(); device.SizeBytes < required {
		return nil, provisioner.Errorf(provisioner.Unavailable, "device %s has %d bytes and not yet the %d that are required", device.Path, device.SizeBytes, required)
	}
	record, recorded, err := s.options.Records.Get(name)
	if err != nil {
		return nil, err
	}
	if err := s.growContent(ctx, request.GetVolumePath(), device, record, recorded); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: device.SizeBytes}, nil
}

func (s *Server) growContent(ctx context.Context, path string, device provisioner.Device, record nodereport.Record, recorded bool) error {
	if !recorded || !record.Block {
		if err := s.options.Host.Filesystems().Grow(ctx, device.Path, path); err != nil {
			return fmt.Errorf("grow filesystem: %w", err)
		}
	}
	if !recorded || record.SizeBytes == device.SizeBytes {
		return nil
	}
	record.SizeBytes = device.SizeBytes
	return s.options.Records.Put(record)
}
