package volume

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// tagVolumeUID on a disk is the UID of the AzVolume for which it was created. It keeps the
	// driver from adopting, and deleting, a disk of the same name that belongs to another user.
	tagVolumeUID = "disk.csi.azure.com-volume-uid"
	// tagVolumeName is the PersistentVolume's name, which the V1 driver records too.
	tagVolumeName = "kubernetes.io-created-for-pv-name"
)

// diskWork makes the jobs of volumes. Each ends by reading the disk.
type diskWork struct {
	cloud provisioner.Cloud
	// reader reads from the API server, and cache from the cache.
	reader, cache client.Reader
}

func (d diskWork) create(v *apiv1.AzVolume, token string) work.Func {
	spec := diskSpec(v)
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		op, err := d.resumeOr(ctx, token, func() (provisioner.Operation, error) { return d.cloud.Disks().Create(ctx, spec) })
		if err != nil {
			return operation.Truth{}, fmt.Errorf("create disk: %w", err)
		}
		accepted(op)
		if err := op.Wait(ctx); err != nil {
			return operation.Truth{}, fmt.Errorf("create disk: %w", err)
		}
		if made, ok := op.(provisioner.DiskOperation); ok {
			// Anything that is not as expected is read again.
			if disk, ok := made.Disk(); ok && disk.Ready && ours(v, &disk) {
				return operation.Truth{
					Disk:   &disk,
					Made:   madeFor(v, &disk),
					Update: applied(v),
				}, nil
			}
		}
		disk, err := d.get(ctx, spec.ID)
		if err == nil && !ours(v, disk) {
			return operation.Truth{}, provisioner.Errorf(provisioner.AlreadyExists,
				"disk %s exists already and was not created for this volume", spec.ID)
		}
		return operation.Truth{
			Disk:    disk,
			Made:    err == nil && madeFor(v, disk),
			Filling: err == nil && !disk.Ready,
			Update:  applied(v),
		}, err
	}
}

// madeFor reports whether a disk was created for this very AzVolume.
func madeFor(v *apiv1.AzVolume, disk *provisioner.Disk) bool {
	return disk.Tags[tagVolumeUID] == string(v.UID)
}

// applied has the settings that the disk of a volume had from the beginning: at its creation, or
// when it was adopted.
func applied(v *apiv1.AzVolume) *operation.Updated {
	return &operation.Updated{
		Generation: v.Generation,
		Applied:    &apiv1.AppliedSettings{Generation: v.Generation, DiskSettings: *v.Spec.Disk.DiskSettings.DeepCopy()},
	}
}

func (d diskWork) adopt(v *apiv1.AzVolume) work.Func {
	return func(ctx context.Context, _ func(provisioner.Operation)) (operation.Truth, error) {
		disk, err := d.get(ctx, volumehandle.Of(v.Spec.Disk).String())
		if v.Spec.Origin != apiv1.OriginAdopted {
			// the volume was restored, and the settings of the spec may differ from the disk's
			return operation.Truth{Disk: disk}, err
		}
		return operation.Truth{Disk: disk, Update: applied(v)}, err
	}
}

func (d diskWork) remove(v *apiv1.AzVolume, token string) work.Func {
	id, known := v.Status.DiskID, v.Status.DiskID != ""
	if !known {
		id = volumehandle.Of(v.Spec.Disk).String()
	}
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		if !known {
			// The creation was not completed, so it is not clear whose disk it is.
			disk, err := d.cloud.Disks().Get(ctx, id)
			switch {
			case errors.Is(err, provisioner.NotFound):
				return operation.Truth{}, nil
			case err != nil:
				return operation.Truth{}, fmt.Errorf("read disk: %w", err)
			case !madeFor(v, &disk):
				// Also if it has the name of the same PersistentVolume: the AzVolume may have been
				// restored, and the disk may hold data.
				return operation.Truth{Unrelated: true}, nil
			}
		}
		op, err := d.resumeOr(ctx, token, func() (provisioner.Operation, error) { return d.cloud.Disks().Delete(ctx, id) })
		if err != nil {
			return operation.Truth{}, fmt.Errorf("delete disk: %w", err)
		}
		accepted(op)
		if err := op.Wait(ctx); err != nil {
			return operation.Truth{}, fmt.Errorf("delete disk: %w", err)
		}
		return operation.Truth{}, nil
	}
}

// resumeOr resumes an operation, or begins it again if the platform no longer knows the token; all
// operations are idempotent.
func (d diskWork) resumeOr(ctx context.Context, token string, begin func() (provisioner.Operation, error)) (provisioner.Operation,
	error) {
	if token == "" {
		return begin()
	}
	op, err := d.cloud.Disks().Resume(ctx, token)
	if errors.Is(err, provisioner.InvalidArgument) || errors.Is(err, provisioner.NotFound) {
		return begin()
	}
	return op, err
}

// get reads a disk that is not being changed. A disk that is not ready is still being filled from
// its source.
func (d diskWork) get(ctx context.Context, id string) (*provisioner.Disk, error) {
	disk, err := d.cloud.Disks().Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read disk: %w", err)
	}
	if !disk.Ready && disk.CompletionPercent >= 100 {
		return nil, provisioner.Errorf(provisioner.Conflict, "disk %s is not ready", id)
	}
	return &disk, nil
}

// ours reports whether a disk was created for the volume: by this AzVolume, or by an earlier one
// for the same PersistentVolume.
func ours(v *apiv1.AzVolume, disk *provisioner.Disk) bool {
	if v.Spec.Origin == apiv1.OriginAdopted {
		return false
	}
	name := v.Spec.Disk.Tags[tagVolumeName]
	return madeFor(v, disk) || (name != "" && disk.Tags[tagVolumeName] == name)
}

func diskSpec(v *apiv1.AzVolume) provisioner.DiskSpec {
	p := v.Spec.Disk.DeepCopy()
	spec := provisioner.DiskSpec{
		ID:                    volumehandle.Of(*p).String(),
		Location:              p.Location,
		Zone:                  p.Zone,
		SizeBytes:             v.Spec.CapacityBytes,
		MaxShares:             p.MaxShares,
		DiskSettings:          provisioner.DiskSettings(p.DiskSettings),
		ImmutableDiskSettings: provisioner.ImmutableDiskSettings(p.ImmutableDiskSettings),
	}
	if spec.Tags == nil {
		spec.Tags = map[string]string{}
	}
	spec.Tags[tagVolumeUID] = string(v.UID)
	if s := v.Spec.Source; s != nil {
		spec.SourceID = s.DiskID + s.SnapshotID // exactly one is set
	}
	return spec
}
