package csi

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// published returns the source of the bind mount to the target, and the device behind it. The
// kubelet treats a volume as staged as long as a pod on the node wants it, and does not call
// NodeStageVolume for the next pod, even if the node was fenced in between. Therefore a staged
// volume that cannot be published is staged again in place, under the current ownership.
func (s *Server) published(ctx context.Context, use usage.Usage, staging string) (source, device string, err error) {
	for restaged := false; ; restaged = true {
		var why string
		source, device, why, err = s.staged(ctx, use, staging)
		switch {
		case err != nil:
			return "", "", err
		case why == "":
			return source, device, nil
		case restaged:
			return "", "", provisioner.Errorf(provisioner.Unavailable,
				"cannot publish volume %s after it was staged in place: %s", use.Volume, why)
		}
		logr.FromContextOrDiscard(ctx).Info("staging a volume in place", "volumeName", use.Volume, "stagingPath", staging,
			"reason", why)
		// If this fails, the record and the entry remain: the kubelet still treats the volume as
		// staged and calls NodeUnstageVolume in the end. This does not wait for the publish,
		// because pods that use the volume could not be unpublished during the wait.
		if err := s.delivered(ctx, use.Volume, func() error { return s.stage(ctx, use, staging, s.grants.Read) }); err != nil {
			return "", "", inPlaceFailure(use.Volume, why, err)
		}
	}
}

// staged returns the bind source of a staged volume. why says what is wrong if it must be staged in
// place first.
func (s *Server) staged(ctx context.Context, use usage.Usage, staging string) (source, device, why string, err error) {
	record, _, err := s.options.Records.Of(use.Disk)
	if err != nil {
		return "", "", "", err
	}
	recorded := record.BootID == s.options.BootID
	if use.Block {
		if !recorded || !record.Block {
			return "", "", "", provisioner.Errorf(provisioner.FailedPrecondition,
				"cannot publish volume %s: it is not staged as a raw block device", use.Volume)
		}
		device, why, err := s.devices.StagedBlock(ctx, record)
		return device, device, why, err
	}
	mount, mounted, err := s.devices.MountAt(ctx, staging)
	switch {
	case err != nil:
		return "", "", "", err
	case !mounted && !(recorded && !record.Block && record.StagedAt(staging)):
		return "", "", "", provisioner.Errorf(provisioner.FailedPrecondition, "cannot publish volume %s: it is not staged at %s",
			use.Volume, staging)
	case recorded && record.Epoch > 0: // otherwise the V1 driver staged it, without an epoch
		if why, err = s.unusable(ctx, record, staging, mount, mounted); why != "" || err != nil {
			return "", "", why, err
		}
	}
	return staging, mount.Source, "", s.filesystems.CheckLabel(use)
}

// unusable says why a pod cannot use the filesystem of a record, or "".
func (s *Server) unusable(
	ctx context.Context, record nodereport.Record, staging string, mount provisioner.MountPoint, mounted bool,
) (string, error) {
	if _, why, err := s.grants.Lasting(ctx, record); why != "" || err != nil {
		return why, err
	}
	switch {
	case !mounted:
		return "nothing is mounted at " + staging, nil
	case mount.Source != record.Device:
		return fmt.Sprintf("%s is mounted there, and the device is %s", mount.Source, record.Device), nil
	case mount.Sealed && !record.ReadOnly:
		return "its filesystem is read-only", nil
	}
	if err := s.devices.Answers(ctx, record.Device); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// inPlaceFailure returns a failure that is not final, because the kubelet still treats the volume
// as staged.
func inPlaceFailure(volume, why string, failure error) error {
	switch {
	case errors.Is(failure, provisioner.Conflict), errors.Is(failure, context.DeadlineExceeded),
		errors.Is(failure, context.Canceled):
		return fmt.Errorf("stage volume %s in place (%s): %w", volume, why, failure)
	default:
		return provisioner.Errorf(provisioner.Unavailable, "stage volume %s in place (%s): %w", volume, why, failure)
	}
}
