package attachment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// diskWork makes the jobs of attachments.
type diskWork struct {
	cloud provisioner.Cloud
	list  *joined[[]provisioner.Attachment]
	power *joined[provisioner.Instance] // with the disks, and whether the VM is settled
}

func newDiskWork(cloud provisioner.Cloud) diskWork {
	return diskWork{
		cloud: cloud,
		list:  join(cloud.Attachments().List),
		power: join(cloud.Instances().Get),
	}
}

func (d diskWork) attach(volume *apiv1.AzVolume, vmID, token string,
	otherLUNs func(context.Context) ([]int32, error)) work.Func {
	request := provisioner.AttachRequest{
		VMID:                vmID,
		DiskID:              volume.Status.DiskID,
		CachingMode:         disk.Caching(volume),
		Shared:              volume.Shares() > 1,
		DiskEncryptionSetID: disk.EncryptionSet(volume),
		WriteAccelerator:    volume.Spec.Disk.WriteAcceleratorEnabled,
		OtherLUNs:           otherLUNs,
	}
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		op, err := d.resumeOr(ctx, token,
			func() (provisioner.Operation, error) { return d.cloud.Attachments().Attach(ctx, request) })
		if err != nil {
			return operation.Truth{}, fmt.Errorf("attach disk: %w", err)
		}
		accepted(op)
		ended := op.Wait(ctx)
		truth, err := d.look(ctx, vmID, request.DiskID)
		truth.VMID = vmID
		return truth, first(ended, err, "attach disk")
	}
}

// detach makes the job that detaches a disk. Where the ID of the disk is not known, the disk is
// found at the VM by its name.
func (d diskWork) detach(volumeName, diskID, vmID, token string) work.Func {
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		if diskID == "" {
			found, err := d.findDisk(ctx, vmID, volumeName)
			if err != nil || found == "" {
				return operation.Truth{}, err
			}
			diskID = found
		}
		op, err := d.resumeOr(ctx, token, func() (provisioner.Operation, error) {
			return d.cloud.Attachments().Detach(ctx, vmID, diskID)
		})
		if err != nil {
			return operation.Truth{}, fmt.Errorf("detach disk: %w", err)
		}
		accepted(op)
		if err := op.Wait(ctx); err != nil {
			return operation.Truth{}, fmt.Errorf("detach disk: %w", err) // what the VM lists is no proof: the next try finds out
		}
		return operation.Truth{}, nil // the platform has completed the detach
	}
}

// fence finds out whether a VM can write to the disk, and detaches the disk by force if it may. If
// the VM does not list the disk, the disk is detached by force nevertheless: the list is no proof,
// and a superseded attach may still be in flight to the platform, and the forced detach ends after
// it.
//
// The disk is also detached from a VM that is down. The VM may be started with its mounts and dirty
// pages: Azure may report it as deallocated before it reports it as hibernated, and a guest may
// hibernate by itself and count as stopped. A reservation of the disk is no reason to leave it
// attached: it is not known whether the next owner can take it.
func (d diskWork) fence(volumeName, diskID, vmID, token string) work.Func {
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		crashpoint.At("fence-before-vm-is-read")
		vm, err := d.power.Read(ctx, vmID)
		switch {
		case errors.Is(err, provisioner.NotFound):
			return operation.Truth{VMGone: true}, nil
		case err != nil:
			return operation.Truth{}, fmt.Errorf("read VM: %w", err)
		}
		if err := d.finishEarlier(ctx, token, accepted); err != nil {
			return operation.Truth{}, err
		}
		if diskID == "" {
			if diskID, err = d.findDisk(ctx, vmID, volumeName); err != nil {
				return operation.Truth{}, err
			}
		}
		if diskID == "" {
			return operation.Truth{VMDown: vm.Down()}, nil
		}
		truth, err := d.cutOff(ctx, diskID, vmID, accepted)
		truth.VMDown = vm.Down() && !truth.Attached
		return truth, err
	}
}

// readVM is the fence of a VM from which the disk must not be detached now: there is a proof only
// if Azure has no such VM.
func (d diskWork) readVM(vmID string, epoch int64) work.Func {
	return func(ctx context.Context, _ func(provisioner.Operation)) (operation.Truth, error) {
		truth := operation.Truth{Epoch: epoch, Attached: true}
		_, err := d.power.Read(ctx, vmID)
		if err != nil && !errors.Is(err, provisioner.NotFound) {
			return truth, fmt.Errorf("read VM: %w", err)
		}
		truth.VMGone = err != nil
		truth.OnlyRead = !truth.VMGone
		return truth, nil
	}
}

// finishEarlier waits for the end of a forced detach that an earlier process began, whatever the VM
// lists until then. Another forced detach would replace it and restart its time. It proves nothing
// by itself: it may have been for another VM, or have failed. The forced detach after it finds out,
// and costs only reads if there is nothing to do.
func (d diskWork) finishEarlier(ctx context.Context, token string, accepted func(provisioner.Operation)) error {
	if token == "" {
		return nil
	}
	op, err := d.cloud.Attachments().Resume(ctx, token)
	switch {
	case errors.Is(err, provisioner.InvalidArgument), errors.Is(err, provisioner.NotFound):
		return nil
	case err != nil:
		return fmt.Errorf("resume the forced detach: %w", err)
	}
	accepted(op)
	if err := op.Wait(ctx); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("the forced detach of an earlier process failed", "message", err.Error())
		return ctx.Err()
	}
	return nil
}

// cutOff detaches a disk by force, and returns what the VM has then. That the operation succeeds is
// the proof: a VM does not list a disk that it is not to have any more, although the detach may be
// in flight or have failed.
func (d diskWork) cutOff(
	ctx context.Context, diskID, vmID string, accepted func(provisioner.Operation),
) (operation.Truth, error) {
	crashpoint.At("fence-before-forced-detach")
	op, err := d.cloud.Attachments().ForceDetach(ctx, vmID, diskID)
	if err != nil {
		return operation.Truth{}, fmt.Errorf("detach disk by force: %w", err)
	}
	crashpoint.At("fence-after-acceptance")
	accepted(op)
	err = op.Wait(ctx)
	crashpoint.At("fence-after-end")
	if err != nil {
		return operation.Truth{}, fmt.Errorf("detach disk by force: %w", err)
	}
	return d.look(ctx, vmID, diskID) // it may have been attached again
}

// fenceByDisk is the fence of a node if it is not recorded to which VM the disk was attached.
// suspects returns the VMs from which to detach the disk, given those that the disk names. The disk
// is also detached from a VM that is down: no attachment would name that VM when it starts again.
func (d diskWork) fenceByDisk(diskID, token string,
	suspects func(ctx context.Context, attachedTo []string) ([]string, error)) work.Func {
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		if err := d.finishEarlier(ctx, token, accepted); err != nil {
			return operation.Truth{}, err
		}
		disk, err := d.cloud.Disks().Get(ctx, diskID)
		if errors.Is(err, provisioner.NotFound) {
			return operation.Truth{}, nil
		}
		if err != nil {
			return operation.Truth{}, fmt.Errorf("read disk: %w", err)
		}
		vms, err := suspects(ctx, disk.AttachedTo)
		if err != nil {
			return operation.Truth{}, err
		}
		for _, vm := range vms {
			if truth, err := d.cutOff(ctx, diskID, vm, accepted); err != nil || truth.Attached {
				return truth, err
			}
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
	op, err := d.cloud.Attachments().Resume(ctx, token)
	if errors.Is(err, provisioner.InvalidArgument) || errors.Is(err, provisioner.NotFound) {
		return begin()
	}
	return op, err
}

func (d diskWork) look(ctx context.Context, vmID, diskID string) (operation.Truth, error) {
	disks, err := d.list.Read(ctx, vmID)
	if errors.Is(err, provisioner.NotFound) {
		return operation.Truth{VMGone: true}, nil
	}
	if err != nil {
		return operation.Truth{}, fmt.Errorf("read disks of VM: %w", err)
	}
	return find(disks, diskID), nil
}

// findDisk returns the ID of the disk of a volume at the VM; "" if the VM does not have it.
func (d diskWork) findDisk(ctx context.Context, vmID, volumeName string) (string, error) {
	vm, err := d.power.Read(ctx, vmID)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return "", fmt.Errorf("read disks of VM: %w", err)
	}
	id := named(vm.DataDisks, volumeName)
	if err == nil && id == "" && !vm.Settled {
		return "", provisioner.Errorf(provisioner.Conflict, "find the disk of volume %s at VM %s: the VM does not list it, "+
			"but an operation on the VM is in flight or has failed, and the disk may still be attached", volumeName, vmID)
	}
	return id, nil
}

// named returns the ID of the disk of a volume; "" if it is not there.
func named(disks []provisioner.Attachment, volumeName string) string {
	for _, disk := range disks {
		if handle, err := volumehandle.Parse(disk.DiskID); err == nil && handle.VolumeName() == volumeName {
			return disk.DiskID
		}
	}
	return ""
}

func find(disks []provisioner.Attachment, diskID string) operation.Truth {
	for _, d := range disks {
		if strings.EqualFold(d.DiskID, diskID) {
			return operation.Truth{
				Attached:  true,
				Detaching: d.Detaching,
				LUN:       d.LUN,
			}
		}
	}
	return operation.Truth{}
}

func first(operation, look error, what string) error {
	if operation != nil {
		return fmt.Errorf("%s: %w", what, operation)
	}
	return look
}
