// Package filesystem prepares the filesystem of a volume and mounts it at its staging path. It
// decides what is done to the content of a device (law 4) and whether a mount that exists is kept.
package filesystem

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/device"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Stager mounts the volumes of one node.
type Stager struct {
	*device.Finder
	// NewUUID returns the UUID of a new filesystem.
	NewUUID func() string
}

// Stage mounts the device of a record, with the volume's filesystem, at its staging path and
// returns the filesystem.
func (s *Stager) Stage(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume,
	record nodereport.Record) (provisioner.Filesystem, error) {
	found, err := s.clearStale(ctx, use, record)
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	record.ReadOnly = record.ReadOnly && found.writable == ""
	if found.mounted() {
		if err := s.CheckLabel(use); err != nil {
			return provisioner.Filesystem{}, err
		}
	}
	fs, err := s.prepare(ctx, use, volume, record, found.mounted())
	if err != nil {
		return provisioner.Filesystem{}, s.ReportLost(ctx, use, err)
	}
	if err := s.checkAndMount(ctx, use, record, fs, found); err != nil {
		return provisioner.Filesystem{}, err
	}
	if !found.here {
		if err := s.confirmMount(ctx, use, record); err != nil {
			return provisioner.Filesystem{}, err
		}
	}
	if use.MountsReadOnly() {
		return fs, nil
	}
	err = s.Host.Filesystems().Grow(ctx, record.Device, record.StagingPath)
	if errors.Is(err, provisioner.FailedPrecondition) {
		// The disk has grown after the filesystem was mounted. The next stage grows it; this one would
		// fail as often as it is tried.
		logr.FromContextOrDiscard(ctx).Info("the filesystem stays smaller than its disk", "volumeName", use.Volume,
			"reason", err.Error())
		return fs, nil
	}
	if err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("grow filesystem: %w", err)
	}
	return fs, nil
}

// checkAndMount mounts the device of a record at its staging path. If something holds a device that
// is not mounted, a failure names the holder: it may outlive the pod, as a loop device over a file of
// the volume.
func (s *Stager) checkAndMount(ctx context.Context, use usage.Usage, record nodereport.Record, fs provisioner.Filesystem,
	found kept) error {
	filesystems := s.Host.Filesystems()
	var holder error
	if !found.mounted() {
		if err := s.Host.Devices().Flush(ctx, record.Device); errors.Is(err, provisioner.Conflict) {
			holder = err
		}
	}
	if !found.mounted() && !use.Sealed && !use.Unchecked() {
		if err := filesystems.Check(ctx, record.Device, fs); err != nil {
			return heldBy(fmt.Errorf("check filesystem: %w", err), holder)
		}
		if err := filesystems.Grow(ctx, record.Device, ""); err != nil {
			return heldBy(fmt.Errorf("grow filesystem: %w", err), holder)
		}
	}
	if err := s.mount(ctx, use, record, fs.Type, found); err != nil {
		return heldBy(fmt.Errorf("mount volume: %w", err), holder)
	}
	return nil
}

// heldBy adds the holder of a device to a failure, whose kind stays.
func heldBy(failure, holder error) error {
	if holder == nil {
		return failure
	}
	return fmt.Errorf("%w; %s", failure, holder.Error())
}

// mount mounts the device at the record's staging path. The kernel does not mount a device
// read-only that is mounted for writing, so the second path is a read-only view of the first.
func (s *Stager) mount(ctx context.Context, use usage.Usage, record nodereport.Record, fsType string, found kept) error {
	if found.writable != "" && use.MountsReadOnly() {
		return s.Host.Mounts().Bind(ctx, found.writable, record.StagingPath, true, nil)
	}
	return s.Host.Mounts().Mount(ctx, record.Device, record.StagingPath, fsType, use.MountOptions(fsType))
}

// CheckLabel refuses another SELinux label than the one with which the volume is mounted on this
// node, because all its files have that label.
func (s *Stager) CheckLabel(use usage.Usage) error {
	record, _, err := s.Records.Of(use.Disk)
	if record.SELinuxLabel == nil || *record.SELinuxLabel == use.Label() {
		return err
	}
	return provisioner.Errorf(provisioner.AlreadyExists,
		"refusing to use volume %s with the SELinux label %q: it is mounted on this node with the label %q",
		use.Volume, use.Label(), *record.SELinuxLabel)
}

// Identify refuses a device that does not have the filesystem that is recorded for the volume. It
// only reads. A volume without a record has nothing to be identified by.
func (s *Stager) Identify(ctx context.Context, volume *apiv1.AzVolume, device string) error {
	if volume.Status.Filesystem == nil {
		return nil
	}
	found, blank, err := s.Host.Filesystems().Probe(ctx, device)
	if err != nil {
		return fmt.Errorf("probe device: %w", err)
	}
	_, err = planFormat(formatInput{
		device: device,
		volume: volume,
		found:  found,
		blank:  blank,
	})
	return err
}

// prepare makes sure that the device has the volume's filesystem (law 4). It writes the record
// before it changes the device.
func (s *Stager) prepare(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, record nodereport.Record,
	mounted bool) (provisioner.Filesystem, error) {
	before, _, err := s.Records.Of(use.Disk)
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	var interrupted *provisioner.Filesystem
	if before.Epoch == record.Epoch && !mounted {
		interrupted = before.Formatting
	}
	filesystems := s.Host.Filesystems()
	found, blank, err := filesystems.Probe(ctx, record.Device)
	if err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("probe device: %w", err)
	}
	if blank && use.Sealed {
		return provisioner.Filesystem{},
			provisioner.Errorf(provisioner.FailedPrecondition,
				"refusing to format device %s for volume %s: the device is blank, and the volume was published read-only",
				record.Device, use.Volume)
	}
	action, err := planFormat(formatInput{
		device:      record.Device,
		volume:      volume,
		wanted:      use.Wanted(volume),
		found:       found,
		blank:       blank,
		mounted:     mounted,
		interrupted: interrupted,
	})
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	switch action {
	case makeAgain:
		logr.FromContextOrDiscard(ctx).Info("clearing the rest of an interrupted format", "device", record.Device, "filesystem",
			*interrupted)
		if err := s.SetReadOnly(ctx, record, false); err != nil {
			return provisioner.Filesystem{}, err
		}
		if err := filesystems.Unmake(ctx, record.Device, *interrupted); err != nil {
			return provisioner.Filesystem{}, fmt.Errorf("clear the rest of an interrupted format: %w", err)
		}
		return s.format(ctx, use, volume, record)
	case makeNew:
		return s.format(ctx, use, volume, record)
	case renew:
		return s.renew(ctx, volume, record, found)
	case keepContent:
		return found, s.begin(ctx, record)
	}
	return provisioner.Filesystem{}, fmt.Errorf("unknown action %q", action)
}

// begin writes the record of a device, and lets this node write to it.
func (s *Stager) begin(ctx context.Context, record nodereport.Record) error {
	if err := s.Records.Put(record); err != nil {
		return err
	}
	return s.SetReadOnly(ctx, record, false)
}

// renew gives the filesystem of a copy its own UUID, so that the copy can be mounted on the node of
// its source. Until AzVolume.status.filesystem has the UUID, the device may have the old or the new
// one. A first use that only reads renews the UUID too: if it changed after the old UUID was
// recorded, the device would be refused.
func (s *Stager) renew(ctx context.Context, volume *apiv1.AzVolume, record nodereport.Record,
	found provisioner.Filesystem) (provisioner.Filesystem, error) {
	if err := s.begin(ctx, record); err != nil {
		return provisioner.Filesystem{}, err
	}
	fs := provisioner.Filesystem{Type: found.Type, UUID: copyUUID(volume)}
	logr.FromContextOrDiscard(ctx).Info("giving the filesystem of a copy its own UUID", "volumeName", volume.Name, "device",
		record.Device,
		"source", describeSource(volume.Spec.Source), "from", found.UUID, "to", fs.UUID)
	if err := s.Host.Filesystems().Renew(ctx, record.Device, found, fs.UUID); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("change the UUID of a copy: %w", err)
	}
	return fs, nil
}

// format makes a filesystem on a blank device. Before it starts, it writes the new UUID to the
// record, and it removes that afterwards, so that a call after a kill can distinguish an
// interrupted format from data.
func (s *Stager) format(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume,
	record nodereport.Record) (provisioner.Filesystem, error) {
	fs := provisioner.Filesystem{Type: use.Wanted(volume), UUID: s.NewUUID()}
	if fs.Type == "" {
		fs.Type = defaultFSType
	}
	record.Formatting = &fs
	if err := s.begin(ctx, record); err != nil {
		return provisioner.Filesystem{}, err
	}
	logr.FromContextOrDiscard(ctx).Info("formatting", "volumeName", use.Volume, "device", record.Device, "filesystem", fs)
	var options provisioner.FilesystemOptions
	if wanted := volume.Spec.Filesystem; wanted != nil {
		options = provisioner.FilesystemOptions(wanted.FilesystemOptions)
	}
	if err := s.Host.Filesystems().Make(ctx, record.Device, fs, options); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("make filesystem: %w", err)
	}
	made, _, err := s.Host.Filesystems().Probe(ctx, record.Device)
	if err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("probe new filesystem: %w", err)
	}
	if made != fs {
		return provisioner.Filesystem{},
			provisioner.Errorf(provisioner.Unavailable, "format device %s with %s: a read after that found %s",
				record.Device, describeContent(fs), describeContent(made))
	}
	record.Formatting = nil
	return fs, s.Records.Put(record)
}

// confirmMount reads the grant after a mount, and unmounts the device if it is not the volume's any
// more. A filesystem check before the mount can take hours.
func (s *Stager) confirmMount(ctx context.Context, use usage.Usage, record nodereport.Record) error {
	volume, attachment, err := s.Read(ctx, use.Disk)
	if err != nil {
		return err
	}
	decision := s.MayStage(volume, attachment)
	if decision.Outcome == ownership.StageAllowed && decision.Epoch == record.Epoch && decision.LUN == record.LUN {
		return nil
	}
	if err := s.Host.Mounts().Unmount(ctx, record.StagingPath); err != nil {
		return fmt.Errorf("unmount volume %s, which the node may not use any more: %w", record.VolumeName, err)
	}
	return provisioner.Errorf(provisioner.Unavailable,
		"cannot stage volume %s under epoch %d at LUN %d: the grant changed while the volume was being mounted: %s",
		record.VolumeName, record.Epoch, record.LUN, decision.Reason)
}
