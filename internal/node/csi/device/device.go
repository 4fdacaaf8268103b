// Package device finds the device of a volume on this node, and checks that it is the volume's (law
// 4).
package device

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/grant"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/keylock"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Finder finds the devices of one node.
type Finder struct {
	*grant.Reader
	Host    provisioner.Host
	Records nodereport.Records
	// BootID of the running kernel.
	BootID string
	// DiskAt returns the ID of the disk that instance metadata names at a LUN, "" for none. It is
	// nil if the node cannot read it.
	DiskAt func(ctx context.Context, lun int32) (string, error)

	// reserved are the devices that running calls use.
	reserved keylock.Locks
}

// Own finds the device of a volume and checks that it is the volume's. Until the caller calls
// release, no other call uses the device.
func (f *Finder) Own(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume,
	grant ownership.StageDecision) (provisioner.Device, ownership.StageDecision, func(), error) {
	device, grant, err := f.granted(ctx, volume, grant)
	if err != nil {
		return provisioner.Device{}, grant, nil, err
	}
	release, err := f.identify(ctx, use, volume, grant.LUN, device)
	return device, grant, release, err
}

// Replica finds the device of a replica that this node has, and checks that it is the volume's.
// Until the caller calls release, no other call uses the device.
func (f *Finder) Replica(ctx context.Context, volume *apiv1.AzVolume, lun int32) (device provisioner.Device, release func(),
	err error) {
	if device, err = f.find(ctx, volume, lun); err != nil {
		return provisioner.Device{}, nil, err
	}
	release, err = f.identify(ctx, usage.Usage{Disk: volumehandle.Of(volume.Spec.Disk), Volume: volume.Name}, volume, lun, device)
	return device, release, err
}

// ReportLost ends a call that could not use a device for a volume, and returns its failure. If the
// volume was staged before and has lost its device, the report must not say Staged any more: the
// controller attaches the volume's disk again only while the report says Staging.
func (f *Finder) ReportLost(ctx context.Context, use usage.Usage, failure error) error {
	record, _, _ := f.Records.Of(use.Disk) // without a record the boot ID is another one
	if record.BootID != f.BootID || !f.lost(ctx, record) {
		return failure
	}
	if err := f.Report.Restage(ctx, use.Volume); err != nil {
		return fmt.Errorf("%w; %w", failure, err)
	}
	return failure
}

// lost reports whether a volume has lost the device with which it was staged. It is false if ctx
// ends before that is certain.
func (f *Finder) lost(ctx context.Context, record nodereport.Record) bool {
	if f.Answers(ctx, record.Device) != nil {
		return ctx.Err() == nil
	}
	if !record.Block {
		// A mount holds the device, so that its path cannot name another one. Without the mount it
		// can.
		mount, _, err := f.MountAt(ctx, record.StagingPath)
		return err == nil && mount.Source != record.Device
	}
	_, why, _ := f.StagedBlock(ctx, record)
	return why != ""
}

// granted finds the device at the granted LUN, and then reads the grant again: as long as the
// report does not say that the volume is staged, the controller attaches a disk that is not at its
// recorded LUN again, possibly at another LUN. While the device does not appear, granted reads the
// grant again every RereadInterval.
func (f *Finder) granted(ctx context.Context, volume *apiv1.AzVolume, grant ownership.StageDecision) (provisioner.Device,
	ownership.StageDecision, error) {
	for round := 0; ; round++ {
		if round == 1 {
			// If the volume was staged before, it has lost its device.
			if err := f.Report.Restage(ctx, volume.Name); err != nil {
				return provisioner.Device{}, grant, err
			}
		}
		device, found, err := f.FindSoon(ctx, volume, grant.LUN)
		if err != nil {
			return provisioner.Device{}, grant, err
		}
		if found {
			// The attachment has the LUN. The ownership need not be read for this: before another
			// node acquires it, the proof is recorded on the attachment.
			attachment, err := f.Attachment(ctx, volume.Name, f.NodeName)
			if err != nil {
				return provisioner.Device{}, grant, err
			}
			if f.MayStage(volume, attachment) == grant {
				return device, grant, nil
			}
		}
		_, current, err := f.Await(ctx, volumehandle.Of(volume.Spec.Disk))
		switch {
		case err != nil:
			return provisioner.Device{}, grant, err
		case current.Epoch != grant.Epoch:
			return provisioner.Device{}, grant,
				provisioner.Errorf(provisioner.Unavailable,
					"cannot stage volume %s under epoch %d: the node now holds the ownership with epoch %d; retry",
					volume.Name, grant.Epoch, current.Epoch)
		case found && current.LUN == grant.LUN:
			return device, current, nil
		case current.LUN != grant.LUN:
			logr.FromContextOrDiscard(ctx).Info("the disk has another LUN now", "volumeName", volume.Name, "was", grant.LUN,
				"lun", current.LUN)
		}
		grant = current
	}
}

// FindSoon looks for the device during one RereadInterval. found is false if it did not appear.
func (f *Finder) FindSoon(ctx context.Context, volume *apiv1.AzVolume, lun int32) (device provisioner.Device, found bool,
	err error) {
	round, cancel := context.WithTimeout(ctx, grant.RereadInterval)
	defer cancel()
	device, err = f.find(round, volume, lun)
	if err != nil && ctx.Err() == nil && round.Err() != nil {
		return provisioner.Device{}, false, nil
	}
	return device, err == nil, err
}

// find returns the device at the LUN after checking that it has the volume's size (law 4).
func (f *Finder) find(ctx context.Context, volume *apiv1.AzVolume, lun int32) (provisioner.Device, error) {
	device, err := f.Host.Devices().Find(ctx, lun)
	if err != nil {
		if ctx.Err() != nil {
			// The device did not appear in time; the volume itself exists.
			return provisioner.Device{}, fmt.Errorf("find device of volume %s: %s: %w", volume.Name, err.Error(), ctx.Err())
		}
		return provisioner.Device{}, fmt.Errorf("find device of volume %s: %w", volume.Name, err)
	}
	device, err = f.Host.Devices().Rescan(ctx, device.Path)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("rescan device of volume %s: %w", volume.Name, err)
	}
	if hasSize(volume, device.SizeBytes) {
		return device, nil
	}
	// The disk may have been expanded since the volume was read.
	if current, _, err := f.Read(ctx, volumehandle.Of(volume.Spec.Disk)); err != nil {
		return provisioner.Device{}, err
	} else if current.UID == volume.UID && hasSize(current, device.SizeBytes) {
		return device, nil
	}
	return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition,
		"refusing to use device %s at LUN %d for volume %s: it has %d bytes, and the volume is recorded with %d",
		device.Path, lun, volume.Name, device.SizeBytes, volume.Status.SizeBytes)
}

// hasSize reports whether a device can be the volume's by its size: it has the recorded size, or a
// size between that and the requested one, because a disk has grown before the controller can
// record its new size.
func hasSize(volume *apiv1.AzVolume, sizeBytes int64) bool {
	recorded := volume.Status.SizeBytes
	return recorded == 0 || sizeBytes >= recorded && sizeBytes <= max(recorded, volume.Spec.CapacityBytes)
}

// SetReadOnly write-protects the device of a record, or removes the protection. A device that this
// driver has made writable is always recorded, so that the end of the record protects it again.
func (f *Finder) SetReadOnly(ctx context.Context, record nodereport.Record, readOnly bool) error {
	if err := f.Host.Devices().SetReadOnly(ctx, record.Used(), readOnly); err != nil {
		return fmt.Errorf("set write protection of volume %s: %w", record.VolumeName, err)
	}
	return nil
}

// Part returns the given partition of a disk, or the disk itself for partition 0.
func (f *Finder) Part(ctx context.Context, disk provisioner.Device, partition int) (provisioner.Device, error) {
	if partition == 0 {
		return disk, nil
	}
	return f.Host.Tuner().Partition(ctx, disk.Path, partition)
}

// StagedBlock returns the device of a volume that is staged as a raw block device. It finds the
// device again, because no mount holds it and its path may name another disk after a detach.
func (f *Finder) StagedBlock(ctx context.Context, record nodereport.Record) (device, why string, err error) {
	attachment, why, err := f.Lasting(ctx, record)
	switch {
	case why != "" || err != nil:
		return "", why, err
	case attachment == nil || attachment.Status.State != apiv1.AttachmentAttached || attachment.Status.LUN == nil:
		return "", "its disk is not attached", nil
	}
	round, cancel := context.WithTimeout(ctx, grant.RereadInterval)
	defer cancel()
	found, err := f.Host.Devices().Find(round, *attachment.Status.LUN)
	switch {
	case err != nil && ctx.Err() == nil && round.Err() != nil:
		// Staging in place reports that the volume waits for its disk, and then the controller
		// attaches the disk again.
		return "", fmt.Sprintf("there is no device at LUN %d", *attachment.Status.LUN), nil
	case err != nil:
		return "", "", fmt.Errorf("find device of volume %s: %w", record.VolumeName, err)
	}
	if found, err = f.Part(ctx, found, record.Partition); err != nil {
		return "", "", err
	}
	if found.Path != record.Device {
		return "", fmt.Sprintf("it was staged as %s and is now %s", record.Device, found.Path), nil
	}
	disk, _ := usage.ParseID(record.VolumeID) // Lasting has found the volume by it
	if other := f.otherDiskAt(ctx, disk, *attachment.Status.LUN); other != "" {
		return "", fmt.Sprintf("instance metadata says that disk %s is at LUN %d", other, *attachment.Status.LUN), nil
	}
	return found.Path, "", nil
}

// MountAt returns the topmost mount at a path.
func (f *Finder) MountAt(ctx context.Context, path string) (mount provisioner.MountPoint, found bool, err error) {
	mounts, err := f.Host.Mounts().List(ctx)
	if err != nil {
		return provisioner.MountPoint{}, false, fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range mounts {
		if m.Target == path {
			mount, found = m, true
		}
	}
	return mount, found, nil
}

// answerTimeout is how long a disk may take to answer a read before it counts as failed. Azure's
// slowest disks answer within a second.
const answerTimeout = 5 * time.Second

// Answers returns the error of a read of a device.
func (f *Finder) Answers(ctx context.Context, device string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return f.Host.Devices().Read(ctx, device)
}
