package filesystem

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// clearStale says whether the device is already mounted at the staging path. It unmounts a mount that remains from an
// attachment or an epoch that has ended.
func (s *Stager) clearStale(ctx context.Context, record nodereport.Record) (mounted bool, err error) {
	mount, found, err := s.MountAt(ctx, record.StagingPath)
	if err != nil || !found {
		return false, err
	}
	found, err = s.keepMount(ctx, mount, record)
	if found || err != nil {
		return found, err
	}
	logr.FromContextOrDiscard(ctx).Info("unmounting a device that is out of date", "device", mount.Source, "stagingPath", record.StagingPath)
	if err := s.Host.Mounts().Unmount(ctx, record.StagingPath); err != nil {
		return false, fmt.Errorf("unmount the device that is out of date: %w", err)
	}
	return false, nil
}

// keepMount collects the input of stagingMount.keep and returns its decision.
func (s *Stager) keepMount(ctx context.Context, mount provisioner.MountPoint, record nodereport.Record) (keep bool, err error) {
	in := stagingMount{mount: mount, record: record}
	before, recorded, err := s.Records.Get(record.VolumeName)
	if err != nil {
		return false, err
	}
	if recorded && before.BootID == record.BootID {
		in.before = &before
	}
	mounts, err := s.Host.Mounts().List(ctx)
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	for _, other := range mounts {
		if other.Source == mount.Source && other.Target != mount.Target {
			in.elsewhere = other.Target
		}
	}
	in.fault = s.Answers(ctx, mount.Source)
	if ctx.Err() != nil {
		return false, fmt.Errorf("read the device that is mounted at the staging path: %w", ctx.Err())
	}
	return in.keep()
}

// stagingMount describes the mount at the staging path where a volume must be staged.
type stagingMount struct {
	mount provisioner.MountPoint
	// record describes what must be staged. before is the previous record; nil unless it was written in the same boot.
	record nodereport.Record
	before *nodereport.Record
	// fault is the error of a read of the mounted device; nil if the read succeeded.
	fault error
	// elsewhere is another target where the device is mounted.
	elsewhere string
}

// keep says whether the mount is the one that is wanted. If it is not, the caller must unmount it before it mounts the
// device; an error says why neither is possible. The mounts of pods always remain. A mount of a device that was removed
// never works again, because the kernel creates a new device for a new attachment.
func (m stagingMount) keep() (bool, error) {
	ours := m.before != nil && m.before.Device == m.mount.Source
	if m.mount.Source != m.record.Device {
		if m.fault != nil || ours && (m.before.Epoch != m.record.Epoch || m.before.LUN != m.record.LUN) {
			return false, nil
		}
		return false, provisioner.Errorf(provisioner.FailedPrecondition, "refusing to stage volume %s at %s: %s is mounted there, and the volume's device is %s; unmount it first",
			m.record.VolumeName, m.mount.Target, m.mount.Source, m.record.Device)
	}
	if m.fault != nil {
		return false, provisioner.Errorf(provisioner.Unavailable, "cannot use the device of volume %s: it does not answer a read: %w", m.record.VolumeName, m.fault)
	}
	var why string
	switch {
	case m.mount.Sealed && !m.record.ReadOnly:
		why = "its filesystem is read-only"
	case m.record.ReadOnly && !m.mount.Sealed:
		why = "its filesystem is writable, and the volume is published read-only"
	case ours && m.before.Epoch > 0 && m.record.Epoch > m.before.Epoch+1:
		// Each time a node acquires ownership the epoch grows by one. If it has grown by one since the mount, this node
		// acquired it; if it has grown by more, other nodes may have.
		why = fmt.Sprintf("it was mounted under epoch %d, and other nodes may have written since", m.before.Epoch)
	default:
		return true, nil
	}
	if m.elsewhere != "" {
		return false, provisioner.Errorf(provisioner.Unavailable, "%s cannot stay mounted at %s, because %s, and it is still mounted at %s: "+
			"volume %s can be staged again after the pod that uses this mount has ended", m.mount.Source, m.mount.Target, why, m.elsewhere, m.record.VolumeName)
	}
	return false, nil
}
