package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// identify checks, as far as the node can know, that the device is the volume's disk. Azure
// identifies a device only by its LUN: see docs/reference/device-identity.md. Until the caller
// calls release, no other call uses the device.
func (f *Finder) identify(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, lun int32,
	disk provisioner.Device) (release func(), err error) {
	release, err = f.take(ctx, volume, lun, disk)
	if err != nil {
		return nil, err
	}
	err = f.checkNotAnothers(ctx, use.Volume, disk)
	if err == nil {
		err = f.checkInstance(ctx, use, volume, lun)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// take keeps other calls, and other devices, off the path of the device at the LUN until the caller
// calls release. A device can disappear between two steps of a call, if a person detaches its disk,
// and the kernel gives its path to the next disk unless the device is open.
func (f *Finder) take(ctx context.Context, volume *apiv1.AzVolume, lun int32,
	disk provisioner.Device) (release func(), err error) {
	unlock, free := f.reserved.TryLock(disk.Path)
	if !free {
		return nil, provisioner.Errorf(provisioner.Conflict, "cannot use device %s: another volume is being staged with it",
			disk.Path)
	}
	closeDevice, err := f.Host.Devices().Hold(ctx, disk.Path)
	if err != nil {
		unlock()
		return nil, err
	}
	release = func() {
		closeDevice()
		unlock()
	}
	// What is at the LUN now keeps its path.
	held, _, err := f.FindSoon(ctx, volume, lun)
	if err == nil && held.Path != disk.Path {
		err = provisioner.Errorf(provisioner.Unavailable, "the device %s at LUN %d has disappeared; retry", disk.Path, lun)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// checkNotAnothers refuses a device with which another volume is staged on this node, according to
// that volume's record or to a mount at its staging path. The failure is not final, because one of
// the two LUNs is out of date and the controller corrects it.
func (f *Finder) checkNotAnothers(ctx context.Context, volume string, disk provisioner.Device) error {
	records, err := f.Records.List()
	if err != nil {
		return err
	}
	entries, err := f.Report.Entries(ctx)
	if err != nil {
		return err
	}
	mounts, err := f.Host.Mounts().List(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	owners := map[string]string{} // by staging path
	for _, entry := range entries {
		owners[entry.StagingPath] = entry.VolumeName
	}
	for name, record := range records {
		for _, path := range record.Paths() {
			owners[path] = name
		}
	}
	for _, mount := range mounts {
		if owner := owners[mount.Target]; mount.Source == disk.Path && owner != "" && owner != volume {
			return usedByAnother(volume, disk, owner)
		}
	}
	own := records[volume]
	for name, record := range records {
		if name == volume || record.BootID != f.BootID || !f.Names(ctx, record, disk) {
			continue
		}
		// If the volume itself was staged with the device, the mounts belong to its own pods.
		ours := own.Device == record.Device && own.BootID == record.BootID
		if !ours && slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool { return m.Source == record.Device }) {
			return usedByAnother(volume, disk, name)
		}
		why, err := f.outOfDate(ctx, record)
		switch {
		case errors.Is(err, nodereport.ErrOtherDisk), errors.Is(err, provisioner.NotFound), err == nil && why == "":
			return usedByAnother(volume, disk, name)
		case err != nil:
			return err
		}
		logr.FromContextOrDiscard(ctx).Info("the device belonged to another volume before", "device", disk.Path, "volumeName",
			name, "reason", why)
	}
	return nil
}

// outOfDate says why the device of a record, which is not mounted, is not that volume's any more,
// or "" if it may be. After its pods have ended nothing holds a raw block device: a disk that is
// attached later can get its path while the record still names it, under an epoch that lasts. Such
// a record counts only while NodePublishVolume would give its device to a pod. Otherwise two
// volumes whose devices have exchanged their paths would refuse each other for ever.
func (f *Finder) outOfDate(ctx context.Context, record nodereport.Record) (why string, err error) {
	if record.Block {
		_, why, err = f.StagedBlock(ctx, record)
	} else {
		_, why, err = f.Lasting(ctx, record)
	}
	return why, err
}

func usedByAnother(volume string, disk provisioner.Device, owner string) error {
	return provisioner.Errorf(provisioner.Unavailable,
		"refusing to use device %s for volume %s: volume %s is staged with it on this node. "+
			"The recorded LUN of one of them is out of date; the controller corrects it within minutes", disk.Path, volume, owner)
}

// Names reports whether a record names the disk or a partition of it.
func (f *Finder) Names(ctx context.Context, record nodereport.Record, disk provisioner.Device) bool {
	device, err := f.Part(ctx, disk, record.Partition)
	return err == nil && device.Path == record.Device
}

const (
	// metadataPatience is how long a call waits until instance metadata shows an attach, and
	// metadataInterval how often it reads instance metadata.
	metadataPatience = 15 * time.Second
	metadataInterval = time.Second
)

// checkInstance compares the volume's disk with the disk that instance metadata names at the LUN.
// Metadata may be out of date: checkInstance ignores a missing LUN, and waits if another disk is
// named. A volume with a recorded filesystem is identified by that.
func (f *Finder) checkInstance(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, lun int32) error {
	if !use.Block && volume.Status.Filesystem != nil {
		return nil
	}
	for waited := time.Duration(0); ; waited += metadataInterval {
		other := f.otherDiskAt(ctx, use.Disk, lun)
		if other == "" {
			return nil
		}
		if waited >= metadataPatience {
			return provisioner.Errorf(provisioner.Unavailable,
				"refusing to use the device at LUN %d for volume %s: instance metadata says that disk %s is there; "+
					"retrying until it names the volume's disk", lun, volume.Name, other)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for instance metadata to name volume %s at LUN %d: %w", volume.Name, lun, ctx.Err())
		case <-f.Clock.After(metadataInterval):
		}
	}
}

// otherDiskAt returns the ID of the disk that instance metadata names at a LUN if it is another one
// than the given disk, and "" otherwise, also if instance metadata does not answer.
func (f *Finder) otherDiskAt(ctx context.Context, disk volumehandle.Handle, lun int32) string {
	if f.DiskAt == nil {
		return ""
	}
	id, err := f.DiskAt(ctx, lun)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("instance metadata does not say which disk is at the LUN", "volumeName",
			disk.VolumeName(), "lun", lun, "reason", err.Error())
		return ""
	}
	if is, _ := volumehandle.Parse(id); is.Same(disk) {
		return ""
	}
	return id
}
