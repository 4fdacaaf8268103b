package compute

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// maxQueue is how many updates of one VM may wait behind the one at work.
const maxQueue = 8

// AttachInput asks for a disk to be attached.
type AttachInput struct {
	DiskID           string
	LUN              *int
	Caching          string
	DeleteOption     string
	WriteAccelerator bool
	AccountType      string // that the caller gives for the disk; the disk keeps its own
	Other            Properties
	created          bool // the same update makes the disk
}

// DetachInput asks for a disk to be detached.
type DetachInput struct {
	DiskID string
	Force  bool
}

// update is an update of a VM's disks while it is put together.
type update struct {
	tx          *store.Tx
	vm          *VM
	opID        string
	goalState   bool // the VM lists what it is to have
	whole       bool // the caller gave the whole list (PUT, PATCH)
	attached    int
	detached    int
	forced      bool
	interrupted []*operations.Operation
}

// AttachDetach is POST attachDetachDataDisks.
func (c *Cloud) AttachDetach(id ID, attach []AttachInput, detach []DetachInput) (*operations.Operation, error) {
	if err := c.attachDetachEnabled(); err != nil {
		return nil, err
	}
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		vm, err := c.mustVM(tx, id)
		if err != nil {
			return nil, err
		}
		if len(attach)+len(detach) == 0 {
			return nil, armerror.InvalidParameter("dataDisksToAttach", "At least one disk to attach or to detach must be given.")
		}
		u := &update{
			tx:        tx,
			vm:        vm,
			opID:      uuid.NewString(),
			goalState: c.ListsGoalState(),
		}
		u.forced = slices.ContainsFunc(detach, func(d DetachInput) bool { return d.Force })
		if err := c.admit(u); err != nil {
			return nil, err
		}
		for _, d := range detach {
			if err := c.detachOne(u, d); err != nil {
				return nil, err
			}
		}
		for _, a := range attach {
			if err := c.attachOne(u, a); err != nil {
				return nil, err
			}
		}
		return c.commitUpdate(u)
	})
}

// attachDetachEnabled refuses the call where it is not enabled. Users have reported the two messages;
// the code is an assumption.
func (c *Cloud) attachDetachEnabled() error {
	switch c.AttachDetachOff {
	case "subscription":
		return armerror.BadRequest("BadRequest", "The subscription is not enabled for using the attach detach data disks API.")
	case "region":
		return armerror.BadRequest("BadRequest", "The attach detach data disks API is not enabled for the region.")
	}
	return nil
}

// admit decides whether the update may wait in line, takes the place of those before it, or is
// refused.
func (c *Cloud) admit(u *update) error {
	if u.vm.Hibernated {
		return armerror.NotAllowed("The disks of VM '%s' cannot be changed since the VM is hibernated. Deallocate or start it first.", u.vm.Name)
	}
	ahead, err := c.engine.Lane(u.tx, vmLane(u.vm.ID))
	if err != nil {
		return err
	}
	for _, op := range ahead {
		replaceable := op.Kind == opVMDisks || op.Kind == opVMUpdate
		switch {
		case op.Kind == opVMDelete:
			return armerror.New(409, "Conflict", "The VM '%s' is being deleted.", u.vm.Name)
		case (u.whole || u.forced) && !replaceable, !u.whole && !u.forced && op.Kind == opVMUpdate:
			return armerror.Conflict()
		}
	}
	if !u.whole && !u.forced {
		if len(ahead) > maxQueue {
			return armerror.Conflict()
		}
		return nil
	}
	u.interrupted = ahead
	return nil
}

// attachOne records that a disk is on its way to the VM.
func (c *Cloud) attachOne(u *update, in AttachInput) error {
	id, d, err := u.diskToAttach(in.DiskID)
	if err != nil {
		return err
	}
	caching, err := cachingFor(in.Caching)
	if err != nil {
		return err
	}
	if have := u.vm.findDisk(d.ID); have != nil {
		return u.attachAgain(have, in.LUN)
	}
	lun, err := u.vm.pickLUN(in.LUN)
	if err != nil {
		return err
	}
	_, vms, err := c.holders(u.tx, d)
	if err != nil {
		return err
	}
	view := c.diskView(d, vms)
	err = checkAttach(attachCase{
		vm:      u.vm,
		disk:    d,
		copying: view.CompletionPercent != nil && *view.CompletionPercent < 100,
		caching: caching,
		accel:   in.WriteAccelerator,
		created: in.created,
	})
	if err != nil {
		return err
	}
	shown := d.ID
	if in.created {
		shown = id
	}
	u.vm.Disks = append(u.vm.Disks, DataDisk{
		LUN:              lun,
		Disk:             shown,
		UID:              d.UID,
		SKU:              cmp.Or(in.AccountType, d.Spec.SKU),
		SizeGB:           d.Spec.SizeGB,
		Caching:          caching,
		DeleteOption:     in.DeleteOption,
		WriteAccelerator: in.WriteAccelerator,
		State:            DiskAttaching,
		Operation:        u.opID,
		Created:          in.created,
		Changed:          c.Clock.Now().UTC(),
		Other:            in.Other,
	})
	if err := u.vm.checkCount(staying); err != nil {
		return err
	}
	u.attached++
	d.Claims = append(d.Claims, Claim{VM: u.vm.ID.String(), LUN: lun})
	return diskTable.Put(u.tx, d.ID.Key(), d)
}

func (u *update) diskToAttach(given string) (ID, *Disk, error) {
	id, err := ParseID(given, "dataDisk.managedDisk.id")
	if err != nil {
		return id, nil, err
	}
	d, err := diskTable.Get(u.tx, id.Key())
	if err == nil && (d == nil || id.Kind != KindDisk) {
		err = armerror.New(404, "NotFound", "Disk %s is not found.", given)
	}
	return id, d, err
}

// attachAgain judges an attach of a disk that the VM already lists.
func (u *update) attachAgain(have *DataDisk, lun *int) error {
	switch {
	case have.State == DiskDetaching || have.State == DiskDetachFailed:
		return armerror.New(409, "AttachDiskWhileBeingDetached",
			"Cannot attach data disk '%s' to VM '%s' because the disk is currently being detached or the last detach operation failed. Please wait until the disk is completely detached and then try again or delete/detach the disk explicitly again.",
			have.Disk.Name, u.vm.Name).WithTarget("dataDisks")
	case lun != nil && *lun != have.LUN:
		return armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'dataDisk.lun' is not allowed.").WithTarget("dataDisk.lun")
	}
	return nil
}

// detachOne records that a disk is on its way off the VM.
func (c *Cloud) detachOne(u *update, in DetachInput) error {
	id, err := ParseID(in.DiskID, "dataDisk.managedDisk.id")
	if err != nil {
		return err
	}
	have := u.vm.findDisk(id)
	if have == nil {
		if d, err := diskTable.Get(u.tx, id.Key()); err != nil {
			return err
		} else if d == nil {
			return armerror.New(404, "NotFound", "Disk %s is not found.", in.DiskID)
		}
		return armerror.InvalidParameter("dataDisksToDetach",
			"Disk '%s' cannot be detached from VM '%s' because it is not attached to it.", id.Name, u.vm.Name)
	}
	if have.State == DiskAttaching && !u.whole && !u.forced {
		return armerror.Conflict()
	}
	u.markDetaching(have, in.Force)
	return nil
}

func (u *update) markDetaching(d *DataDisk, force bool) {
	d.Unlisted = u.goalState
	if d.State == DiskDetaching && !u.takesOver(d.Operation) {
		return // the operation that does it runs before this one
	}
	d.leave(u.opID)
	d.Force = force
	u.detached++
}

// leave marks the disk as on its way off the VM, by the operation.
func (d *DataDisk) leave(opID string) {
	d.Undone = d.Undone || d.State == DiskAttaching || d.State == DiskAttachFailed
	d.State, d.Operation = DiskDetaching, opID
}

// unfinished reports whether the disk was never reported as attached, so that it is off the VM when
// the operation fails.
func (d *DataDisk) unfinished() bool {
	return d.State == DiskAttaching || d.State == DiskDetaching && d.Undone
}

// reach makes this update attach what is in the goal state of the VM because an earlier attach has
// failed.
func (u *update) reach() error {
	for i := range u.vm.Disks {
		entry := &u.vm.Disks[i]
		if entry.State != DiskAttachFailed {
			continue
		}
		d, err := diskTable.Get(u.tx, entry.Disk.Key())
		if err != nil || d == nil {
			return err
		}
		entry.State, entry.Operation = DiskAttaching, u.opID
		u.attached++
		d.claimOf(u.vm).Attached = false
		if err := diskTable.Put(u.tx, d.ID.Key(), d); err != nil {
			return err
		}
	}
	return nil
}

func (u *update) takesOver(opID string) bool {
	return slices.ContainsFunc(u.interrupted, func(op *operations.Operation) bool { return op.ID == opID })
}

// inherit makes this update answer for what the ones that it takes the place of had begun. What
// they were attaching stays wanted only if this update gives the whole list and names it; that list
// has been applied by now.
func (u *update) inherit() {
	for i := range u.vm.Disks {
		d := &u.vm.Disks[i]
		if !u.takesOver(d.Operation) {
			continue
		}
		switch {
		case d.State == DiskDetaching, d.State == DiskAttaching && !u.whole:
			u.markDetaching(d, d.Force)
		case d.State == DiskAttaching:
			d.Operation = u.opID
			u.attached++
		}
	}
}

// commitUpdate ends the operations that the update takes the place of, writes the VM and accepts
// the operation.
func (c *Cloud) commitUpdate(u *update) (*operations.Operation, error) {
	kind := opVMDisks
	if u.whole {
		kind = opVMUpdate
	}
	if len(u.interrupted) > 0 {
		cause := armerror.New(409, "OperationPreempted", "Operation execution has been preempted by a more recent operation.")
		if u.forced && !u.whole {
			cause = armerror.New(409, "DataDisksForceDetached",
				"Operation execution has been preempted because data disks of the VM were force detached.")
		}
		if _, err := c.engine.Cancel(u.tx, vmLane(u.vm.ID), cause); err != nil {
			return nil, err
		}
		u.inherit()
	}
	if err := u.reach(); err != nil {
		return nil, err
	}
	u.vm.Provisioning = Updating
	u.vm.Revision++
	if err := vmTable.Put(u.tx, u.vm.ID.Key(), u.vm); err != nil {
		return nil, err
	}
	return c.enqueueAs(u.tx, u.opID, job{
		kind:     kind,
		lane:     vmLane(u.vm.ID),
		target:   u.vm.ID,
		location: u.vm.Location,
		duration: c.updateTime(u),
	})
}

// updateTime draws how long an update takes: attaching and detaching go side by side, and each
// further disk adds a little.
func (c *Cloud) updateTime(u *update) time.Duration {
	var d time.Duration
	if u.attached > 0 {
		d = c.Latency.Draw(latency.Attach)
	}
	switch {
	case u.detached > 0 && u.forced && u.vm.PowerCut:
		d = max(d, c.Latency.Draw(latency.ForceDetach))
	case u.detached > 0 && u.forced:
		d = max(d, c.Latency.Draw(latency.ForceDetachRunning))
	case u.detached > 0:
		d = max(d, c.Latency.Draw(latency.Detach))
	case u.attached == 0:
		d = c.Latency.Draw(latency.VMUpdate)
	}
	for range u.attached + u.detached - 1 {
		d += c.Latency.Draw(latency.PerDisk)
	}
	return d
}
