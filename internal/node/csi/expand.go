package csi

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodeExpandVolume implements csi.NodeServer. It makes the kernel read the size of the volume's
// device again, and then grows the filesystem, if there is one. Errors: Unavailable while the
// device does not have the required size.
func (s *Server) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse,
	error) {
	response, err := s.expand(ctx, request)
	return response, status.From(err)
}

func (s *Server) expand(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	disk, mount, err := s.inUseAt(ctx, request.GetVolumeId(), request.GetVolumePath())
	mounted := err == nil
	if err != nil && (disk.DiskName == "" || !errors.Is(err, provisioner.NotFound)) {
		return nil, err
	}
	name := disk.VolumeName()
	unlock, lockErr := s.lock(name)
	if lockErr != nil {
		return nil, lockErr
	}
	defer unlock()
	record, recorded, recordErr := s.options.Records.Of(disk)
	switch {
	case recordErr != nil:
		return nil, recordErr
	case !mounted && !(record.Block && record.BootID == s.options.BootID):
		return nil, err
	case !mounted:
		// After its restart the kubelet uses another path for a block device than the one where it
		// was published.
		mount.Source = record.Device
	case record.BootID == s.options.BootID && leftOver(mount, record) != "":
		return nil, provisioner.Errorf(provisioner.Unavailable, "expand volume %s: %s", name, leftOver(mount, record))
	}
	device, err := s.options.Host.Devices().Rescan(ctx, mount.Source)
	if err != nil {
		return nil, fmt.Errorf("rescan device of volume %s: %w", name, err)
	}
	required := request.GetCapacityRange().GetRequiredBytes()
	switch {
	case device.SizeBytes >= required:
	case record.Partition > 0:
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"cannot expand volume %s to %d bytes: it is partition %d of its disk, which has %d bytes and does not grow with the disk; "+
				"grow the partition manually", name, required, record.Partition, device.SizeBytes)
	default:
		return nil, provisioner.Errorf(provisioner.Unavailable,
			"expand volume %s: device %s has %d bytes, and %d are required; waiting until the kernel shows the new size",
			name, device.Path, device.SizeBytes, required)
	}
	if err := s.recordSize(ctx, record, recorded, device.SizeBytes); err != nil {
		return nil, err
	}
	if !record.Block {
		if err := s.options.Host.Filesystems().Grow(ctx, device.Path, request.GetVolumePath()); err != nil {
			return nil, fmt.Errorf("grow filesystem: %w", err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: device.SizeBytes}, nil
}

// recordSize writes the size of a device that has grown to the record and the report.
func (s *Server) recordSize(ctx context.Context, record nodereport.Record, recorded bool, sizeBytes int64) error {
	if !recorded {
		return nil
	}
	if record.SizeBytes != sizeBytes {
		record.SizeBytes = sizeBytes
		if err := s.options.Records.Put(record); err != nil {
			return err
		}
	}
	return s.options.Report.Resized(ctx, record.VolumeName, sizeBytes)
}
