package csi

import (
	"context"
	"fmt"
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// pathsBeside returns the other staging paths of a volume that is going to be staged as the record
// says. It refuses a staging that the pods of the other paths exclude.
func (s *Server) pathsBeside(ctx context.Context, record nodereport.Record) ([]string, error) {
	before, _, err := s.options.Records.Get(record.VolumeName)
	if before.BootID != record.BootID {
		return nil, err
	}
	others := before.Beside(record.StagingPath)
	if len(others) == 0 || before.Device != record.Device {
		return others, nil
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	inUse := func(m provisioner.MountPoint) bool {
		return m.Source == record.Device && m.Target != record.StagingPath
	}
	if why := excluded(before, record); why != "" && slices.ContainsFunc(mounts, inUse) {
		return nil, provisioner.Errorf(provisioner.Unavailable,
			"cannot stage volume %s at %s: it is staged on this node %s at %s, and pods use it there",
			record.VolumeName, record.StagingPath, why, others[0])
	}
	return others, nil
}

// excluded returns the present staging if it rules out the new one, else "". The write protection of
// a raw block device counts for all its paths.
func excluded(before, next nodereport.Record) string {
	switch {
	case before.Block && !next.Block:
		return "as a raw block device"
	case !before.Block && next.Block:
		return "as a filesystem"
	case next.Block && before.ReadOnly && !next.ReadOnly:
		return "read-only"
	case next.Block && !before.ReadOnly && next.ReadOnly:
		return "for writing"
	}
	return ""
}

// remaining returns the paths at which a volume stays staged after it has been unstaged at one; nil
// if there is none. The volume stays staged if it is mounted at another staging path, or if a pod
// uses the raw block device: a staging path of a raw block volume shows nothing itself, and the
// kubelet makes one call for the paths of PersistentVolumes with the same handle.
func (s *Server) remaining(ctx context.Context, record nodereport.Record, path string) ([]string, error) {
	others := record.Beside(path)
	if record.BootID != s.options.BootID {
		return nil, nil
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		i := slices.Index(others, mount.Target)
		switch {
		case mount.Source != record.Device:
		case i >= 0:
			return append([]string{mount.Target}, slices.Delete(others, i, i+1)...), nil
		case record.Block:
			return others, nil
		}
	}
	return nil, nil
}

// unstagePath ends the staging of a volume at one path, and leaves it staged at the others.
func (s *Server) unstagePath(ctx context.Context, record nodereport.Record, path string, others []string) error {
	record.StagingPath, record.OtherPaths = others[0], others[1:]
	if err := s.options.Records.Put(record); err != nil {
		return err
	}
	if err := s.options.Report.StagedAt(ctx, record.VolumeName, record.StagingPath); err != nil {
		return err
	}
	return s.removePath(ctx, path)
}

// keepOnePath unmounts the staging paths of a volume but for one, if no pod uses the volume any
// more. The kubelet calls NodeUnstageVolume for a path only if the device is mounted nowhere else:
// with two mounted paths it waits for ever, at each of them for the other. If it publishes the
// volume from a path without a mount, the volume is staged there in place.
func (s *Server) keepOnePath(ctx context.Context, volume string) error {
	record, _, err := s.options.Records.Get(volume)
	if len(record.OtherPaths) == 0 || record.BootID != s.options.BootID {
		return err
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	mounts = slices.DeleteFunc(mounts, func(m provisioner.MountPoint) bool { return m.Source != record.Device })
	used := func(m provisioner.MountPoint) bool { return !record.StagedAt(m.Target) }
	kept := func(m provisioner.MountPoint) bool { return m.Target == record.StagingPath }
	if slices.ContainsFunc(mounts, used) || !slices.ContainsFunc(mounts, kept) {
		return nil
	}
	for _, m := range mounts {
		if kept(m) {
			continue
		}
		if err := s.options.Host.Mounts().Unmount(ctx, m.Target); err != nil {
			return fmt.Errorf("unmount a staging path beside another: %w", err)
		}
	}
	return nil
}
