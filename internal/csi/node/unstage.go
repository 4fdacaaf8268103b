package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodeUnstageVolume implements csi.NodeServer.
func (s *Server) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := s.unstageRequested(ctx, request); err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (s *Server) unstageRequested(ctx context.Context, request *csi.NodeUnstageVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return invalid("volume_id is missing")
	}
	path := request.GetStagingTargetPath()
	if err := checkPath("staging_target_path", path); err != nil {
		return err
	}
	disk, err := parseID(request.GetVolumeId())
	if err != nil {
		// No such volume was ever staged here; what remains to be done is to remove the path.
		return s.options.Host.Mounts().Unmount(ctx, path)
	}
	unlock, err := s.lock(disk.VolumeName())
	if err != nil {
		s.stopWork(disk.VolumeName())
		return err
	}
	defer unlock()
	_ = s.takeUndelivered(disk.VolumeName())
	return s.unstage(ctx, disk, path)
}

func (s *Server) unstage(ctx context.Context, disk volumehandle.Handle, path string) error {
	volume := disk.VolumeName()
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	record, recorded, err := s.record(disk)
	if errors.Is(err, errOtherDisk) {
		return s.unmountOther(ctx, path, err)
	}
	if err != nil {
		return err
	}
	if err := s.options.Report.BeginUnstage(ctx, volume); err != nil {
		return err
	}
	mount, mounted, err := s.mountAt(ctx, path)
	if err != nil {
		return err
	}
	if mounted {
		if !recorded || record.Device != mount.Source || record.BootID != s.options.BootID {
			// The next call finds no mount. Only the record tells it then which device has yet to be flushed.
			record.VolumeName, record.VolumeID, record.StagingPath = volume, disk.String(), path
			record.Device, record.BootID = mount.Source, s.options.BootID
			if err := s.options.Records.Put(record); err != nil {
				return err
			}
			recorded = true
		}
		if err := s.removePath(ctx, path); err != nil {
			return err
		}
	}
	if err := s.forget(ctx, volume, record, recorded); err != nil {
		return err
	}
	// Last: the kubelet does not call again for a raw block volume whose staging path is gone.
	return s.removePath(ctx, path)
}

func (s *Server) removePath(ctx context.Context, path string) error {
	if err := s.options.Host.Mounts().Unmount(ctx, path); err != nil {
		return fmt.Errorf("unmount volume: %w", err)
	}
	return nil
}

// forget removes the record of a volume that is not mounted, and then its entry in the report, which proves that this node has let go of the
// volume: a device that was used since the boot has been flushed before, and nothing holds it.
func (s *Server) forget(ctx context.Context, volume string, record nodereport.Record, recorded bool) error {
	if recorded && record.BootID == s.options.BootID {
		if err := s.release(ctx, volume, record.Device); err != nil {
			return err
		}
	}
	if recorded {
		if err := s.undoFormat(ctx, volume, record); err != nil {
			return err
		}
		if err := s.options.Records.Delete(volume); err != nil {
			return err
		}
	}
	return s.options.Report.Forget(ctx, volume)
}

// unmountOther unmounts a disk that cannot have been staged by this plug-in, because the record and the report's entry under its name are another disk's, and
// leaves those alone. Only a staging of the V1 driver can be there.
func (s *Server) unmountOther(ctx context.Context, path string, refusal error) error {
	records, err := s.options.Records.List()
	if err != nil {
		return err
	}
	for _, record := range records {
		if record.StagingPath == path {
			return refusal
		}
	}
	mount, mounted, err := s.mountAt(ctx, path)
	if err != nil || !mounted {
		return err
	}
	if err := s.options.Host.Mounts().Unmount(ctx, path); err != nil {
		return fmt.Errorf("unmount volume: %w", err)
	}
	return s.release(ctx, "", mount.Source)
}

// release makes sure that nothing on this node uses the device any more, and flushes it.
func (s *Server) release(ctx context.Context, volume, device string) error {
	if device == "" {
		return nil
	}
	records, err := s.options.Records.List()
	if err != nil {
		return err
	}
	for name, other := range records {
		if name != volume && other.Device == device && other.BootID == s.options.BootID {
			// The path means another volume's disk by now: ours has been cut off, and its device is gone.
			return nil
		}
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		if mount.Source == device {
			return provisioner.Errorf(provisioner.Conflict, "volume %s is still published at %s", volume, mount.Target)
		}
	}
	err = s.options.Host.Devices().Flush(ctx, device)
	if errors.Is(err, provisioner.Unavailable) {
		// The device fails: most likely the disk has been cut off this node. What was not
		// written is lost, and waiting does not bring it back; the node has let go all the same.
		logr.FromContextOrDiscard(ctx).Error(err, "the device did not take its last writes", "volumeName", volume, "device", device)
		return nil
	}
	return err
}
