package compute

import (
	"context"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

func (c *Cloud) notify(tx *store.Tx, vm *VM, kind, state string) {
	if c.Notify == nil {
		return
	}
	e := Event{
		Time:  c.Clock.Now().UTC(),
		VM:    vm.PlaneKey,
		ID:    vm.ID.String(),
		Kind:  kind,
		State: state,
	}
	tx.OnCommit(func() { c.Notify(e) })
}

// AllVMs lists every VM and instance of the simulator.
func (c *Cloud) AllVMs() ([]*VM, error) {
	return view(c, func(tx *store.Tx) ([]*VM, error) { return values(vmTable.All(tx, "")) })
}

// vmByPlaneKey finds a VM by its name on the data plane.
func (c *Cloud) vmByPlaneKey(tx *store.Tx, key string) (*VM, error) {
	idKey, err := planeTable.Get(tx, strings.ToLower(key))
	if err != nil {
		return nil, err
	}
	if idKey == nil {
		return nil, armerror.New(404, "ResourceNotFound", "There is no VM of the name '%s'.", key)
	}
	return vmTable.Get(tx, *idKey)
}

// CutPower cuts the power of a VM at once: its devices fail and what its cache had not written is
// lost. Azure still says that it runs, unless reportStopped.
func (c *Cloud) CutPower(ctx context.Context, key string, reportStopped bool) error {
	id, err := c.idByPlaneKey(key)
	if err != nil {
		return err
	}
	// The data plane comes first: a caller that was told "cut" must find the devices dead. After a
	// crash in between the caller asks again.
	return c.withPlane(id, func(vm *VM) error {
		if err := c.Plane.PowerOff(ctx, vm.PlaneKey); err != nil {
			return err
		}
		return c.changeByPlaneKey(key, func(tx *store.Tx, vm *VM) {
			vm.PowerCut = true
			if reportStopped {
				vm.Power = PowerStopped
			}
			c.notify(tx, vm, "power", "cut")
		})
	})
}

// RestorePower gives a VM its power back, with fresh devices for all of its disks.
func (c *Cloud) RestorePower(ctx context.Context, key string) error {
	id, err := c.idByPlaneKey(key)
	if err != nil {
		return err
	}
	// The data plane comes first here, too: until all devices are there the VM counts as cut, and
	// the caller asks again.
	return c.withPlane(id, func(vm *VM) error {
		if vm.Power != PowerDeallocated {
			if err := c.powerOn(ctx, vm); err != nil {
				return err
			}
		}
		return c.changeByPlaneKey(key, func(tx *store.Tx, vm *VM) {
			vm.PowerCut = false
			if vm.Power == PowerStopped {
				vm.Power = PowerRunning
			}
			c.notify(tx, vm, "power", vm.Power)
		})
	})
}

func (c *Cloud) idByPlaneKey(key string) (ID, error) {
	vm, err := view(c, func(tx *store.Tx) (*VM, error) { return c.vmByPlaneKey(tx, key) })
	if err != nil {
		return ID{}, err
	}
	return vm.ID, nil
}

// SetNetworkCut records that a VM's network is cut or restored, and notifies. The program that
// simulates the network does the rest.
func (c *Cloud) SetNetworkCut(key string, isCut bool) error {
	return c.changeByPlaneKey(key, func(tx *store.Tx, vm *VM) {
		vm.NetworkCut = isCut
		state := "whole"
		if isCut {
			state = "cut"
		}
		c.notify(tx, vm, "network", state)
	})
}

func (c *Cloud) changeByPlaneKey(key string, fn func(tx *store.Tx, vm *VM)) error {
	return c.Store.Update(func(tx *store.Tx) error {
		vm, err := c.vmByPlaneKey(tx, key)
		if err != nil {
			return err
		}
		fn(tx, vm)
		return vmTable.Put(tx, vm.ID.Key(), vm)
	})
}
