package nodereport

import (
	"context"
	"fmt"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// EnsureScanned returns when this process has compared the report with the node's mounts and
// written the result. Only after that do volumes that were staged without a record have one.
func (r *Reporter) EnsureScanned(ctx context.Context) error {
	select {
	case <-r.written:
		return nil
	default:
		return r.update(ctx, func(*apiv1.AzDriverNodeStatus) {})
	}
}

// Announce writes that the node is going to use a volume under an epoch. Only after it has returned
// nil may the caller read the ownership, and only after that may it use the device. A volume that
// is already Staged under that epoch remains Staged.
func (r *Reporter) Announce(ctx context.Context, volume string, epoch int64, stagingPath string) error {
	r.setUnstaging(volume, false)
	r.setUnpublished(volume, false)
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		entry := entryOf(status, volume)
		entry.Published = true // for a pod, which comes next
		if entry.Epoch == epoch && entry.Phase == apiv1.PhaseStaged {
			return
		}
		entry.Epoch, entry.Phase, entry.StagingPath = epoch, apiv1.PhaseStaging, stagingPath
	})
	if err != nil {
		return fmt.Errorf("announce the staging of volume %s: %w", volume, err)
	}
	return nil
}

// Confirm writes that the volume is staged as the entry says.
func (r *Reporter) Confirm(ctx context.Context, staged apiv1.StagedVolume) error {
	r.setUnstaging(staged.VolumeName, false)
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		staged.Phase, staged.Published = apiv1.PhaseStaged, entryOf(status, staged.VolumeName).Published
		*entryOf(status, staged.VolumeName) = *staged.DeepCopy()
	})
	if err != nil {
		return fmt.Errorf("report volume %s staged: %w", staged.VolumeName, err)
	}
	return nil
}

// Resized writes the size of the device of a volume that has grown since it was staged. A volume
// that has no entry gets none.
func (r *Reporter) Resized(ctx context.Context, volume string, sizeBytes int64) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		if i := slices.IndexFunc(status.StagedVolumes, named(volume)); i >= 0 &&
			status.StagedVolumes[i].Phase == apiv1.PhaseStaged {
			status.StagedVolumes[i].SizeBytes = sizeBytes
		}
	})
	if err != nil {
		return fmt.Errorf("report the size of volume %s: %w", volume, err)
	}
	return nil
}

// Unreserved writes that this node does not hold the reservation of a volume's disk any more. A
// volume that has no entry gets none.
func (r *Reporter) Unreserved(ctx context.Context, volume string) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		if i := slices.IndexFunc(status.StagedVolumes, named(volume)); i >= 0 {
			status.StagedVolumes[i].ReservationKey = ""
		}
	})
	if err != nil {
		return fmt.Errorf("report volume %s without a reservation: %w", volume, err)
	}
	return nil
}

// StagedAt writes the staging path of a volume that was unstaged at another path and stays staged.
// A volume that has no entry gets none.
func (r *Reporter) StagedAt(ctx context.Context, volume, path string) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		if i := slices.IndexFunc(status.StagedVolumes, named(volume)); i >= 0 {
			status.StagedVolumes[i].StagingPath = path
		}
	})
	if err != nil {
		return fmt.Errorf("report the staging path of volume %s: %w", volume, err)
	}
	return nil
}

// BeginUnstage writes that the node is unstaging a volume. A volume that has no entry gets none. If
// it returns an error, the next write of the report says so, also the write of a heartbeat: the
// caller may not call again.
func (r *Reporter) BeginUnstage(ctx context.Context, volume string) error {
	r.setUnstaging(volume, true)
	if err := r.update(ctx, func(*apiv1.AzDriverNodeStatus) {}); err != nil {
		return fmt.Errorf("report volume %s as being unstaged: %w", volume, err)
	}
	return nil
}

func (r *Reporter) setUnstaging(volume string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is {
		r.unstaging[volume] = true
	} else {
		delete(r.unstaging, volume)
	}
}

// Forget removes the entry of a volume, which proves that the node released the volume. It is
// called after the last effect on the device. If it returns an error, the next write of the report,
// for example a heartbeat, removes the entry: the caller may not call again.
func (r *Reporter) Forget(ctx context.Context, volume string) error {
	r.mu.Lock()
	r.forgotten[volume] = true
	delete(r.unstaging, volume)
	delete(r.unpublished, volume)
	r.mu.Unlock()
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		status.StagedVolumes = slices.DeleteFunc(status.StagedVolumes, named(volume))
	})
	if err != nil {
		return fmt.Errorf("report volume %s unstaged: %w", volume, err)
	}
	return nil
}

// Publish writes that a volume is about to be mounted for a pod, unless the report says so. Only
// after it has returned nil may the caller mount. A volume that has no entry gets none.
func (r *Reporter) Publish(ctx context.Context, volume string) error {
	if err := r.EnsureScanned(ctx); err != nil {
		return err
	}
	r.setUnpublished(volume, false)
	if is, found := r.published(volume); is || !found {
		return nil
	}
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		if i := slices.IndexFunc(status.StagedVolumes, named(volume)); i >= 0 {
			status.StagedVolumes[i].Published = true
		}
	})
	if err != nil {
		return fmt.Errorf("report volume %s published: %w", volume, err)
	}
	return nil
}

// Unpublished writes that a volume is mounted for no pod any more, unless the report says so. A
// volume that has no entry gets none. If it returns an error, the next write of the report says so,
// also the write of a heartbeat: the caller may not call again.
func (r *Reporter) Unpublished(ctx context.Context, volume string) error {
	if err := r.EnsureScanned(ctx); err != nil {
		return err // and the scan will show it
	}
	r.setUnpublished(volume, true)
	if is, _ := r.published(volume); !is {
		return nil
	}
	if err := r.update(ctx, func(*apiv1.AzDriverNodeStatus) {}); err != nil {
		return fmt.Errorf("report volume %s unpublished: %w", volume, err)
	}
	return nil
}

func (r *Reporter) setUnpublished(volume string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is {
		r.unpublished[volume] = true
	} else {
		delete(r.unpublished, volume)
	}
}

// published returns what the report says of a volume, as this process wrote it last. found is false
// for a volume that has no entry.
func (r *Reporter) published(volume string) (is, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.staged, named(volume))
	return i >= 0 && r.staged[i].Published, i >= 0
}

func named(volume string) func(apiv1.StagedVolume) bool {
	return func(entry apiv1.StagedVolume) bool { return entry.VolumeName == volume }
}

// entryOf returns the entry of a volume, after adding one if there is none.
func entryOf(status *apiv1.AzDriverNodeStatus, volume string) *apiv1.StagedVolume {
	i := slices.IndexFunc(status.StagedVolumes, named(volume))
	if i < 0 {
		status.StagedVolumes = append(status.StagedVolumes, apiv1.StagedVolume{VolumeName: volume})
		i = len(status.StagedVolumes) - 1
	}
	return &status.StagedVolumes[i]
}
