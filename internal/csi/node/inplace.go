package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// published returns the source of the bind mount to the target, and the device behind it. The kubelet treats a volume
// as staged as long as a pod on the node wants it, and does not call NodeStageVolume for the next pod, even if the node
// was fenced in between. Therefore a staged volume that cannot be published is staged again in place, under the current
// ownership.
func (s *Server) published(ctx context.Context, use usage, staging string) (source, device string, err error) {
	for restaged := false; ; restaged = true {
		var why string
		source, device, why, err = s.staged(ctx, use, staging)
		switch {
		case err != nil:
			return "", "", err
		case why == "":
			return source, device, nil
		case restaged:
			return "", "", provisioner.Errorf(provisioner.Unavailable, "cannot publish volume %s after it was staged in place: %s", use.volume, why)
		}
		logr.FromContextOrDiscard(ctx).Info("staging a volume in place", "volumeName", use.volume, "stagingPath", staging, "reason", why)
		// If this fails, the record and the entry remain: the kubelet still treats the volume as staged and calls
		// NodeUnstageVolume in the end. This does not wait for the publish, because pods that use the volume could not
		// be unpublished during the wait.
		if err := s.delivered(ctx, use.volume, func() error { return s.stage(ctx, use, staging, s.read) }); err != nil {
			return "", "", inPlaceFailure(use.volume, why, err)
		}
	}
}

// staged returns the bind source of a staged volume. why says what is wrong if it must be staged in place first.
func (s *Server) staged(ctx context.Context, use usage, staging string) (source, device, why string, err error) {
	record, recorded, err := s.record(use.disk)
	if err != nil {
		return "", "", "", err
	}
	recorded = recorded && record.BootID == s.options.BootID
	if use.block {
		if !recorded || !record.Block {
			return "", "", "", refuse("cannot publish volume %s: it is not staged as a raw block device", use.volume)
		}
		device, why, err := s.stagedBlockDevice(ctx, record)
		return device, device, why, err
	}
	mount, mounted, err := s.mountAt(ctx, staging)
	switch {
	case err != nil:
		return "", "", "", err
	case !mounted && !(recorded && !record.Block && record.StagingPath == staging):
		return "", "", "", refuse("cannot publish volume %s: it is not staged at %s", use.volume, staging)
	case recorded && record.Epoch > 0: // otherwise the V1 driver staged it, without an epoch
		if why, err = s.unusable(ctx, record, mount, mounted); why != "" || err != nil {
			return "", "", why, err
		}
	}
	return staging, mount.Source, "", s.checkLabel(use)
}

// unusable says why a pod cannot use the filesystem of a record, or "".
func (s *Server) unusable(ctx context.Context, record nodereport.Record, mount provisioner.MountPoint, mounted bool) (string, error) {
	if _, why, err := s.lasting(ctx, record); why != "" || err != nil {
		return why, err
	}
	switch {
	case !mounted:
		return "nothing is mounted at " + record.StagingPath, nil
	case mount.Source != record.Device:
		return fmt.Sprintf("%s is mounted there, and the device is %s", mount.Source, record.Device), nil
	case mount.Sealed && !record.ReadOnly:
		return "its filesystem is read-only", nil
	}
	if err := s.answers(ctx, record.Device); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// lasting reads the ownership at the API server and says why the record is not valid any more, or "": its epoch has
// ended, or the report does not say that the volume is staged under that epoch, for example after a kill.
func (s *Server) lasting(ctx context.Context, record nodereport.Record) (attachment *apiv1.AzVolumeAttachment, why string, err error) {
	disk, err := parseID(record.VolumeID)
	if err != nil {
		return nil, "", fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	volume, attachment, err := s.read(ctx, disk)
	if errors.Is(err, provisioner.NotFound) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	if why := epochOver(s.options.NodeName, s.options.Instance.VMID, record.Epoch, volume, attachment); why != "" {
		return nil, fmt.Sprintf("it was staged under epoch %d, which is over: %s", record.Epoch, why), nil
	}
	entries, err := s.options.Report.Entries(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, entry := range entries {
		if entry.VolumeName == record.VolumeName && entry.Epoch == record.Epoch && entry.Phase == apiv1.PhaseStaged {
			return attachment, "", nil
		}
	}
	return nil, fmt.Sprintf("the report does not name it as staged under epoch %d", record.Epoch), nil
}

// stagedBlockDevice returns the device of a volume that is staged as a raw block device. It finds the device again,
// because no mount holds it and its path may name another disk after a detach.
func (s *Server) stagedBlockDevice(ctx context.Context, record nodereport.Record) (device, why string, err error) {
	attachment, why, err := s.lasting(ctx, record)
	switch {
	case why != "" || err != nil:
		return "", why, err
	case attachment == nil || attachment.Status.State != apiv1.AttachmentAttached || attachment.Status.LUN == nil:
		return "", "its disk is not attached", nil
	}
	round, cancel := context.WithTimeout(ctx, rereadInterval)
	defer cancel()
	found, err := s.options.Host.Devices().Find(round, *attachment.Status.LUN)
	switch {
	case err != nil && ctx.Err() == nil && round.Err() != nil:
		// Staging in place reports that the volume waits for its disk, and then the controller attaches the disk again.
		return "", fmt.Sprintf("there is no device at LUN %d", *attachment.Status.LUN), nil
	case err != nil:
		return "", "", fmt.Errorf("find device of volume %s: %w", record.VolumeName, err)
	}
	if found, err = s.part(ctx, found, record.Partition); err != nil {
		return "", "", err
	}
	if found.Path != record.Device {
		return "", fmt.Sprintf("it was staged as %s and is now %s", record.Device, found.Path), nil
	}
	disk, err := parseID(record.VolumeID)
	if err != nil {
		return "", "", fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	if other := s.otherDiskAt(ctx, disk, *attachment.Status.LUN); other != "" {
		return "", fmt.Sprintf("instance metadata says that disk %s is at LUN %d", other, *attachment.Status.LUN), nil
	}
	return found.Path, "", nil
}

// inPlaceFailure returns a failure that is not final, because the kubelet still treats the volume as staged.
func inPlaceFailure(volume, why string, failure error) error {
	switch {
	case errors.Is(failure, provisioner.Conflict), errors.Is(failure, context.DeadlineExceeded), errors.Is(failure, context.Canceled):
		return fmt.Errorf("stage volume %s in place (%s): %w", volume, why, failure)
	default:
		return provisioner.Errorf(provisioner.Unavailable, "stage volume %s in place (%s): %w", volume, why, failure)
	}
}
