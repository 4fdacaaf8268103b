package compute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Apply implements operations.Executor: it makes the operation's effects on the data plane.
func (c *Cloud) Apply(ctx context.Context, op *operations.Operation) error {
	id, err := Target(op)
	if err != nil {
		return err
	}
	switch op.Kind {
	case opDiskCreate:
		d, err := view(c, func(tx *store.Tx) (*Disk, error) { return diskTable.Get(tx, id.Key()) })
		if err != nil || d == nil {
			return err
		}
		return c.Plane.CreateDisk(ctx, d.UID, d.SizeBytes(), d.Source.UID)
	case opDiskUpdate:
		return c.applyResize(ctx, op, id)
	case opDiskDelete:
		d, err := view(c, func(tx *store.Tx) (*Disk, error) { return diskTable.Get(tx, id.Key()) })
		if err != nil || d == nil {
			return err
		}
		return c.applyDelete(ctx, d)
	case opSnapshotCreate, opSnapshotDelete:
		return c.applySnapshot(ctx, op, id)
	case opScaleSetPut, opScaleSetDelete:
		return c.awaitMembers(id)
	case opGroupDelete:
		return c.emptyGroup(id)
	case opVMCreate, opVMUpdate, opVMDisks, opVMDelete, opVMStart, opVMPowerOff, opVMDeallocate, opVMHibernate, opVMRestart:
		return c.withPlane(id, func(vm *VM) error { return c.applyVM(ctx, op, vm) })
	}
	return nil
}

// applyDelete cuts the VMs that are attaching the disk off from it first.
func (c *Cloud) applyDelete(ctx context.Context, d *Disk) error {
	for _, claim := range d.Claims {
		id, err := ParseID(claim.VM, "vm")
		if err != nil {
			return err
		}
		if err := c.withPlane(id, func(vm *VM) error { return c.Plane.Detach(ctx, vm.PlaneKey, claim.LUN, d.UID) }); err != nil {
			return err
		}
	}
	return c.Plane.DeleteDisk(ctx, d.UID)
}

// present returns the disk of a VM if the data plane is to have it, or nil: it has been deleted, is
// being deleted, or could not be created.
func (c *Cloud) present(d DataDisk) (*Disk, error) {
	disk, err := view(c, func(tx *store.Tx) (*Disk, error) { return diskTable.Get(tx, d.Disk.Key()) })
	if err != nil || d.Gone || disk == nil || disk.UID != d.UID || disk.Provisioning == Deleting ||
		disk.Provisioning == Failed {
		return nil, err
	}
	return disk, nil
}

// plug shows a disk of the VM on the data plane, if the disk is present. Only a shared disk has
// reservations; maxShares does not change while it is attached.
func (c *Cloud) plug(ctx context.Context, vm *VM, d DataDisk) error {
	disk, err := c.present(d)
	if err != nil || disk == nil {
		return err
	}
	if err := c.Plane.SetShared(ctx, d.UID, disk.Spec.MaxShares > 1); err != nil {
		return err
	}
	return c.Plane.Attach(ctx, vm.PlaneKey, d.LUN, d.UID)
}

func (c *Cloud) applyResize(ctx context.Context, op *operations.Operation, id ID) error {
	var to DiskSpec
	if err := json.Unmarshal(op.Payload, &to); err != nil {
		return fmt.Errorf("decode payload: %w", err)
	}
	d, err := view(c, func(tx *store.Tx) (*Disk, error) { return diskTable.Get(tx, id.Key()) })
	if err != nil || d == nil || to.SizeGB <= d.Spec.SizeGB {
		return err
	}
	return c.Plane.ResizeDisk(ctx, d.UID, to.SizeGB<<30)
}

func (c *Cloud) applySnapshot(ctx context.Context, op *operations.Operation, id ID) error {
	s, err := view(c, func(tx *store.Tx) (*Snapshot, error) { return snapshotTable.Get(tx, id.Key()) })
	if err != nil || s == nil {
		return err
	}
	if op.Kind == opSnapshotDelete {
		return c.Plane.DeleteDisk(ctx, s.UID)
	}
	return c.Plane.CreateDisk(ctx, s.UID, s.SizeGB<<30, s.Source.UID)
}

// applyVM makes the data plane follow the VM's record as far as this operation answers for it.
func (c *Cloud) applyVM(ctx context.Context, op *operations.Operation, vm *VM) error {
	switch op.Kind {
	case opVMPowerOff:
		return c.Plane.PowerOff(ctx, vm.PlaneKey)
	case opVMDeallocate, opVMHibernate:
		if err := c.Plane.PowerOff(ctx, vm.PlaneKey); err != nil {
			return err
		}
		return c.loseReservations(ctx, vm, func(DataDisk) bool { return true })
	case opVMRestart:
		if err := c.Plane.PowerOff(ctx, vm.PlaneKey); err != nil {
			return err
		}
		return c.powerOn(ctx, vm)
	case opVMStart:
		return c.powerOn(ctx, vm)
	case opVMDelete:
		return c.Plane.RemoveVM(ctx, vm.PlaneKey)
	case opVMCreate:
		if err := c.Plane.PowerOn(ctx, vm.PlaneKey); err != nil {
			return err
		}
	}
	if err := c.awaitCreated(op, vm); err != nil {
		return err
	}
	var faults []error
	for _, d := range vm.Disks {
		if d.Operation == op.ID && d.State == DiskDetaching {
			faults = append(faults, c.Plane.Detach(ctx, vm.PlaneKey, d.LUN, d.UID))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	detached := func(d DataDisk) bool { return d.Operation == op.ID && d.State == DiskDetaching }
	if err := c.loseReservations(ctx, vm, detached); err != nil || vm.Off() {
		return err // a VM without power gets its devices when it starts
	}
	for _, d := range vm.Disks {
		if d.Operation == op.ID && d.State == DiskAttaching {
			faults = append(faults, c.plug(ctx, vm, d))
		}
	}
	return errors.Join(faults...)
}

// loseReservations removes what the VM has registered and reserved at those of its disks that
// forget it.
func (c *Cloud) loseReservations(ctx context.Context, vm *VM, at func(DataDisk) bool) error {
	for _, d := range vm.Disks {
		if c.LosesReservations == nil || !at(d) || !c.LosesReservations(d.UID) {
			continue
		}
		if err := c.Plane.LoseReservations(ctx, vm.PlaneKey, d.UID); err != nil {
			return err
		}
	}
	return nil
}

// powerOn gives the VM power and the devices that it should have, also those that were attached
// while it was off. A disk that is being attached shows up a little early: its operation may have
// passed its Apply while the VM was off.
func (c *Cloud) powerOn(ctx context.Context, vm *VM) error {
	if err := c.Plane.PowerOn(ctx, vm.PlaneKey); err != nil {
		return err
	}
	for _, d := range vm.Disks {
		if d.State != DiskDetaching && d.State != DiskAttachFailed {
			if err := c.plug(ctx, vm, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// Undo implements operations.Executor: a disk whose attach fails must not stay visible.
func (c *Cloud) Undo(ctx context.Context, op *operations.Operation) error {
	id, err := Target(op)
	if err != nil || id.Kind != KindVM && id.Instance == "" {
		return err
	}
	return c.withPlane(id, func(vm *VM) error {
		var faults []error
		for _, d := range vm.Disks {
			if d.Operation == op.ID && d.unfinished() {
				faults = append(faults, c.Plane.Detach(ctx, vm.PlaneKey, d.LUN, d.UID))
			}
		}
		return errors.Join(faults...)
	})
}

// withPlane runs fn with the VM's present record, while no other caller changes the VM on the data
// plane. It does nothing if there is no such VM.
func (c *Cloud) withPlane(id ID, fn func(vm *VM) error) error {
	lock, _ := c.planeLocks.LoadOrStore(id.Key(), &sync.Mutex{})
	mu := lock.(*sync.Mutex)
	mu.Lock()
	defer mu.Unlock()
	vm, err := view(c, func(tx *store.Tx) (*VM, error) { return vmTable.Get(tx, id.Key()) })
	if err != nil || vm == nil {
		return err
	}
	return fn(vm)
}
