package compute

import (
	"context"
	"errors"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Check reports every contradiction in the model. It holds between any two transactions, also after
// any kill.
func (c *Cloud) Check() error {
	return c.Store.View(func(tx *store.Tx) error {
		ops, err := c.engine.Unfinished(tx)
		if err != nil {
			return err
		}
		k := checker{
			tx:    tx,
			ops:   map[string]*operations.Operation{},
			disks: map[string]*Disk{},
			vms:   map[string]*VM{},
		}
		for _, op := range ops {
			k.ops[op.ID] = op
		}
		disks, err := values(diskTable.All(tx, ""))
		if err != nil {
			return err
		}
		vms, err := values(vmTable.All(tx, ""))
		if err != nil {
			return err
		}
		for _, d := range disks {
			k.disks[d.ID.Key()] = d
		}
		for _, vm := range vms {
			k.vms[vm.ID.Key()] = vm
		}
		k.checkLanes(ops)
		k.checkDisks()
		k.checkVMs()
		return errors.Join(k.faults...)
	})
}

type checker struct {
	tx     *store.Tx
	ops    map[string]*operations.Operation
	disks  map[string]*Disk
	vms    map[string]*VM
	faults []error
}

func (k *checker) expect(ok bool, format string, args ...any) {
	if !ok {
		k.faults = append(k.faults, fmt.Errorf(format, args...))
	}
}

// checkLanes: the first of a lane runs, the rest wait.
func (k *checker) checkLanes(ops []*operations.Operation) {
	lane := ""
	for _, op := range ops {
		want := operations.Queued
		if op.Lane != lane {
			want, lane = operations.Running, op.Lane
		}
		k.expect(op.State == want, "operation %s of lane %q is %s, want %s", op.ID, op.Lane, op.State, want)
	}
}

func (k *checker) checkDisks() {
	uids := map[string]string{}
	for key, d := range k.disks {
		k.expect(uids[d.UID] == "", "disks %s and %s have the same unique ID", uids[d.UID], key)
		uids[d.UID] = key
		k.expect(len(d.Claims) <= d.Spec.MaxShares, "disk %s has %d claims, maxShares is %d", key, len(d.Claims),
			d.Spec.MaxShares)
		busy := d.Provisioning == Creating || d.Provisioning == Updating || d.Provisioning == Deleting
		k.expect(!busy || k.hasLane(diskLane(d.ID)), "disk %s is %s without an operation", key, d.Provisioning)
		for _, claim := range d.Claims {
			id, err := ParseID(claim.VM, "vm")
			vm := k.vms[id.Key()]
			k.expect(err == nil && vm != nil, "disk %s names VM %s as its user, and there is no such VM", key, claim.VM)
			if vm == nil {
				continue
			}
			entry := vm.findDisk(d.ID)
			k.expect(entry != nil && entry.LUN == claim.LUN,
				"disk %s names VM %s at LUN %d as its user, and the VM does not list the disk there", key, claim.VM, claim.LUN)
		}
	}
}

func (k *checker) hasLane(lane string) bool {
	for _, op := range k.ops {
		if op.Lane == lane {
			return true
		}
	}
	return false
}

func (k *checker) checkVMs() {
	names := map[string]string{}
	for key, vm := range k.vms {
		k.expect(names[vm.PlaneKey] == "", "VMs %s and %s have the same name on the data plane", names[vm.PlaneKey], key)
		names[vm.PlaneKey] = key
		owner, err := planeTable.Get(k.tx, vm.PlaneKey)
		k.expect(err == nil && owner != nil && *owner == key, "name %s is not registered for VM %s", vm.PlaneKey, key)
		busy := vm.Provisioning == Creating || vm.Provisioning == Updating || vm.Provisioning == Deleting
		k.expect(!busy || k.hasLane(vmLane(vm.ID)), "VM %s is %s without an operation", key, vm.Provisioning)
		k.checkDataDisks(key, vm)
	}
}

func (k *checker) checkDataDisks(key string, vm *VM) {
	luns := map[int]bool{}
	attached := 0
	for _, e := range vm.Disks {
		k.expect(!luns[e.LUN], "VM %s has two disks at LUN %d", key, e.LUN)
		luns[e.LUN] = true
		if e.State == DiskAttached || e.State == DiskDetachFailed {
			attached++
		}
		if e.Gone {
			continue
		}
		d := k.disks[e.Disk.Key()]
		k.expect(d != nil && d.UID == e.UID, "VM %s lists disk %s, which is not there", key, e.Disk)
		if d != nil {
			claim := d.claimOf(vm)
			k.expect(claim.VM != "", "VM %s lists disk %s, which it has no claim to", key, e.Disk)
			k.expect(e.State == DiskDetaching || claim.Attached == (e.State != DiskAttaching),
				"VM %s: disk %s is %s, its claim says attached=%v", key, e.Disk, e.State, claim.Attached)
		}
		moving := e.State == DiskAttaching || e.State == DiskDetaching
		op := k.ops[e.Operation]
		k.expect(!moving || op != nil && op.Lane == vmLane(vm.ID), "VM %s: disk %s is %s without an operation", key, e.Disk,
			e.State)
	}
	size, ok := skus.SizeByName(vm.Size)
	k.expect(ok && attached <= size.MaxDataDisks, "VM %s has %d disks, its size %s takes %d", key, attached, vm.Size,
		size.MaxDataDisks)
}

// CheckPlane reports every difference between the model and the data plane. That can be judged only
// while no operation is under way: quiet reports whether that was so from beginning to end.
func (c *Cloud) CheckPlane(ctx context.Context) (quiet bool, err error) {
	before, idle, err := c.accepted()
	if err != nil || !idle {
		return false, err
	}
	difference, err := c.comparePlane(ctx)
	if err != nil {
		return false, err
	}
	after, idle, err := c.accepted()
	if err != nil || !idle || before != after {
		return false, err
	}
	return true, difference
}

func (c *Cloud) accepted() (count uint64, idle bool, err error) {
	err = c.Store.View(func(tx *store.Tx) error {
		count, idle, err = c.engine.Accepted(tx)
		return err
	})
	return count, idle, err
}

func (c *Cloud) comparePlane(ctx context.Context) (difference, err error) {
	want, err := view(c, readPlaneState)
	if err != nil {
		return nil, err
	}
	disks, err := c.Plane.ListDisks(ctx)
	if err != nil {
		return nil, err
	}
	attachments, err := c.Plane.List(ctx)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, uid := range disks {
		if !want.known[uid] {
			faults = append(faults, fmt.Errorf("backing file %s belongs to nothing", uid))
		}
		delete(want.sizes, uid)
	}
	for uid := range want.sizes {
		faults = append(faults, fmt.Errorf("disk %s has no backing file", uid))
	}
	have := map[string]bool{}
	for _, a := range attachments {
		have[fmt.Sprintf("%s/%d/%s", a.VM, a.LUN, a.DiskUID)] = true
	}
	for _, vm := range want.vms {
		for _, d := range vm.Disks {
			place := fmt.Sprintf("%s/%d/%s", vm.PlaneKey, d.LUN, d.UID)
			if !have[place] && !vm.Off() && !d.Gone {
				faults = append(faults, fmt.Errorf("attachment %s is missing on the data plane", place))
			}
			delete(have, place)
		}
	}
	for place := range have {
		faults = append(faults, fmt.Errorf("attachment %s should not be on the data plane", place))
	}
	return errors.Join(faults...), nil
}
