package compute

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Instances lists the instances of a scale set. Those of a flexible one are VMs.
func (c *Cloud) Instances(id ID, after string, limit int) (Page[VM], error) {
	return view(c, func(tx *store.Tx) (Page[VM], error) {
		ss, err := get(tx, scaleSetTable, id)
		if err != nil {
			return Page[VM]{}, err
		}
		return page(tx, vmTable, span{ss.memberPrefix(), after, limit}, func(vm *VM) (*VM, error) {
			if !ss.owns(vm) {
				return nil, nil
			}
			return vm, nil
		})
	})
}

// instance is the ID of an instance of the scale set, whose ID is of. In a flexible one the name is
// that of a VM, else it is a number.
func (ss *ScaleSet) instance(of ID, name string) ID {
	if ss.Flexible {
		return ID{Subscription: of.Subscription, Group: of.Group, Kind: KindVM, Name: name}
	}
	of.Instance = name
	return of
}

func (ss *ScaleSet) memberPrefix() string {
	if ss.Flexible {
		return groupPrefix(ss.ID.Subscription, ss.ID.Group, KindVM)
	}
	return ss.ID.Key() + "/virtualmachines/"
}

func (ss *ScaleSet) owns(vm *VM) bool { return strings.EqualFold(vm.ScaleSet, ss.ID.String()) }

func (c *Cloud) members(tx *store.Tx, ss *ScaleSet) ([]*VM, error) {
	all, err := values(vmTable.All(tx, ss.memberPrefix()))
	if err != nil {
		return nil, err
	}
	var list []*VM
	for _, vm := range all {
		if ss.owns(vm) && vm.Provisioning != Deleting {
			list = append(list, vm)
		}
	}
	return list, nil
}

// DeleteInstances deletes some instances of a scale set and lowers its capacity. The operation
// returned is done when its last one is.
func (c *Cloud) DeleteInstances(id ID, instances []string) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		ss, err := get(tx, scaleSetTable, id)
		if err != nil {
			return nil, err
		}
		var last *operations.Operation
		for _, name := range instances {
			vm, err := c.mustVM(tx, ss.instance(id, name))
			if err != nil {
				return nil, err
			}
			if last, err = c.deleteVM(tx, vm, c.Latency.Draw(latency.VMDelete)); err != nil {
				return nil, err
			}
		}
		ss.Capacity = max(0, ss.Capacity-len(instances))
		return last, scaleSetTable.Put(tx, id.Key(), ss)
	})
}

// shrink starts the deletion of the newest instances above the capacity.
func (c *Cloud) shrink(tx *store.Tx, ss *ScaleSet) error {
	members, err := c.members(tx, ss)
	if err != nil {
		return err
	}
	for len(members) > ss.Capacity {
		newest := 0
		for i, vm := range members {
			if vm.Created.After(members[newest].Created) || vm.Created.Equal(members[newest].Created) &&
				instanceNumber(vm) > instanceNumber(members[newest]) {
				newest = i
			}
		}
		if _, err := c.deleteVM(tx, members[newest], c.Latency.Draw(latency.VMDelete)); err != nil {
			return err
		}
		members = append(members[:newest], members[newest+1:]...)
	}
	return nil
}

func instanceNumber(vm *VM) int {
	n, _ := strconv.Atoi(vm.ID.Instance)
	return n
}

// awaitMembers returns operations.ErrNotYet as long as instances are on their way in or out; each
// has an operation of its own.
func (c *Cloud) awaitMembers(id ID) error {
	return c.Store.View(func(tx *store.Tx) error {
		ss, err := scaleSetTable.Get(tx, id.Key())
		if err != nil || ss == nil {
			return err
		}
		all, err := values(vmTable.All(tx, ss.memberPrefix()))
		for _, vm := range all {
			if ss.owns(vm) && (vm.Provisioning == Creating || vm.Provisioning == Deleting) {
				return operations.ErrNotYet
			}
		}
		return err
	})
}

// grow starts the creation of the instances that the capacity asks for.
func (c *Cloud) grow(tx *store.Tx, ss *ScaleSet) error {
	members, err := c.members(tx, ss)
	if err != nil {
		return err
	}
	for n := len(members); n < ss.Capacity; n++ {
		if err := c.addInstance(tx, ss); err != nil {
			return err
		}
	}
	return nil
}

// addInstance starts the creation of an instance, in the zones by turns.
func (c *Cloud) addInstance(tx *store.Tx, ss *ScaleSet) error {
	number := ss.NextInstance
	ss.NextInstance++
	id, name := ss.instance(ss.ID, strconv.Itoa(number)), fmt.Sprintf("%s_%d", ss.ID.Name, number)
	if ss.Flexible {
		name = fmt.Sprintf("%s_%s", ss.ID.Name, uuid.NewString()[:8])
		id = ss.instance(ss.ID, name)
	}
	var zones []string
	if len(ss.Zones) > 0 {
		zones = []string{ss.Zones[number%len(ss.Zones)]}
	}
	vm, err := c.newVM(id, ss.Location, zones, strings.ToLower(name))
	if err != nil {
		return err
	}
	vm.Name, vm.Size, vm.ScaleSet, vm.Tags = name, ss.SKU, ss.ID.String(), ss.Tags
	if err := ss.model().shape(vm, number); err != nil {
		return err
	}
	if err := claimPlaneKey(tx, vm); err != nil {
		return err
	}
	if err := vmTable.Put(tx, id.Key(), vm); err != nil {
		return err
	}
	_, err = c.enqueue(tx, job{
		kind:     opVMCreate,
		lane:     vmLane(id),
		target:   id,
		location: vm.Location,
		duration: c.Latency.Draw(latency.VMCreate),
	})
	return err
}
