package filesystem

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// kept are the mounts of a volume's device at its staging paths that stay.
type kept struct {
	// here is set if the device is mounted at the path that is to be staged, elsewhere if at
	// another staging path.
	here, elsewhere bool
	// writable is a staging path with a writable filesystem; "" for none.
	writable string
}

func (k kept) mounted() bool { return k.here || k.elsewhere }

// clearStale returns the mounts of the device at the volume's staging paths. It unmounts mounts of
// an attachment or an epoch that has ended.
func (s *Stager) clearStale(ctx context.Context, use usage.Usage, record nodereport.Record) (kept, error) {
	var found kept
	stale, err := s.judgeMounts(ctx, use, record, &found)
	if err != nil {
		return kept{}, err
	}
	for _, mount := range stale {
		logr.FromContextOrDiscard(ctx).Info("unmounting a device that is out of date",
			"device", mount.Source, "stagingPath", mount.Target)
		if err := s.Host.Mounts().Unmount(ctx, mount.Target); err != nil {
			return kept{}, fmt.Errorf("unmount the device that is out of date: %w", err)
		}
	}
	return found, nil
}

// judgeMounts collects the input of stagingMount.keep for each staging path, and returns the mounts
// that are out of date.
func (s *Stager) judgeMounts(
	ctx context.Context, use usage.Usage, record nodereport.Record, found *kept,
) (stale []provisioner.MountPoint, err error) {
	before, _, err := s.Records.Get(record.VolumeName)
	if err != nil {
		return nil, err
	}
	mounts, err := s.Host.Mounts().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	top := map[string]provisioner.MountPoint{}
	for _, mount := range mounts {
		top[mount.Target] = mount
	}
	for _, path := range record.Paths() {
		mount, mounted := top[path]
		if !mounted {
			continue
		}
		here := path == record.StagingPath
		in := stagingMount{mount: mount, record: record}
		// A mount option makes its own path read-only. A filesystem that is writable at another
		// path stays writable there.
		in.record.ReadOnly = use.Sealed || use.MountsReadOnly() && (mount.Sealed || here && !mount.ReadOnly)
		if before.BootID == record.BootID {
			in.before = &before
		}
		for _, other := range mounts {
			if other.Source == mount.Source && !record.StagedAt(other.Target) {
				in.elsewhere = other.Target
			}
		}
		in.fault = s.Answers(ctx, mount.Source)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read the device that is mounted at the staging path: %w", ctx.Err())
		}
		keep, err := in.keep()
		switch {
		case err != nil:
			return nil, err
		case !keep:
			stale = append(stale, mount)
			continue
		}
		if here {
			found.here = true
		} else {
			found.elsewhere = true
		}
		if !mount.Sealed {
			found.writable = path
		}
	}
	return stale, nil
}

// stagingMount describes the mount at the staging path where a volume must be staged.
type stagingMount struct {
	mount provisioner.MountPoint
	// record describes what must be staged. before is the previous record; nil unless it was
	// written in the same boot.
	record nodereport.Record
	before *nodereport.Record
	// fault is the error of a read of the mounted device; nil if the read succeeded.
	fault error
	// elsewhere is a target where the device is mounted and that is not a staging path of the
	// volume.
	elsewhere string
}

// keep reports whether the mount is the wanted one. If it is not, the caller must unmount it before
// it mounts the device; an error says why neither is possible. The mounts of pods always remain. A
// mount of a device that was removed never works again, because the kernel creates a new device for
// a new attachment.
func (m stagingMount) keep() (bool, error) {
	ours := m.before != nil && m.before.Device == m.mount.Source
	if m.mount.Source != m.record.Device {
		if m.fault != nil || ours && (m.before.Epoch != m.record.Epoch || m.before.LUN != m.record.LUN) {
			return false, nil
		}
		return false, provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to stage volume %s at %s: %s is mounted there, and the volume's device is %s; unmount it first",
			m.record.VolumeName, m.mount.Target, m.mount.Source, m.record.Device)
	}
	if m.fault != nil {
		return false, provisioner.Errorf(provisioner.Unavailable,
			"cannot use the device of volume %s: it does not answer a read: %w", m.record.VolumeName, m.fault)
	}
	var why string
	switch {
	case m.mount.Sealed && !m.record.ReadOnly:
		why = "its filesystem is read-only"
	case m.record.ReadOnly && !m.mount.Sealed:
		why = "its filesystem is writable, and the volume is published read-only"
	case ours && m.before.Epoch > 0 && m.record.Epoch > m.before.Epoch+1:
		// Each time a node acquires ownership the epoch grows by one. If it has grown by one since
		// the mount, this node acquired it; if it has grown by more, other nodes may have.
		why = fmt.Sprintf("it was mounted under epoch %d, and other nodes may have written since", m.before.Epoch)
	default:
		return true, nil
	}
	if m.elsewhere != "" {
		return false, provisioner.Errorf(provisioner.Unavailable,
			"%s cannot stay mounted at %s, because %s, and it is still mounted at %s: "+
				"volume %s can be staged again after the pod that uses this mount has ended", m.mount.Source, m.mount.Target, why,
			m.elsewhere, m.record.VolumeName)
	}
	return false, nil
}
