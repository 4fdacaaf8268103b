package compute

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// VMInput is a PUT or PATCH of a VM or scale-set instance; nil means that the caller did not say.
type VMInput struct {
	Location   *string
	Zones      []string
	Tags       map[string]string
	Size       *string
	ScaleSet   *string
	Disks      []DataDiskInput
	DisksGiven bool // Disks is the whole list, also when it is empty
	IfMatch    string
	TopLevel   Properties
	Properties Properties
	Hardware   Properties
	Storage    Properties
}

func vmLane(id ID) string { return "vm " + id.Key() }

func (c *Cloud) mustVM(tx *store.Tx, id ID) (*VM, error) {
	vm, err := vmTable.Get(tx, id.Key())
	if err != nil || vm != nil {
		return vm, err
	}
	if id.Instance == "" {
		return nil, resourceNotFound(id)
	}
	if _, err := strconv.Atoi(id.Instance); err != nil {
		return nil, armerror.InvalidParameter("instanceId", "Virtual Machine Scale Set VM instanceId must be a number.")
	}
	ss, err := scaleSetTable.Get(tx, scaleSetOf(id).Key())
	if err != nil {
		return nil, err
	}
	if ss == nil {
		return nil, armerror.New(404, "ParentResourceNotFound",
			"Failed to perform the operation on nested resource. The parent resource 'Microsoft.Compute/%s/%s' could not be found.",
			KindScaleSet, id.Name)
	}
	return nil, armerror.New(404, "NotFound",
		"The provided instanceId %s is not an active Virtual Machine Scale Set VM instanceId.",
		id.Instance).WithTarget("instanceIds")
}

// VM returns a VM or scale-set instance.
func (c *Cloud) VM(id ID) (*VM, error) {
	return view(c, func(tx *store.Tx) (*VM, error) { return c.mustVM(tx, id) })
}

// VMs lists the VMs of a resource group, or of the subscription if group is empty. Instances of
// uniform scale sets are not VMs.
func (c *Cloud) VMs(subscription, group, after string, limit int) (Page[VM], error) {
	return view(c, func(tx *store.Tx) (Page[VM], error) {
		return page(tx, vmTable, span{groupPrefix(subscription, group, KindVM), after, limit}, func(vm *VM) (*VM, error) {
			if vm.ID.Kind != KindVM {
				return nil, nil
			}
			return vm, nil
		})
	})
}

// PutVM makes a VM or updates it.
func (c *Cloud) PutVM(id ID, in VMInput) (Accepted[VM], error) {
	return change(c, func(tx *store.Tx) (Accepted[VM], error) {
		if err := openGroup(tx, id.Subscription, id.Group); err != nil {
			return Accepted[VM]{}, err
		}
		vm, err := vmTable.Get(tx, id.Key())
		if err != nil {
			return Accepted[VM]{}, err
		}
		if vm == nil && id.Instance == "" {
			return c.createVM(tx, id, in)
		}
		return c.updateVM(tx, id, in)
	})
}

// PatchVM updates a VM or scale-set instance.
func (c *Cloud) PatchVM(id ID, in VMInput) (Accepted[VM], error) {
	return change(c, func(tx *store.Tx) (Accepted[VM], error) { return c.updateVM(tx, id, in) })
}

func (c *Cloud) updateVM(tx *store.Tx, id ID, in VMInput) (Accepted[VM], error) {
	var none Accepted[VM]
	vm, err := c.mustVM(tx, id)
	if err != nil {
		return none, err
	}
	if err := matchETag(vm.ETag(), in.IfMatch); err != nil {
		return none, err
	}
	if in.Location != nil && skus.NormalizeLocation(*in.Location) != vm.Location {
		return none, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'location' is not allowed.").WithTarget("location")
	}
	if in.Zones != nil && !slices.Equal(in.Zones, vm.Zones) {
		return none, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'zones' is not allowed.").WithTarget("zones")
	}
	before, err := json.Marshal(vm)
	if err != nil {
		return none, err
	}
	u := &update{
		tx:        tx,
		vm:        vm,
		opID:      uuid.NewString(),
		whole:     true,
		goalState: c.ListsGoalState(),
	}
	for _, d := range in.Disks {
		u.forced = u.forced || d.ToBeDetached && strings.EqualFold(d.DetachOption, "ForceDetach")
	}
	if err := c.admit(u); err != nil {
		return none, err
	}
	if err := vm.take(in); err != nil {
		return none, err
	}
	if in.DisksGiven {
		if err := c.replaceDisks(u, in.Disks); err != nil {
			return none, err
		}
	}
	if err := vm.checkCount(staying); err != nil {
		return none, err
	}
	if same, err := u.changesNothing(before); err != nil || same {
		vm.Provisioning = Updating // in the answer only
		return Accepted[VM]{vm, nil, false}, err
	}
	op, err := c.commitUpdate(u)
	return Accepted[VM]{vm, op, false}, err
}

// changesNothing reports whether a whole update leaves a VM as it was, so that Azure ends it at once.
func (u *update) changesNothing(before []byte) (bool, error) {
	after, err := json.Marshal(u.vm)
	return u.vm.Provisioning == Succeeded && len(u.interrupted) == 0 && bytes.Equal(before, after), err
}

// take merges the caller's properties into the VM, all but its data disks.
func (vm *VM) take(in VMInput) error {
	if in.Size != nil {
		size, ok := skus.SizeByName(*in.Size)
		if !ok {
			return unknownSize(*in.Size)
		}
		vm.Size = size.Name
	}
	if in.Tags != nil {
		vm.Tags = in.Tags
	}
	vm.TopLevel = overlaid(vm.TopLevel, in.TopLevel)
	vm.Properties = overlaid(vm.Properties, in.Properties)
	vm.Hardware = overlaid(vm.Hardware, in.Hardware)
	vm.Storage = overlaid(vm.Storage, in.Storage)
	return nil
}

func unknownSize(name string) error {
	return armerror.InvalidParameter("vmSize",
		"The value '%s' provided for the VM size is not valid. The simulated sizes can be had from the resource SKUs.", name)
}

func matchETag(etag, ifMatch string) error {
	if ifMatch == "" || ifMatch == "*" || strings.Trim(ifMatch, `"`) == etag {
		return nil
	}
	return armerror.New(412, "PreconditionFailed", "Etag provided in if-match header %s does not match etag \"%s\" of resource.",
		ifMatch, etag)
}

func (c *Cloud) createVM(tx *store.Tx, id ID, in VMInput) (Accepted[VM], error) {
	var none Accepted[VM]
	if in.Location == nil {
		return none, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	if in.Size == nil {
		return none, missing("hardwareProfile.vmSize")
	}
	vm, err := c.newVM(id, *in.Location, in.Zones, strings.ToLower(id.Name))
	if err != nil {
		return none, err
	}
	if err := vm.take(in); err != nil {
		return none, err
	}
	if in.ScaleSet != nil {
		if err := vm.join(tx, *in.ScaleSet); err != nil {
			return none, err
		}
	}
	if err := claimPlaneKey(tx, vm); err != nil {
		return none, err
	}
	u := &update{
		tx:    tx,
		vm:    vm,
		opID:  uuid.NewString(),
		whole: true,
	}
	if err := c.replaceDisks(u, in.Disks); err != nil {
		return none, err
	}
	if err := vmTable.Put(tx, id.Key(), vm); err != nil {
		return none, err
	}
	op, err := c.enqueueAs(tx, u.opID, job{
		kind:     opVMCreate,
		lane:     vmLane(id),
		target:   id,
		location: vm.Location,
		duration: c.Latency.Draw(latency.VMCreate),
	})
	return Accepted[VM]{vm, op, true}, err
}

// newVM returns a VM that is being created.
func (c *Cloud) newVM(id ID, location string, zones []string, planeKey string) (*VM, error) {
	l, ok := skus.LocationByName(location)
	if !ok {
		return nil, locationUnknown(location)
	}
	if len(zones) > 1 || len(zones) == 1 && !slices.Contains(l.Zones, zones[0]) {
		return nil, armerror.BadRequest("InvalidAvailabilityZone",
			"The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '%s'.",
			strings.Join(zones, ","), id, l.Name, strings.Join(l.Zones, ","))
	}
	return &VM{
		ID:           id,
		PlaneKey:     planeKey,
		Name:         id.Name,
		VMID:         uuid.NewString(),
		Location:     l.Name,
		Zones:        zones,
		Created:      c.Clock.Now().UTC(),
		Provisioning: Creating,
		Power:        PowerStarting,
		Revision:     1,
	}, nil
}

// join puts the VM into a flexible scale set.
func (vm *VM) join(tx *store.Tx, scaleSet string) error {
	id, err := ParseID(scaleSet, "virtualMachineScaleSet.id")
	if err != nil {
		return err
	}
	ss, err := get(tx, scaleSetTable, id)
	if err != nil {
		return err
	}
	if !ss.Flexible {
		return armerror.BadRequest("BadRequest",
			"VM '%s' cannot be added to scale set '%s' because its orchestration mode is not Flexible.", vm.Name, ss.ID.Name)
	}
	vm.ScaleSet = ss.ID.String()
	return nil
}

// claimPlaneKey keeps names on the data plane unique over all subscriptions and resource groups.
func claimPlaneKey(tx *store.Tx, vm *VM) error {
	owner, err := planeTable.Get(tx, vm.PlaneKey)
	if err != nil {
		return err
	}
	key := vm.ID.Key()
	if owner != nil && *owner != key {
		return armerror.NotAllowed("VM '%s' cannot be created: this simulator needs VM names that are unique over all resource groups, and %s has this one.", vm.Name, *owner)
	}
	return planeTable.Put(tx, vm.PlaneKey, &key)
}

// ETag is the VM's entity tag, without quotes.
func (vm *VM) ETag() string { return itoa(vm.Revision) }

// DeleteVM deletes a VM or instance, ending its operations in flight. op is nil if there is no such
// VM.
func (c *Cloud) DeleteVM(id ID) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		vm, err := vmTable.Get(tx, id.Key())
		if err != nil || vm == nil {
			return nil, err
		}
		return c.deleteVM(tx, vm, c.Latency.Draw(latency.VMDelete))
	})
}

func (c *Cloud) deleteVM(tx *store.Tx, vm *VM, duration time.Duration) (*operations.Operation, error) {
	ahead, err := c.engine.Lane(tx, vmLane(vm.ID))
	if err != nil {
		return nil, err
	}
	if len(ahead) > 0 && ahead[0].Kind == opVMDelete {
		return ahead[0], nil
	}
	if _, err := c.engine.Cancel(tx, vmLane(vm.ID),
		armerror.New(409, "OperationPreempted",
			"Operation execution has been preempted by a more recent operation.")); err != nil {
		return nil, err
	}
	vm.Provisioning = Deleting
	op, err := c.enqueue(tx, job{
		kind:     opVMDelete,
		lane:     vmLane(vm.ID),
		target:   vm.ID,
		location: vm.Location,
		duration: duration,
	})
	if err != nil {
		return nil, err
	}
	for i := range vm.Disks {
		vm.Disks[i].leave(op.ID)
	}
	return op, vmTable.Put(tx, vm.ID.Key(), vm)
}
