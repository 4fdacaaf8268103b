package compute

import (
	"context"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// planeState is what the data plane should hold.
type planeState struct {
	sizes map[string]int64 // UID -> bytes; of disks and snapshots that are there
	known map[string]bool  // UIDs that an operation may be making or deleting, too
	vms   []*VM
}

// ReconcilePlane brings the data plane to what the store says: cuts attachments that should not be,
// makes those that should, and deletes backing files that belong to nothing. What an operation
// under way is attaching, detaching, making or deleting is left to it.
func (c *Cloud) ReconcilePlane(ctx context.Context) error {
	want, err := view(c, readPlaneState)
	if err != nil {
		return err
	}
	have, err := c.Plane.ListDisks(ctx)
	if err != nil {
		return fmt.Errorf("list backing files: %w", err)
	}
	attachments, err := c.Plane.List(ctx)
	if err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	if err := c.cutStale(ctx, want.vms, attachments); err != nil {
		return err
	}
	present := map[string]bool{}
	for _, uid := range have {
		present[uid] = true
		if !want.known[uid] {
			c.Log.Info("deleting orphaned backing file", "disk", uid)
			if err := c.Plane.DeleteDisk(ctx, uid); err != nil {
				return fmt.Errorf("delete orphan %s: %w", uid, err)
			}
		}
	}
	for uid, size := range want.sizes {
		if !present[uid] {
			c.Log.Warn("backing file is missing, making a blank one", "disk", uid)
			if err := c.Plane.CreateDisk(ctx, uid, size, ""); err != nil {
				return fmt.Errorf("create %s: %w", uid, err)
			}
		}
	}
	for _, vm := range want.vms {
		if err := c.withPlane(vm.ID, func(vm *VM) error { return c.reconcileVM(ctx, vm) }); err != nil {
			return fmt.Errorf("VM %s: %w", vm.PlaneKey, err)
		}
	}
	return nil
}

func readPlaneState(tx *store.Tx) (planeState, error) {
	s := planeState{sizes: map[string]int64{}, known: map[string]bool{}}
	disks, err := values(diskTable.All(tx, ""))
	if err != nil {
		return s, err
	}
	for _, d := range disks {
		s.known[d.UID] = true
		if d.Provisioning == Succeeded || d.Provisioning == Updating {
			s.sizes[d.UID] = d.SizeBytes()
		}
	}
	snapshots, err := values(snapshotTable.All(tx, ""))
	if err != nil {
		return s, err
	}
	for _, sn := range snapshots {
		s.known[sn.UID] = true
		if sn.Provisioning == Succeeded {
			s.sizes[sn.UID] = sn.SizeGB << 30
		}
	}
	s.vms, err = values(vmTable.All(tx, ""))
	return s, err
}

// cutStale detaches what no VM record lists at that LUN.
func (c *Cloud) cutStale(ctx context.Context, vms []*VM, have []dataplane.Attachment) error {
	type place struct {
		vm  string
		lun int
		uid string
	}
	wanted := map[place]bool{}
	for _, vm := range vms {
		for _, d := range vm.Disks {
			wanted[place{vm.PlaneKey, d.LUN, d.UID}] = true
		}
	}
	for _, a := range have {
		if wanted[place{a.VM, a.LUN, a.DiskUID}] {
			continue
		}
		c.Log.Info("cutting stale attachment", "vm", a.VM, "lun", a.LUN, "disk", a.DiskUID)
		if err := c.Plane.Detach(ctx, a.VM, a.LUN, a.DiskUID); err != nil {
			return fmt.Errorf("detach %s from %s: %w", a.DiskUID, a.VM, err)
		}
	}
	return nil
}

func (c *Cloud) reconcileVM(ctx context.Context, vm *VM) error {
	if vm.Off() {
		return c.Plane.PowerOff(ctx, vm.PlaneKey)
	}
	if err := c.Plane.PowerOn(ctx, vm.PlaneKey); err != nil {
		return err
	}
	for _, d := range vm.Disks {
		if d.State == DiskAttached || d.State == DiskDetachFailed {
			if err := c.plug(ctx, vm, d); err != nil {
				return err
			}
		}
	}
	return nil
}
