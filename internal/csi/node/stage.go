package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// settleTimeout limits the clean-up after a call has failed, when the call's own context may have ended.
const settleTimeout = 10 * time.Second

// NodeStageVolume implements csi.NodeServer.
func (s *Server) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := s.stageRequested(ctx, request); err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (s *Server) stageRequested(ctx context.Context, request *csi.NodeStageVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return invalid("volume_id is missing")
	}
	path := request.GetStagingTargetPath()
	if err := checkPath("staging_target_path", path); err != nil {
		return err
	}
	use, err := readUsage(request.GetVolumeId(), request.GetVolumeCapability(), request.GetVolumeContext())
	if use.disk == (volumehandle.Handle{}) {
		return err // the ID is not a disk's, so no earlier call has staged anything for it
	}
	unlock, lockErr := s.lock(use.volume)
	if lockErr != nil {
		return lockErr
	}
	defer unlock()
	if err == nil {
		err = s.delivered(ctx, use.volume, func() error { return s.stage(ctx, use, path, s.look) })
	}
	if err != nil {
		return s.settle(ctx, use.disk, path, err)
	}
	return nil
}

// stage stages the volume. It calls look, which may wait for the publish, to read volume and attachment.
func (s *Server) stage(ctx context.Context, use usage, path string, look lookup) error {
	if _, _, err := s.record(use.disk); err != nil {
		return err
	}
	volume, attachment, err := look(ctx, use.disk)
	if err != nil {
		return err
	}
	if volume.Spec.Access == apiv1.AccessMultiNode && !use.block {
		return invalid("volume %s may be used by several nodes and must be a raw block volume (volumeMode: Block)", use.volume)
	}
	// Refuse early, to save a useless write of the report. The decision that counts is made after announce.
	expected := s.mayStage(volume, attachment)
	if expected.Outcome == ownership.StageRefused {
		return refuse("%s", expected.Reason)
	}
	volume, grant, err := s.announce(ctx, use, path, expected.Epoch)
	if err != nil {
		return err
	}
	return s.useDevice(ctx, use, path, volume, grant)
}

// announce writes to the report, and then reads whether the node may stage. If the ownership has another epoch by then,
// announce writes that epoch to the report too.
func (s *Server) announce(ctx context.Context, use usage, path string, epoch int64) (*apiv1.AzVolume, ownership.StageDecision, error) {
	for {
		if err := s.options.Report.Announce(ctx, use.volume, epoch, path); err != nil {
			return nil, ownership.StageDecision{}, err
		}
		volume, grant, err := s.awaitGrant(ctx, use.disk)
		if err != nil || grant.Epoch == epoch {
			return volume, grant, err
		}
		epoch = grant.Epoch
	}
}

// settle ends every NodeStageVolume that fails: it removes what this call and earlier calls have left on the node, and
// returns the failure. If something remains, the failure gets a code after which the kubelet calls NodeUnstageVolume
// when the pod is deleted. After a final code the kubelet forgets the volume, and the rest would remain until the node
// reboots.
func (s *Server) settle(ctx context.Context, disk volumehandle.Handle, path string, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := s.undoStage(ctx, disk, path, failure); err != nil {
		return status.NotFinal(failure, "the volume must be unstaged: "+err.Error())
	}
	return failure
}

// undoStage removes the record and the report's entry of a volume that is not staged, unless they belong to another
// disk with the same name. Its error says what remains.
func (s *Server) undoStage(ctx context.Context, disk volumehandle.Handle, path string, failure error) error {
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	record, recorded, err := s.record(disk)
	ofAnother := errors.Is(err, errOtherDisk) || !recorded && errors.Is(failure, errOtherDisk)
	if err != nil && !ofAnother {
		return err
	}
	paths := []string{path}
	if recorded {
		paths = append(paths, record.StagingPath)
	}
	for _, p := range paths {
		if mount, mounted, err := s.mountAt(ctx, p); err != nil {
			return err
		} else if mounted {
			return fmt.Errorf("%s is mounted at %s", mount.Source, p)
		}
	}
	switch {
	case ofAnother:
		return nil
	case recorded && record.Block && record.BootID == s.options.BootID:
		return fmt.Errorf("%s is staged as a raw block device", record.Device)
	}
	return s.forget(ctx, disk.VolumeName(), record, recorded)
}

// useDevice prepares and mounts the device after the node was granted its use.
func (s *Server) useDevice(ctx context.Context, use usage, path string, volume *apiv1.AzVolume, grant ownership.StageDecision) error {
	device, grant, release, err := s.ownDevice(ctx, use, volume, grant)
	if err != nil {
		return s.reportLost(ctx, use, err)
	}
	defer release()
	if err := s.tune(ctx, use, volume, device.Path); err != nil {
		return err
	}
	if device, err = s.part(ctx, device, use.partition); err != nil {
		return err
	}
	use.sealed = grant.ReadOnly
	// Set it in both cases: the device may be write-protected from an earlier use.
	if err := s.options.Host.Devices().SetReadOnly(ctx, device.Path, use.block && (use.sealed || use.readOnly)); err != nil {
		return fmt.Errorf("set write protection: %w", err)
	}
	label := use.label()
	record := nodereport.Record{
		VolumeName: use.volume, VolumeID: use.disk.String(), Epoch: grant.Epoch, BootID: s.options.BootID,
		StagingPath: path, Device: device.Path, LUN: grant.LUN, Partition: use.partition, SizeBytes: device.SizeBytes, Block: use.block,
		ReadOnly: use.sealed || slices.Contains(use.flags, "ro"), SELinuxLabel: &label,
	}
	staged := apiv1.StagedVolume{
		VolumeName: use.volume, Epoch: grant.Epoch, Device: device.Path, SizeBytes: device.SizeBytes, StagingPath: path,
	}
	if use.block {
		if err := s.stageBlock(ctx, path, record); err != nil {
			return err
		}
	} else {
		fs, err := s.stageFilesystem(ctx, use, volume, record)
		if err != nil {
			return err
		}
		staged.Filesystem = &apiv1.FilesystemRecord{Type: fs.Type, UUID: fs.UUID}
	}
	return s.options.Report.Confirm(ctx, staged)
}

func (s *Server) stageBlock(ctx context.Context, path string, record nodereport.Record) error {
	mount, mounted, err := s.mountAt(ctx, path)
	if err != nil {
		return err
	}
	if mounted {
		return refuse("refusing to stage volume %s as a raw block device at %s: %s is mounted there, so it is staged as a filesystem",
			record.VolumeName, path, mount.Source)
	}
	return s.options.Records.Put(record)
}

// findDevice returns the device at the LUN after checking that it has the volume's size (law 4).
func (s *Server) findDevice(ctx context.Context, volume *apiv1.AzVolume, lun int32) (provisioner.Device, error) {
	device, err := s.options.Host.Devices().Find(ctx, lun)
	if err != nil {
		if ctx.Err() != nil {
			// The device did not appear in time; the volume itself exists.
			return provisioner.Device{}, fmt.Errorf("find device of volume %s: %s: %w", volume.Name, err.Error(), ctx.Err())
		}
		return provisioner.Device{}, fmt.Errorf("find device of volume %s: %w", volume.Name, err)
	}
	device, err = s.options.Host.Devices().Rescan(ctx, device.Path)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("rescan device of volume %s: %w", volume.Name, err)
	}
	if hasSize(volume, device.SizeBytes) {
		return device, nil
	}
	// The disk may have been expanded since the volume was read.
	if current, _, err := s.read(ctx, volumehandle.Of(volume.Spec.Disk)); err != nil {
		return provisioner.Device{}, err
	} else if current.UID == volume.UID && hasSize(current, device.SizeBytes) {
		return device, nil
	}
	return provisioner.Device{}, refuse("refusing to use device %s at LUN %d for volume %s: it has %d bytes, and the volume is recorded with %d",
		device.Path, lun, volume.Name, device.SizeBytes, volume.Status.SizeBytes)
}

// hasSize says whether a device can be the volume's by its size: it has the recorded size, or a size between that and
// the requested one, because a disk has grown before the controller can record its new size.
func hasSize(volume *apiv1.AzVolume, sizeBytes int64) bool {
	recorded := volume.Status.SizeBytes
	return recorded == 0 || sizeBytes == recorded || sizeBytes > recorded && sizeBytes <= volume.Spec.CapacityBytes
}

// part returns the given partition of a disk, or the disk itself for partition 0.
func (s *Server) part(ctx context.Context, disk provisioner.Device, partition int) (provisioner.Device, error) {
	if partition == 0 {
		return disk, nil
	}
	return s.options.Host.Tuner().Partition(ctx, disk.Path, partition)
}
