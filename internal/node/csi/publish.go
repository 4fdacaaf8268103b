package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// tellTimeout limits a write of the report that the end of a pod waits for.
const tellTimeout = 2 * time.Second

// NodePublishVolume implements csi.NodeServer.
func (s *Server) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse,
	error) {
	if err := s.publishRequested(ctx, request); err != nil {
		return nil, status.From(s.settlePublish(ctx, request.GetTargetPath(), err))
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// settlePublish ends every NodePublishVolume that fails. If the volume is mounted at the target
// path nevertheless, the failure gets a code after which the kubelet calls NodeUnpublishVolume when
// the pod is deleted. AlreadyExists remains, as CSI requires: an earlier call that succeeded made
// the mount.
func (s *Server) settlePublish(ctx context.Context, target string, failure error) error {
	if errors.Is(failure, provisioner.AlreadyExists) {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	mount, mounted, err := s.devices.MountAt(ctx, target)
	switch {
	case err != nil:
		return status.NotFinal(failure, "cannot read the mount at the target path: "+err.Error())
	case mounted:
		return status.NotFinal(failure, fmt.Sprintf("the volume must be unpublished: %s is mounted at %s", mount.Source, target))
	}
	return failure
}

func (s *Server) publishRequested(ctx context.Context, request *csi.NodePublishVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	staging, target := request.GetStagingTargetPath(), request.GetTargetPath()
	if err := usage.CheckPath("target_path", target); err != nil {
		return err
	}
	if request.GetVolumeCapability() == nil {
		return provisioner.Errorf(provisioner.InvalidArgument, "the volume capability is missing")
	}
	if err := usage.CheckPath("staging_target_path", staging); err != nil {
		return err
	}
	use, err := usage.Read(request.GetVolumeId(), request.GetVolumeCapability(), request.GetVolumeContext())
	if err != nil {
		return err
	}
	readOnly := use.ReadOnly || request.GetReadonly()
	unlock, err := s.lock(use.Volume)
	if err != nil {
		return err
	}
	defer unlock()
	err = s.publish(ctx, use, readOnly, staging, target)
	s.note(use.Volume, problem.Publishing(target), false, err)
	return err
}

func (s *Server) publish(ctx context.Context, use usage.Usage, readOnly bool, staging, target string) error {
	source, device, err := s.published(ctx, use, staging)
	if err != nil {
		return err
	}
	if use.OneTarget {
		if err := s.checkUnpublished(ctx, use.Disk, device, staging, target); err != nil {
			return err
		}
	}
	if err := s.options.Report.Publish(ctx, use.Volume); err != nil {
		return err
	}
	if err := s.options.Host.Mounts().Bind(ctx, source, target, readOnly, nil); err != nil {
		return fmt.Errorf("publish volume: %w", err)
	}
	return nil
}

// subPaths is the directory in which the kubelet mounts subdirectories of a published volume.
const subPaths = "/volume-subpaths/"

// checkUnpublished enforces the access mode SINGLE_NODE_SINGLE_WRITER.
func (s *Server) checkUnpublished(ctx context.Context, disk volumehandle.Handle, device, staging, target string) error {
	record, _, err := s.options.Records.Of(disk)
	if err != nil {
		return err
	}
	stagings := append(record.Paths(), staging)
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		ours := mount.Target == target || slices.Contains(stagings, mount.Target) || strings.Contains(mount.Target, subPaths)
		if mount.Source == device && !ours {
			return provisioner.Errorf(provisioner.FailedPrecondition,
				"refusing to publish the volume at %s: its access mode allows one target path, and it is published at %s", target,
				mount.Target)
		}
	}
	return nil
}

// NodeUnpublishVolume implements csi.NodeServer.
func (s *Server) NodeUnpublishVolume(ctx context.Context,
	request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, status.From(s.unpublish(ctx, request))
}

func (s *Server) unpublish(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	if err := usage.CheckPath("target_path", request.GetTargetPath()); err != nil {
		return err
	}
	err := s.unpublishAt(ctx, lockKey(request.GetVolumeId()), request.GetTargetPath())
	if disk, idErr := usage.ParseID(request.GetVolumeId()); idErr == nil {
		s.note(disk.VolumeName(), problem.Publishing(request.GetTargetPath()), true, err)
	}
	return err
}

func (s *Server) unpublishAt(ctx context.Context, volume, target string) error {
	// Without the lock: other pods of the node may start to use the volume while it is written.
	if err := s.sync(ctx, volume, target); err != nil {
		return err
	}
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.options.Host.Mounts().Unmount(ctx, target); err != nil {
		return fmt.Errorf("unpublish volume: %w", err)
	}
	if err := s.keepOnePath(ctx, volume); err != nil {
		return err
	}
	return s.tellUnpublished(ctx, volume)
}

// sync writes to the disk what the pod has written to the volume. The kubelet deletes the pod's
// object after this call, and does not wait for NodeUnstageVolume. Without VolumeAttachments
// whatever deletes the VM waits for no more than that object. If the device is still writing when
// ctx ends, the call fails, and the kubelet repeats it.
func (s *Server) sync(ctx context.Context, volume, target string) error {
	if err := s.options.Host.Mounts().Sync(ctx, target); err != nil {
		return s.lostWrites(ctx, volume, fmt.Errorf("unpublish volume: %w", err))
	}
	return nil
}

// lostWrites reports a device that does not take its last data, and returns nil then: most likely the
// disk was detached from this node. Waiting does not restore the data, and must not keep the volume on
// the node. It returns any other error. volume is "" if the disk is not the one of the AzVolume.
func (s *Server) lostWrites(ctx context.Context, volume string, err error) error {
	if !errors.Is(err, provisioner.Unavailable) {
		return err
	}
	logr.FromContextOrDiscard(ctx).Error(err, "cannot flush the device: its last writes are lost", "volumeName", volume)
	if volume != "" {
		s.options.Report.LostWrites(volume, err.Error())
	}
	return nil
}

// tellUnpublished writes to the report that a volume is mounted for no pod any more, if that is so.
// The kubelet removes the pod's object after this call: the report is earlier than the successor
// of the pod, which may then start on this node. A write that fails does not keep the pod from
// ending.
func (s *Server) tellUnpublished(ctx context.Context, volume string) error {
	record, recorded, err := s.options.Records.Get(volume)
	if !recorded {
		return err
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	if slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool {
		return m.Source == record.Device && !record.StagedAt(m.Target)
	}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := s.options.Report.Unpublished(ctx, volume); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "the next write of the report tells it", "volume", volume)
	}
	return nil
}

// lockKey is the volume's name, or the ID itself if it is not a disk's.
func lockKey(volumeID string) string {
	if disk, err := usage.ParseID(volumeID); err == nil {
		return disk.VolumeName()
	}
	return volumeID
}
