package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// stageFilesystem mounts the device of a record, with the volume's filesystem, at its staging path and returns the
// filesystem.
func (s *Server) stageFilesystem(ctx context.Context, use usage, volume *apiv1.AzVolume, record nodereport.Record) (provisioner.Filesystem, error) {
	mounted, err := s.clearStale(ctx, record)
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	if mounted {
		if err := s.checkLabel(use); err != nil {
			return provisioner.Filesystem{}, err
		}
	}
	fs, err := s.prepare(ctx, use, volume, record, mounted)
	if err != nil {
		return provisioner.Filesystem{}, s.reportLost(ctx, use, err)
	}
	filesystems := s.options.Host.Filesystems()
	if !mounted && !use.sealed {
		if err := filesystems.Check(ctx, record.Device, fs); err != nil {
			return provisioner.Filesystem{}, fmt.Errorf("check filesystem: %w", err)
		}
		if err := filesystems.Grow(ctx, record.Device, ""); err != nil {
			return provisioner.Filesystem{}, fmt.Errorf("grow filesystem: %w", err)
		}
	}
	options := use.mountOptions(fs.Type)
	if err := s.options.Host.Mounts().Mount(ctx, record.Device, record.StagingPath, fs.Type, options); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("mount volume: %w", err)
	}
	if !mounted {
		if err := s.confirmMount(ctx, record); err != nil {
			return provisioner.Filesystem{}, err
		}
	}
	if slices.Contains(options, "ro") {
		return fs, nil
	}
	if err := filesystems.Grow(ctx, record.Device, record.StagingPath); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("grow filesystem: %w", err)
	}
	return fs, nil
}

// checkLabel refuses another SELinux label than the one with which the volume is mounted on this node, because all its
// files have that label.
func (s *Server) checkLabel(use usage) error {
	record, recorded, err := s.record(use.disk)
	if err != nil || !recorded || record.SELinuxLabel == nil || *record.SELinuxLabel == use.label() {
		return err
	}
	return provisioner.Errorf(provisioner.AlreadyExists, "refusing to use volume %s with the SELinux label %q: it is mounted on this node with the label %q",
		use.volume, use.label(), *record.SELinuxLabel)
}

// clearStale says whether the device is already mounted at the staging path. It unmounts a mount that remains from an
// attachment or an epoch that has ended.
func (s *Server) clearStale(ctx context.Context, record nodereport.Record) (mounted bool, err error) {
	mount, found, err := s.mountAt(ctx, record.StagingPath)
	if err != nil || !found {
		return false, err
	}
	found, err = s.keepMount(ctx, mount, record)
	if found || err != nil {
		return found, err
	}
	logr.FromContextOrDiscard(ctx).Info("unmounting a device that is out of date", "device", mount.Source, "stagingPath", record.StagingPath)
	if err := s.options.Host.Mounts().Unmount(ctx, record.StagingPath); err != nil {
		return false, fmt.Errorf("unmount the device that is out of date: %w", err)
	}
	return false, nil
}

// keepMount collects the input of stagingMount.keep and returns its decision.
func (s *Server) keepMount(ctx context.Context, mount provisioner.MountPoint, record nodereport.Record) (keep bool, err error) {
	in := stagingMount{mount: mount, record: record}
	before, recorded, err := s.options.Records.Get(record.VolumeName)
	if err != nil {
		return false, err
	}
	if recorded && before.BootID == record.BootID {
		in.before = &before
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	for _, other := range mounts {
		if other.Source == mount.Source && other.Target != mount.Target {
			in.elsewhere = other.Target
		}
	}
	in.fault = s.answers(ctx, mount.Source)
	if ctx.Err() != nil {
		return false, fmt.Errorf("read the device that is mounted at the staging path: %w", ctx.Err())
	}
	return in.keep()
}

// prepare makes sure that the device has the volume's filesystem (law 4). It writes the record before it changes the
// device.
func (s *Server) prepare(ctx context.Context, use usage, volume *apiv1.AzVolume, record nodereport.Record, mounted bool) (provisioner.Filesystem, error) {
	before, recorded, err := s.record(use.disk)
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	var interrupted *provisioner.Filesystem
	if recorded && before.Epoch == record.Epoch && !mounted {
		interrupted = before.Formatting
	}
	filesystems := s.options.Host.Filesystems()
	found, blank, err := filesystems.Probe(ctx, record.Device)
	if err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("probe device: %w", err)
	}
	if blank && use.sealed {
		return provisioner.Filesystem{}, refuse("refusing to format device %s for volume %s: the device is blank, and the volume was published read-only",
			record.Device, use.volume)
	}
	action, err := planFormat(formatInput{
		device: record.Device, volume: volume, wanted: use.wanted(volume), found: found, blank: blank, mounted: mounted, interrupted: interrupted,
	})
	if err != nil {
		return provisioner.Filesystem{}, err
	}
	switch action {
	case makeAgain:
		logr.FromContextOrDiscard(ctx).Info("clearing the rest of an interrupted format", "device", record.Device, "filesystem", *interrupted)
		if err := filesystems.Unmake(ctx, record.Device, *interrupted); err != nil {
			return provisioner.Filesystem{}, fmt.Errorf("clear the rest of an interrupted format: %w", err)
		}
		return s.format(ctx, use, volume, record)
	case makeNew:
		return s.format(ctx, use, volume, record)
	case renew:
		return s.renew(ctx, volume, record, found)
	case keepContent:
		return found, s.options.Records.Put(record)
	}
	return provisioner.Filesystem{}, fmt.Errorf("unknown action %q", action)
}

// renew gives the filesystem of a copy its own UUID, so that the copy can be mounted on the node of its source. Until
// AzVolume.status.filesystem has the UUID, the device may have the old or the new one. A first use that only reads
// renews the UUID too: if it changed after the old UUID was recorded, the device would be refused.
func (s *Server) renew(ctx context.Context, volume *apiv1.AzVolume, record nodereport.Record, found provisioner.Filesystem) (provisioner.Filesystem, error) {
	if err := s.options.Records.Put(record); err != nil {
		return provisioner.Filesystem{}, err
	}
	fs := provisioner.Filesystem{Type: found.Type, UUID: copyUUID(volume)}
	logr.FromContextOrDiscard(ctx).Info("giving the filesystem of a copy its own UUID", "volumeName", volume.Name, "device", record.Device,
		"source", describeSource(volume.Spec.Source), "from", found.UUID, "to", fs.UUID)
	if err := s.options.Host.Filesystems().Renew(ctx, record.Device, found, fs.UUID); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("change the UUID of a copy: %w", err)
	}
	return fs, nil
}

// format makes a filesystem on a blank device. Before it starts, it writes the new UUID to the record, and it removes
// that afterwards, so that a call after a kill can distinguish an interrupted format from data.
func (s *Server) format(ctx context.Context, use usage, volume *apiv1.AzVolume, record nodereport.Record) (provisioner.Filesystem, error) {
	fs := provisioner.Filesystem{Type: use.wanted(volume), UUID: s.options.NewUUID()}
	if fs.Type == "" {
		fs.Type = defaultFSType
	}
	record.Formatting = &fs
	if err := s.options.Records.Put(record); err != nil {
		return provisioner.Filesystem{}, err
	}
	logr.FromContextOrDiscard(ctx).Info("formatting", "volumeName", use.volume, "device", record.Device, "filesystem", fs)
	if err := s.options.Host.Filesystems().Make(ctx, record.Device, fs, nil); err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("make filesystem: %w", err)
	}
	made, _, err := s.options.Host.Filesystems().Probe(ctx, record.Device)
	if err != nil {
		return provisioner.Filesystem{}, fmt.Errorf("probe new filesystem: %w", err)
	}
	if made != fs {
		return provisioner.Filesystem{}, provisioner.Errorf(provisioner.Unavailable, "format device %s with %s: a read after that found %s",
			record.Device, describeContent(fs), describeContent(made))
	}
	record.Formatting = nil
	return fs, s.options.Records.Put(record)
}
