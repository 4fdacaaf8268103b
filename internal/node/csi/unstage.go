package csi

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodeUnstageVolume implements csi.NodeServer.
func (s *Server) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse,
	error) {
	return &csi.NodeUnstageVolumeResponse{}, status.From(s.unstageRequested(ctx, request))
}

func (s *Server) unstageRequested(ctx context.Context, request *csi.NodeUnstageVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	path := request.GetStagingTargetPath()
	if err := usage.CheckPath("staging_target_path", path); err != nil {
		return err
	}
	disk, err := usage.ParseID(request.GetVolumeId())
	if err != nil {
		// Such a volume was never staged on this node; only the path must be removed.
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

// unstage releases a volume, and has users told if that fails for long.
func (s *Server) unstage(ctx context.Context, disk volumehandle.Handle, path string) error {
	err := s.unstageAt(ctx, disk, path)
	s.note(disk.VolumeName(), problem.Staging, true, err)
	return err
}

func (s *Server) unstageAt(ctx context.Context, disk volumehandle.Handle, path string) error {
	volume := disk.VolumeName()
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	record, recorded, err := s.options.Records.Of(disk)
	if errors.Is(err, nodereport.ErrOtherDisk) {
		return s.unmountOther(ctx, path, err)
	}
	if err != nil {
		return err
	}
	if recorded {
		switch others, err := s.remaining(ctx, record, path); {
		case err != nil:
			return err
		case len(others) > 0:
			return s.unstagePath(ctx, record, path, others)
		}
	}
	if err := s.options.Report.BeginUnstage(ctx, volume); err != nil {
		return err
	}
	mount, mounted, err := s.devices.MountAt(ctx, path)
	if err != nil {
		return err
	}
	if mounted {
		if record.Device != mount.Source || record.BootID != s.options.BootID {
			// A repeated call finds no mount. Then only the record says which device must still be
			// flushed.
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
	if !recorded {
		s.leaveUnrecorded(ctx, disk)
	}
	if err := s.forget(ctx, volume, record, recorded); err != nil {
		return err
	}
	s.options.Report.ForgetProblems(volume)
	// Last: the kubelet does not repeat the call for a raw block volume whose staging path does not
	// exist.
	return s.removePath(ctx, path)
}

func (s *Server) removePath(ctx context.Context, path string) error {
	if err := s.options.Host.Mounts().Unmount(ctx, path); err != nil {
		return fmt.Errorf("unmount volume: %w", err)
	}
	return nil
}

// forget removes the record of a volume that is not mounted, and then its entry in the report,
// which proves that this node has released the volume. Before that it flushes a device that was
// used since the boot, checks that nothing holds it, write-protects it, and ends its reservation. The
// flush comes first, because the disk may refuse it without the reservation.
func (s *Server) forget(ctx context.Context, volume string, record nodereport.Record, recorded bool) error {
	if record.BootID == s.options.BootID {
		if err := s.release(ctx, volume, record.Device); err != nil {
			return err
		}
	}
	if recorded {
		if err := s.filesystems.UndoFormat(ctx, volume, record, s.reserveRecorded(record)); err != nil {
			return err
		}
		if err := s.protect(ctx, record); err != nil {
			return err
		}
		if err := s.leaveRecorded(ctx, record); err != nil {
			return err
		}
		if err := s.options.Records.Delete(volume); err != nil {
			return err
		}
	}
	return s.options.Report.Forget(ctx, volume)
}

// unmountOther unmounts a disk that this plug-in cannot have staged, because the record and the
// report's entry under its name belong to another disk. It does not change those. Only the V1
// driver can have staged the disk.
func (s *Server) unmountOther(ctx context.Context, path string, refusal error) error {
	records, err := s.options.Records.List()
	if err != nil {
		return err
	}
	for _, record := range records {
		if record.StagedAt(path) {
			return refusal
		}
	}
	mount, mounted, err := s.devices.MountAt(ctx, path)
	if err != nil || !mounted {
		return err
	}
	if err := s.options.Host.Mounts().Unmount(ctx, path); err != nil {
		return fmt.Errorf("unmount volume: %w", err)
	}
	return s.release(ctx, "", mount.Source)
}

// protect write-protects a device that was flushed. Neither an open file nor a loop device holds the
// device, so that after the flush another program on this node may still write to it. A device that
// is gone needs no protection, and a failure to protect is a failure to release the volume.
func (s *Server) protect(ctx context.Context, record nodereport.Record) error {
	if record.BootID != s.options.BootID || record.Device == "" {
		return nil
	}
	if reused, err := s.reused(record.VolumeName, record.Device); err != nil || reused {
		return err
	}
	err := s.options.Host.Devices().SetReadOnly(ctx, record.Used(), true)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return nil
	case err != nil:
		return fmt.Errorf("cannot release volume %s: other programs on this node may write to %s: %w", record.VolumeName,
			record.Device, err)
	}
	return s.flush(ctx, record.VolumeName, record.Device) // what was written since the last flush
}

// reused reports whether the path of a volume's device names another volume's disk now: the volume's
// disk was detached and its device removed.
func (s *Server) reused(volume, device string) (bool, error) {
	records, err := s.options.Records.List()
	if err != nil {
		return false, err
	}
	for name, other := range records {
		if name != volume && other.Device == device && other.BootID == s.options.BootID {
			return true, nil
		}
	}
	return false, nil
}

// release checks that nothing on this node uses the device any more, and flushes it.
func (s *Server) release(ctx context.Context, volume, device string) error {
	if device == "" {
		return nil
	}
	if reused, err := s.reused(volume, device); err != nil || reused {
		return err
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		if mount.Source == device {
			return provisioner.Errorf(provisioner.Conflict,
				"cannot unstage volume %s: it is still published at %s; unpublish it first", volume, mount.Target).
				With(provisioner.MountBusy)
		}
	}
	return s.flush(ctx, volume, device)
}

func (s *Server) flush(ctx context.Context, volume, device string) error {
	if err := s.options.Host.Devices().Flush(ctx, device); err != nil {
		return s.lostWrites(ctx, volume, err)
	}
	return nil
}
