package csi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/grant"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// settleTimeout limits the clean-up after a call has failed, when the call's own context may have
// ended.
const settleTimeout = 10 * time.Second

// NodeStageVolume implements csi.NodeServer.
func (s *Server) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, status.From(s.stageRequested(ctx, request))
}

func (s *Server) stageRequested(ctx context.Context, request *csi.NodeStageVolumeRequest) error {
	if request.GetVolumeId() == "" {
		return provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	path := request.GetStagingTargetPath()
	if err := usage.CheckStagingPath(path, s.options.KubeletDir); err != nil {
		return err
	}
	use, err := usage.Read(request.GetVolumeId(), request.GetVolumeCapability(), request.GetVolumeContext())
	if use.Disk == (volumehandle.Handle{}) {
		return err // the ID is not a disk's, so no earlier call has staged anything for it
	}
	unlock, lockErr := s.lock(use.Volume)
	if lockErr != nil {
		return lockErr
	}
	defer unlock()
	if err == nil {
		err = s.delivered(ctx, use.Volume, func() error { return s.stage(ctx, use, path, s.grants.Look) })
	}
	if err != nil {
		return s.settle(ctx, use.Disk, path, err)
	}
	s.note(use.Volume, problem.Staging, false, nil)
	return nil
}

// staging is a NodeStageVolume that may use the device.
type staging struct {
	use    usage.Usage
	path   string
	volume *apiv1.AzVolume
	grant  ownership.StageDecision
	// earlier is the node's record of an earlier call, if there is one.
	earlier nodereport.Record
}

// stage stages the volume. It calls look, which may wait for the publish, to read volume and
// attachment.
func (s *Server) stage(ctx context.Context, use usage.Usage, path string, look grant.Lookup) error {
	if _, _, err := s.options.Records.Of(use.Disk); err != nil {
		return err
	}
	volume, attachment, err := look(ctx, use.Disk)
	if err != nil {
		return err
	}
	if volume.Spec.Access == apiv1.AccessMultiNode && !use.Block {
		return provisioner.Errorf(provisioner.InvalidArgument,
			"volume %s may be used by several nodes and must be a raw block volume (volumeMode: Block)", use.Volume)
	}
	// Refuse early, to save a useless write of the report. The decision that counts is made after
	// announce.
	expected := s.grants.MayStage(volume, attachment)
	if expected.Outcome == ownership.StageRefused {
		return provisioner.Errorf(provisioner.FailedPrecondition, "%s", expected.Reason)
	}
	volume, grant, err := s.announce(ctx, use, path, expected.Epoch)
	if err != nil {
		return err
	}
	return s.useDevice(ctx, staging{use: use, path: path, volume: volume, grant: grant})
}

// announce writes to the report, and then reads whether the node may stage. If the ownership has
// another epoch by then, announce writes that epoch to the report too.
func (s *Server) announce(ctx context.Context, use usage.Usage, path string, epoch int64) (*apiv1.AzVolume,
	ownership.StageDecision, error) {
	for {
		if err := s.options.Report.Announce(ctx, use.Volume, epoch, path); err != nil {
			return nil, ownership.StageDecision{}, err
		}
		volume, grant, err := s.grants.Await(ctx, use.Disk)
		if err != nil || grant.Epoch == epoch {
			return volume, grant, err
		}
		epoch = grant.Epoch
	}
}

// settle ends every NodeStageVolume that fails: it removes what this call and earlier calls have
// left on the node, and returns the failure. If something remains, the failure gets a code after
// which the kubelet calls NodeUnstageVolume when the pod is deleted. After a final code the kubelet
// forgets the volume, and the rest would remain until the node reboots.
func (s *Server) settle(ctx context.Context, disk volumehandle.Handle, path string, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := s.undoStage(ctx, disk, path, failure)
	both := failure
	if err != nil {
		both = fmt.Errorf("%w; the volume must be unstaged: %w", failure, err)
	}
	s.note(disk.VolumeName(), problem.Staging, false, both)
	if err != nil {
		return status.NotFinal(failure, "the volume must be unstaged: "+err.Error())
	}
	return failure
}

// undoStage removes the record and the report's entry of a volume that is not staged, unless they
// belong to another disk with the same name. Its error says what remains.
func (s *Server) undoStage(ctx context.Context, disk volumehandle.Handle, path string, failure error) error {
	if err := s.options.Report.EnsureScanned(ctx); err != nil {
		return err
	}
	record, recorded, err := s.options.Records.Of(disk)
	ofAnother := errors.Is(err, nodereport.ErrOtherDisk) || !recorded && errors.Is(failure, nodereport.ErrOtherDisk)
	if err != nil && !ofAnother {
		return err
	}
	paths := []string{path}
	if recorded {
		paths = append(paths, record.Paths()...)
	}
	for _, p := range paths {
		if mount, mounted, err := s.devices.MountAt(ctx, p); err != nil {
			return err
		} else if mounted {
			return fmt.Errorf("%s is mounted at %s", mount.Source, p)
		}
	}
	switch {
	case ofAnother:
		return nil
	case record.Block && record.BootID == s.options.BootID:
		return fmt.Errorf("%s is staged as a raw block device", record.Device)
	}
	return s.forget(ctx, disk.VolumeName(), record, recorded)
}

// useDevice prepares and mounts the device after the node was granted its use.
func (s *Server) useDevice(ctx context.Context, at staging) error {
	device, grant, release, err := s.devices.Own(ctx, at.use, at.volume, at.grant)
	if err != nil {
		return s.devices.ReportLost(ctx, at.use, err)
	}
	defer release()
	at.grant = grant
	reserved, err := s.reserve(ctx, at, device.Path)
	if err == nil {
		err = s.useReserved(ctx, at, device, reserved)
	} else {
		err = s.devices.ReportLost(ctx, at.use, err) // what has the LUN may be another disk
	}
	if err != nil {
		s.unreserve(ctx, at.use.Disk, device.Path, reserved)
	}
	return err
}

// useReserved prepares and mounts a device that this node has reserved.
func (s *Server) useReserved(ctx context.Context, at staging, device provisioner.Device, reserved ownReservation) error {
	use := at.use
	if err := s.devices.Tune(ctx, use, at.volume, device.Path); err != nil {
		return err
	}
	device, err := s.devices.Part(ctx, device, use.Partition)
	if err != nil {
		return err
	}
	use.Sealed = at.grant.ReadOnly
	label := use.Label()
	record := nodereport.Record{
		VolumeName:   use.Volume,
		VolumeID:     use.Disk.String(),
		Epoch:        at.grant.Epoch,
		BootID:       s.options.BootID,
		StagingPath:  at.path,
		Device:       device.Path,
		LUN:          at.grant.LUN,
		Partition:    use.Partition,
		Sequence:     device.Sequence,
		SizeBytes:    device.SizeBytes,
		Block:        use.Block,
		ReadOnly:     use.MountsReadOnly() || use.Block && use.ReadOnly,
		SELinuxLabel: &label,
	}
	if record.OtherPaths, err = s.pathsBeside(ctx, record); err != nil {
		return err
	}
	staged := apiv1.StagedVolume{
		VolumeName:       use.Volume,
		Epoch:            at.grant.Epoch,
		Device:           device.Path,
		SizeBytes:        device.SizeBytes,
		StagingPath:      at.path,
		UnreservedReason: reserved.unreserved,
	}
	if reserved.key != 0 {
		record.ReservationKey, staged.ReservationKey = reserved.key.String(), reserved.key.String()
		record.Unfenced = reserved.unfenced
	}
	if use.Block {
		if err := s.stageBlock(ctx, at.path, record); err != nil {
			return err
		}
	} else {
		fs, err := s.filesystems.Stage(ctx, use, at.volume, record)
		if err != nil {
			return err
		}
		staged.Filesystem = &apiv1.FilesystemRecord{Type: fs.Type, UUID: fs.UUID}
	}
	return s.options.Report.Confirm(ctx, staged)
}

func (s *Server) stageBlock(ctx context.Context, path string, record nodereport.Record) error {
	mount, mounted, err := s.devices.MountAt(ctx, path)
	if err != nil {
		return err
	}
	if mounted {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to stage volume %s as a raw block device at %s: %s is mounted there, so it is staged as a filesystem",
			record.VolumeName, path, mount.Source)
	}
	if err := s.options.Records.Put(record); err != nil {
		return err
	}
	return s.devices.SetReadOnly(ctx, record, record.ReadOnly)
}
