package compute

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Kinds of operations.
const (
	opDiskCreate     = "disk.create"
	opDiskUpdate     = "disk.update"
	opDiskDelete     = "disk.delete"
	opSnapshotCreate = "snapshot.create"
	opSnapshotUpdate = "snapshot.update"
	opSnapshotDelete = "snapshot.delete"
	opVMCreate       = "vm.create"
	opVMUpdate       = "vm.update" // PUT or PATCH
	opVMDisks        = "vm.disks"  // attachDetachDataDisks
	opVMDelete       = "vm.delete"
	opVMStart        = "vm.start"
	opVMPowerOff     = "vm.powerOff"
	opVMDeallocate   = "vm.deallocate"
	opVMHibernate    = "vm.hibernate"
	opVMRestart      = "vm.restart"
	opScaleSetPut    = "vmss.put"
	opScaleSetDelete = "vmss.delete"
	opGroupDelete    = "group.delete"
	opLinkedPut      = "linked.put"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Complete implements operations.Executor: it records what the operation was for.
func (c *Cloud) Complete(tx *store.Tx, op *operations.Operation) error {
	id, err := Target(op)
	if err != nil {
		return err
	}
	switch op.Kind {
	case opDiskCreate, opDiskUpdate:
		return c.completeDisk(tx, op, id)
	case opDiskDelete:
		return c.forgetDisk(tx, id)
	case opSnapshotCreate, opSnapshotUpdate:
		return c.completeSnapshot(tx, op, id)
	case opSnapshotDelete:
		return snapshotTable.Delete(tx, id.Key())
	case opScaleSetPut, opScaleSetDelete:
		return c.completeScaleSet(tx, op, id)
	case opGroupDelete:
		return c.completeGroup(tx, id)
	case opLinkedPut:
		return nil
	}
	return c.completeVM(tx, op, id)
}

func (c *Cloud) completeDisk(tx *store.Tx, op *operations.Operation, id ID) error {
	d, err := diskTable.Get(tx, id.Key())
	if err != nil || d == nil {
		return err
	}
	if op.Kind == opDiskUpdate {
		var to DiskSpec
		if err := json.Unmarshal(op.Payload, &to); err != nil {
			return fmt.Errorf("decode payload: %w", err)
		}
		if to.Bursting && !d.Spec.Bursting {
			d.BurstingOn = c.Clock.Now().UTC()
		}
		if to.SKU != d.Spec.SKU && to.SKU == skus.PremiumV2LRS {
			d.CopyStarted, d.CopyDone = c.copyTimes() // the disk can be used during the copy
		}
		d.Spec = to
		if err := c.showSize(tx, d); err != nil {
			return err
		}
	}
	d.Provisioning = Succeeded
	return diskTable.Put(tx, id.Key(), d)
}

// showSize writes the size of a disk into the lists of the VMs that have it.
func (c *Cloud) showSize(tx *store.Tx, d *Disk) error {
	_, vms, err := c.holders(tx, d)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if entry := vm.findDisk(d.ID); entry != nil && entry.SizeGB != d.Spec.SizeGB {
			entry.SizeGB = d.Spec.SizeGB
			if err := vmTable.Put(tx, vm.ID.Key(), vm); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetDisk removes a disk. A VM that was attaching it keeps it in its list.
func (c *Cloud) forgetDisk(tx *store.Tx, id ID) error {
	d, err := diskTable.Get(tx, id.Key())
	if err != nil || d == nil {
		return err
	}
	_, vms, err := c.holders(tx, d)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if entry := vm.findDisk(id); entry != nil {
			entry.Gone = true
		}
		if err := vmTable.Put(tx, vm.ID.Key(), vm); err != nil {
			return err
		}
	}
	return diskTable.Delete(tx, id.Key())
}

func (c *Cloud) completeVM(tx *store.Tx, op *operations.Operation, id ID) error {
	vm, err := vmTable.Get(tx, id.Key())
	if err != nil || vm == nil {
		return err
	}
	vm.Provisioning = Succeeded
	before := vm.Power
	switch op.Kind {
	case opVMCreate, opVMStart, opVMRestart:
		if op.Kind == opVMCreate {
			vm.Revision++ // the model of a VM that is made changes once more
		}
		vm.Power, vm.PowerCut, vm.Hibernated = PowerRunning, false, false // Azure starts it on a healthy host
	case opVMPowerOff:
		vm.Power, vm.Hibernated = PowerStopped, false
	case opVMDeallocate:
		vm.Power, vm.Hibernated = PowerDeallocated, false // its memory is lost
	case opVMHibernate:
		vm.Power, vm.Hibernated = PowerDeallocated, true
	}
	if err := c.settleDisks(tx, op, vm); err != nil {
		return err
	}
	if op.Kind == opVMDelete {
		return c.forgetVM(tx, vm)
	}
	if vm.Power != before || op.Kind == opVMRestart {
		c.notify(tx, vm, "power", vm.Power)
	}
	return vmTable.Put(tx, id.Key(), vm)
}

// settleDisks turns what the operation was attaching into attached, and drops what it was
// detaching.
func (c *Cloud) settleDisks(tx *store.Tx, op *operations.Operation, vm *VM) error {
	now := c.Clock.Now().UTC()
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if d.Operation != op.ID || d.State != DiskAttaching && d.State != DiskDetaching {
			continue
		}
		disk, err := diskTable.Get(tx, d.Disk.Key())
		if err != nil {
			return err
		}
		if disk == nil || d.Gone {
			if d.State == DiskAttaching {
				d.State, d.Operation = DiskAttached, ""
			}
			continue
		}
		if d.State == DiskAttaching {
			if disk.Provisioning == Failed {
				return armerror.NotAllowed("Disk '%s' cannot be attached because its provisioning failed.", disk.ID.Name)
			}
			d.State, d.Operation, d.Changed = DiskAttached, "", now
			disk.claimOf(vm).Attached = true
		} else {
			disk.dropClaim(vm)
		}
		disk.OwnerChanged = now
		if err := diskTable.Put(tx, disk.ID.Key(), disk); err != nil {
			return err
		}
	}
	vm.Disks = slices.DeleteFunc(vm.Disks, func(d DataDisk) bool { return d.State == DiskDetaching && d.Operation == op.ID })
	// A detach that this operation counted on may have failed.
	return vm.checkCount(func(d DataDisk) bool { return d.State == DiskAttached || d.State == DiskDetachFailed })
}

func (d *Disk) claimOf(vm *VM) *Claim {
	for i := range d.Claims {
		if d.Claims[i].VM == vm.ID.String() {
			return &d.Claims[i]
		}
	}
	return &Claim{}
}

func (d *Disk) dropClaim(vm *VM) {
	d.Claims = slices.DeleteFunc(d.Claims, func(c Claim) bool { return c.VM == vm.ID.String() })
}

func (c *Cloud) forgetVM(tx *store.Tx, vm *VM) error {
	if err := planeTable.Delete(tx, vm.PlaneKey); err != nil {
		return err
	}
	c.notify(tx, vm, "deleted", "")
	return vmTable.Delete(tx, vm.ID.Key())
}

// Fail implements operations.Executor: it undoes what the operation had announced.
func (c *Cloud) Fail(tx *store.Tx, op *operations.Operation, _ *armerror.Error) error {
	id, err := Target(op)
	if err != nil {
		return err
	}
	switch op.Kind {
	case opDiskCreate, opDiskUpdate, opDiskDelete:
		d, err := diskTable.Get(tx, id.Key())
		if err != nil || d == nil {
			return err
		}
		d.Provisioning = Succeeded
		if op.Kind == opDiskCreate {
			d.Provisioning = Failed
		}
		return diskTable.Put(tx, id.Key(), d)
	case opSnapshotCreate, opSnapshotUpdate, opSnapshotDelete:
		s, err := snapshotTable.Get(tx, id.Key())
		if err != nil || s == nil {
			return err
		}
		s.Provisioning = Succeeded
		if op.Kind == opSnapshotCreate {
			s.Provisioning = Failed
		}
		return snapshotTable.Put(tx, id.Key(), s)
	case opScaleSetPut, opScaleSetDelete:
		return c.failScaleSet(tx, id)
	case opGroupDelete:
		return c.failGroup(tx, id)
	case opLinkedPut:
		return failLinked(tx, op, id)
	}
	return c.failVM(tx, op, id)
}

// failVM: what was being attached is off the VM again, or stays in its goal state; what was being
// detached stays, marked, and can be detached again.
func (c *Cloud) failVM(tx *store.Tx, op *operations.Operation, id ID) error {
	vm, err := vmTable.Get(tx, id.Key())
	if err != nil || vm == nil {
		return err
	}
	vm.Provisioning = Failed
	switch op.Kind {
	case opVMStart, opVMCreate:
		vm.Power = PowerStopped
	case opVMPowerOff, opVMDeallocate, opVMHibernate:
		vm.Power = PowerRunning
	}
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if d.Operation != op.ID {
			continue
		}
		switch {
		case d.unfinished():
			disk, err := diskTable.Get(tx, d.Disk.Key())
			if err != nil {
				return err
			}
			stays := c.ListsGoalState() && d.State == DiskAttaching && !d.Created
			if disk != nil && !d.Gone {
				if stays {
					d.State, d.Operation = DiskAttachFailed, ""
					disk.claimOf(vm).Attached = true
				} else {
					disk.dropClaim(vm)
				}
				if err := diskTable.Put(tx, disk.ID.Key(), disk); err != nil {
					return err
				}
			}
		case d.State == DiskDetaching:
			d.State, d.Operation = DiskDetachFailed, ""
		}
	}
	vm.Disks = slices.DeleteFunc(vm.Disks, func(d DataDisk) bool { return d.unfinished() && d.Operation == op.ID })
	return vmTable.Put(tx, id.Key(), vm)
}
