package csi

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/condition"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodeGetVolumeStats implements csi.NodeServer.
func (s *Server) NodeGetVolumeStats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse,
	error) {
	response, err := s.stats(ctx, request)
	return response, status.From(err)
}

func (s *Server) stats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	disk, mount, err := s.inUseAt(ctx, request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	record, recorded, err := s.options.Records.Of(disk)
	if err != nil {
		return nil, err
	}
	response := &csi.NodeGetVolumeStatsResponse{}
	if recorded {
		faults, err := s.faults(ctx, record)
		if err != nil {
			return nil, err
		}
		if why := leftOver(mount, record); why != "" {
			faults = append(faults, unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, reasonDeviceGone, why))
		}
		s.noteReading(record, request.GetVolumePath(), faults)
		condition.Attach(response, len(faults) > 0, abnormal(faults))
	}
	if record.Block {
		response.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: record.SizeBytes}}
		return response, nil
	}
	stats, err := s.options.Host.Filesystems().Stats(ctx, request.GetVolumePath())
	if err != nil {
		return nil, fmt.Errorf("read use of volume %s: %w", disk.VolumeName(), err)
	}
	response.Usage = []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: stats.TotalBytes, Used: stats.UsedBytes, Available: stats.AvailableBytes},
		{Unit: csi.VolumeUsage_INODES, Total: stats.TotalInodes, Used: stats.UsedInodes, Available: stats.AvailableInodes},
	}
	return response, nil
}

// leftOver says why a pod must be restarted, or "": its mount is older than the volume's current
// staging, which is on another device.
func leftOver(mount provisioner.MountPoint, record nodereport.Record) string {
	if record.Device == "" || mount.Source == record.Device {
		return ""
	}
	return fmt.Sprintf("%s is mounted from %s, which was detached; volume %s is staged as %s now, and the pod must be restarted to use it",
		mount.Target, mount.Source, record.VolumeName, record.Device)
}

// inUseAt returns the volume's disk and the mount at the path. Errors: NotFound, together with the
// disk, if nothing is mounted there.
func (s *Server) inUseAt(ctx context.Context, volumeID, path string) (disk volumehandle.Handle, mount provisioner.MountPoint,
	err error) {
	if volumeID == "" {
		return disk, mount, provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	if path == "" {
		return disk, mount, provisioner.Errorf(provisioner.InvalidArgument, "volume_path is missing")
	}
	if disk, err = usage.ParseID(volumeID); err != nil {
		return disk, mount, err
	}
	mount, mounted, err := s.devices.MountAt(ctx, path)
	if err == nil && !mounted {
		err = provisioner.Errorf(provisioner.NotFound, "volume %s is not mounted at %s", disk.VolumeName(), path)
	}
	return disk, mount, err
}
