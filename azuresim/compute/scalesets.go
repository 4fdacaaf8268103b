package compute

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/azuresim/store"
)

const maxCapacity = 1000

// ScaleSetInput is a PUT or PATCH of a scale set; nil means that the caller did not say.
type ScaleSetInput struct {
	Location   *string
	Zones      []string
	Tags       map[string]string
	SKU        *string
	Capacity   *int
	Mode       *string // Uniform or Flexible
	IfMatch    string
	TopLevel   Properties
	Properties Properties
}

func scaleSetOf(instance ID) ID {
	instance.Instance = ""
	return instance
}

// PutScaleSet makes a scale set or updates it. Its operation is done when the instances that its
// capacity asks for are there, and no others.
func (c *Cloud) PutScaleSet(id ID, in ScaleSetInput) (Accepted[ScaleSet], error) {
	return change(c, func(tx *store.Tx) (Accepted[ScaleSet], error) {
		var none Accepted[ScaleSet]
		if err := openGroup(tx, id.Subscription, id.Group); err != nil {
			return none, err
		}
		ss, err := scaleSetTable.Get(tx, id.Key())
		if err != nil {
			return none, err
		}
		created := ss == nil
		if created {
			if ss, err = c.newScaleSet(id, in); err != nil {
				return none, err
			}
		}
		op, err := c.reshape(tx, ss, in)
		return Accepted[ScaleSet]{ss, op, created}, err
	})
}

// PatchScaleSet updates a scale set.
func (c *Cloud) PatchScaleSet(id ID, in ScaleSetInput) (Accepted[ScaleSet], error) {
	return change(c, func(tx *store.Tx) (Accepted[ScaleSet], error) {
		ss, err := get(tx, scaleSetTable, id)
		if err != nil {
			return Accepted[ScaleSet]{}, err
		}
		op, err := c.reshape(tx, ss, in)
		return Accepted[ScaleSet]{ss, op, false}, err
	})
}

func (c *Cloud) newScaleSet(id ID, in ScaleSetInput) (*ScaleSet, error) {
	if in.Location == nil {
		return nil, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	location, ok := skus.LocationByName(*in.Location)
	if !ok {
		return nil, locationUnknown(*in.Location)
	}
	for _, z := range in.Zones {
		if !strings.Contains(strings.Join(location.Zones, ","), z) {
			return nil, armerror.BadRequest("InvalidAvailabilityZone",
				"The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '%s'.",
				z, id, location.Name, strings.Join(location.Zones, ","))
		}
	}
	if in.SKU == nil {
		return nil, missing("sku.name")
	}
	return &ScaleSet{
		ID:       id,
		Location: location.Name,
		Zones:    in.Zones,
		Created:  c.Clock.Now().UTC(),
		UniqueID: uuid.NewString(),
		Flexible: in.Mode != nil && strings.EqualFold(*in.Mode, "Flexible"),
	}, nil
}

// reshape lays the input over the scale set and accepts the operation.
func (c *Cloud) reshape(tx *store.Tx, ss *ScaleSet, in ScaleSetInput) (*operations.Operation, error) {
	if err := matchETag(ss.ETag(), in.IfMatch); err != nil {
		return nil, err
	}
	if err := c.laneFree(tx, scaleSetLane(ss.ID)); err != nil {
		return nil, err
	}
	if in.SKU != nil {
		size, ok := skus.SizeByName(*in.SKU)
		if !ok {
			return nil, unknownSize(*in.SKU)
		}
		ss.SKU = size.Name
	}
	if in.Capacity != nil {
		if *in.Capacity < 0 || *in.Capacity > maxCapacity {
			return nil, outOfRange("sku.capacity", int64(*in.Capacity), 0, maxCapacity)
		}
		ss.Capacity = *in.Capacity
	}
	if in.Mode != nil && strings.EqualFold(*in.Mode, "Flexible") != ss.Flexible {
		return nil, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'orchestrationMode' is not allowed.").WithTarget("orchestrationMode")
	}
	if in.Tags != nil {
		ss.Tags = in.Tags
	}
	ss.TopLevel, ss.Properties = overlaid(ss.TopLevel, in.TopLevel), overlaid(ss.Properties, in.Properties)
	if ss.Provisioning = Updating; ss.Revision == 0 {
		ss.Provisioning = Creating
	}
	ss.Revision++
	if err := c.shrink(tx, ss); err != nil {
		return nil, err
	}
	if err := c.grow(tx, ss); err != nil {
		return nil, err
	}
	if err := scaleSetTable.Put(tx, ss.ID.Key(), ss); err != nil {
		return nil, err
	}
	return c.enqueue(tx, job{
		kind:     opScaleSetPut,
		lane:     scaleSetLane(ss.ID),
		target:   ss.ID,
		location: ss.Location,
		duration: c.Latency.Draw(latency.ScaleSet),
	})
}

// ETag is the scale set's entity tag, without quotes.
func (ss *ScaleSet) ETag() string { return itoa(ss.Revision) }

func scaleSetLane(id ID) string { return "vmss " + id.Key() }

// ScaleSet returns a scale set.
func (c *Cloud) ScaleSet(id ID) (*ScaleSet, error) {
	return view(c, func(tx *store.Tx) (*ScaleSet, error) { return get(tx, scaleSetTable, id) })
}

// ScaleSets lists the scale sets of a resource group, or of the subscription if group is empty.
func (c *Cloud) ScaleSets(subscription, group, after string, limit int) (Page[ScaleSet], error) {
	return view(c, func(tx *store.Tx) (Page[ScaleSet], error) {
		return page(tx, scaleSetTable, groupPrefix(subscription, group, KindScaleSet), after, limit,
			func(ss *ScaleSet) (*ScaleSet, error) { return ss, nil })
	})
}

// Instances lists the instances of a scale set. Those of a flexible one are VMs.
func (c *Cloud) Instances(id ID, after string, limit int) (Page[VM], error) {
	return view(c, func(tx *store.Tx) (Page[VM], error) {
		ss, err := get(tx, scaleSetTable, id)
		if err != nil {
			return Page[VM]{}, err
		}
		return page(tx, vmTable, ss.memberPrefix(), after, limit, func(vm *VM) (*VM, error) {
			if !ss.owns(vm) {
				return nil, nil
			}
			return vm, nil
		})
	})
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

// DeleteScaleSet deletes a scale set with its instances. op is nil if there is no such scale set.
func (c *Cloud) DeleteScaleSet(id ID) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		ss, err := scaleSetTable.Get(tx, id.Key())
		if err != nil || ss == nil {
			return nil, err
		}
		if err := c.laneFree(tx, scaleSetLane(id)); err != nil {
			return nil, err
		}
		ss.Provisioning, ss.Capacity = Deleting, 0
		if err := scaleSetTable.Put(tx, id.Key(), ss); err != nil {
			return nil, err
		}
		duration := c.Latency.Draw(latency.VMDelete)
		if err := c.shrink(tx, ss); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     opScaleSetDelete,
			lane:     scaleSetLane(id),
			target:   ss.ID,
			location: ss.Location,
			duration: duration,
		})
	})
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
			target := ID{
				Subscription: id.Subscription,
				Group:        id.Group,
				Kind:         KindScaleSet,
				Name:         id.Name,
				Instance:     name,
			}
			if ss.Flexible {
				target = ID{
					Subscription: id.Subscription,
					Group:        id.Group,
					Kind:         KindVM,
					Name:         name,
				}
			}
			vm, err := c.mustVM(tx, target)
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

func (c *Cloud) completeScaleSet(tx *store.Tx, op *operations.Operation, id ID) error {
	ss, err := scaleSetTable.Get(tx, id.Key())
	if err != nil || ss == nil {
		return err
	}
	if op.Kind == opScaleSetDelete {
		left, err := c.members(tx, ss)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return armerror.NotAllowed("Scale set '%s' cannot be deleted as the deletion of its instance %s failed.", ss.ID.Name,
				left[0].Name)
		}
		return scaleSetTable.Delete(tx, id.Key())
	}
	ss.Provisioning = Succeeded
	return scaleSetTable.Put(tx, id.Key(), ss)
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
	id := ID{
		Subscription: ss.ID.Subscription,
		Group:        ss.ID.Group,
		Kind:         KindScaleSet,
		Name:         ss.ID.Name,
		Instance:     strconv.Itoa(number),
	}
	name := fmt.Sprintf("%s_%d", ss.ID.Name, number)
	if ss.Flexible {
		name = fmt.Sprintf("%s_%s", ss.ID.Name, uuid.NewString()[:8])
		id = ID{
			Subscription: ss.ID.Subscription,
			Group:        ss.ID.Group,
			Kind:         KindVM,
			Name:         name,
		}
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

func (c *Cloud) failScaleSet(tx *store.Tx, id ID) error {
	ss, err := scaleSetTable.Get(tx, id.Key())
	if err != nil || ss == nil {
		return err
	}
	ss.Provisioning = Failed
	return scaleSetTable.Put(tx, id.Key(), ss)
}
