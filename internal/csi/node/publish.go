package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NodePublishVolume implements csi.NodeServer.
func (s *Server) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := s.publishRequested(ctx, request); err != nil {
		return nil, status.From(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *Server) publishRequested(ctx context.Context, request *csi.NodePublishVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return invalid("volume_id is missing")
	}
	staging, target := request.GetStagingTargetPath(), request.GetTargetPath()
	if err := checkPath("target_path", target); err != nil {
		return err
	}
	if request.GetVolumeCapability() == nil {
		return invalid("the volume capability is missing")
	}
	if err := checkPath("staging_target_path", staging); err != nil {
		return err
	}
	use, err := readUsage(request.GetVolumeId(), request.GetVolumeCapability(), request.GetVolumeContext())
	if err != nil {
		return err
	}
	use.readOnly = use.readOnly || request.GetReadonly()
	unlock, err := s.lock(use.volume)
	if err != nil {
		return err
	}
	defer unlock()
	return s.publish(ctx, use, staging, target)
}

func (s *Server) publish(ctx context.Context, use usage, staging, target string) error {
	source, device, err := s.publishSource(ctx, use, staging)
	if err != nil {
		return err
	}
	if use.exclusive {
		if err := s.checkUnpublished(ctx, device, staging, target); err != nil {
			return err
		}
	}
	if err := s.options.Host.Mounts().Bind(ctx, source, target, use.readOnly, nil); err != nil {
		return fmt.Errorf("publish volume: %w", err)
	}
	return nil
}

// publishSource returns what is bound to the target, and the device behind it.
func (s *Server) publishSource(ctx context.Context, use usage, staging string) (source, device string, err error) {
	if use.block {
		device, err := s.stagedBlockDevice(ctx, use.disk)
		return device, device, err
	}
	mount, mounted, err := s.mountAt(ctx, staging)
	if err != nil {
		return "", "", err
	}
	if !mounted {
		return "", "", refuse("volume %s is not staged at %s", use.volume, staging)
	}
	if err := s.checkLabel(use); err != nil {
		return "", "", err
	}
	return staging, mount.Source, nil
}

// stagedBlockDevice returns the device of a volume that is staged as raw block. Nothing mounted holds the
// device in its place, and its path may mean another disk after a detach; so it is found anew.
func (s *Server) stagedBlockDevice(ctx context.Context, disk volumehandle.Handle) (string, error) {
	name := disk.VolumeName()
	record, recorded, err := s.record(disk)
	if err != nil {
		return "", err
	}
	if !recorded || !record.Block || record.BootID != s.options.BootID {
		return "", refuse("volume %s is not staged as a raw block device", name)
	}
	volume, attachment, err := s.read(ctx, disk)
	if err != nil {
		return "", err
	}
	decision := s.mayStage(volume, attachment)
	if decision.Verdict != Stage || decision.Epoch != record.Epoch {
		return "", refuse("volume %s was staged under epoch %d, which is over: %s", name, record.Epoch, decision.Reason)
	}
	device, err := s.options.Host.Devices().Find(ctx, decision.LUN)
	if err != nil {
		return "", fmt.Errorf("find device of volume %s: %w", name, err)
	}
	if device, err = s.part(ctx, device, record.Partition); err != nil {
		return "", err
	}
	if device.Path != record.Device {
		return "", refuse("volume %s was staged as %s and is now %s: it must be staged again", name, record.Device, device.Path)
	}
	return device.Path, nil
}

// subPaths is the directory in which the kubelet mounts parts of a volume that is published already.
const subPaths = "/volume-subpaths/"

// checkUnpublished holds the access mode SINGLE_NODE_SINGLE_WRITER.
func (s *Server) checkUnpublished(ctx context.Context, device, staging, target string) error {
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		if mount.Source == device && mount.Target != staging && mount.Target != target && !strings.Contains(mount.Target, subPaths) {
			return provisioner.Errorf(provisioner.FailedPrecondition, "the volume may have one target path and is published at %s", mount.Target)
		}
	}
	return nil
}

// NodeUnpublishVolume implements csi.NodeServer.
func (s *Server) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := s.unpublish(ctx, request); err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return invalid("volume_id is missing")
	}
	if err := checkPath("target_path", request.GetTargetPath()); err != nil {
		return err
	}
	unlock, err := s.lock(lockKey(request.GetVolumeId()))
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.options.Host.Mounts().Unmount(ctx, request.GetTargetPath()); err != nil {
		return fmt.Errorf("unpublish volume: %w", err)
	}
	return nil
}

// lockKey is the volume's name, or the ID itself where that names none.
func lockKey(volumeID string) string {
	if disk, err := parseID(volumeID); err == nil {
		return disk.VolumeName()
	}
	return volumeID
}
