package fake

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type instances struct{ p *platform }

// Get implements provisioner.Instances.
func (i instances) Get(ctx context.Context, vmID string) (provisioner.Instance, error) {
	return i.p.getVM(ctx, InstancesGet, vmID)
}

func (p *platform) getVM(ctx context.Context, method Method, vmID string) (provisioner.Instance, error) {
	return read(ctx, p, method, vmID, func() (provisioner.Instance, error) {
		if _, err := parseKind(vmID, kindVM, kindScaleSetVM); err != nil {
			return provisioner.Instance{}, err
		}
		v, ok := p.vms[key(vmID)]
		if !ok {
			return provisioner.Instance{}, noVM(vmID)
		}
		return v.seen(p.options.GoalState), nil
	})
}

func noVM(id string) error {
	return provisioner.Errorf(provisioner.NotFound, "VM %s does not exist", id)
}

// seen is the VM as the platform shows it; with the goal state, or else with the disks that it has.
func (v *vm) seen(goalState bool) provisioner.Instance {
	seen := v.Instance
	seen.Settled = !v.failed
	for _, s := range v.slots {
		seen.Settled = seen.Settled && s.attaching == nil && s.detaching == nil
		listed := s.attaching == nil && !s.absent
		if goalState {
			listed = !s.unlisted
		}
		if listed {
			seen.DataDisks = append(seen.DataDisks, provisioner.Attachment{
				DiskID:    s.diskID,
				LUN:       s.lun,
				Detaching: s.detaching != nil,
			})
		}
	}
	return seen
}

// reached says that an operation of the VM has succeeded: the VM has what it is to have.
func (v *vm) reached() {
	v.failed = false
	for _, s := range v.slots {
		s.absent = s.absent && s.unlisted
	}
}

// OnlyListed reports whether a VM lists a disk that it does not have, because the attach has failed.
func (c *Cloud) OnlyListed(vmID, diskID string) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.now()
	v, ok := c.p.vms[key(vmID)]
	if !ok {
		return false
	}
	s := v.slot(diskID)
	return s != nil && s.absent
}

func (v *vm) slot(diskID string) *slot {
	for _, s := range v.slots {
		if strings.EqualFold(key(s.diskID), key(diskID)) {
			return s
		}
	}
	return nil
}

func (v *vm) drop(s *slot) {
	v.slots = slices.DeleteFunc(v.slots, func(other *slot) bool { return other == s })
}

func (v *vm) freeLUN(others []int32) int32 {
	for lun := int32(0); ; lun++ {
		if !slices.Contains(others, lun) && !slices.ContainsFunc(v.slots, func(s *slot) bool { return s.lun == lun }) {
			return lun
		}
	}
}

// holders are the VMs that have the disk, or are getting it.
func (p *platform) holders(diskID string) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(p.vms)) {
		if p.vms[id].slot(diskID) != nil {
			ids = append(ids, p.vms[id].ID)
		}
	}
	return ids
}

func (p *platform) release(diskID, vmID string) {
	if d, ok := p.disks[key(diskID)]; ok {
		d.AttachedTo = slices.DeleteFunc(d.AttachedTo, func(id string) bool { return key(id) == key(vmID) })
	}
}

// AddVM adds a VM, or replaces one of the same ID. Name, power and location have
// defaults: the last part of the ID, running, and "eastus".
func (c *Cloud) AddVM(instance provisioner.Instance) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if instance.Name == "" {
		instance.Name = instance.ID[strings.LastIndex(instance.ID, "/")+1:]
	}
	if instance.Power == "" {
		instance.Power = provisioner.PowerRunning
	}
	if instance.Location == "" {
		instance.Location = "eastus"
	}
	c.p.removeVM(instance.ID)
	added := &vm{Instance: instance}
	added.DataDisks = nil
	for _, a := range instance.DataDisks {
		added.slots = append(added.slots, &slot{diskID: a.DiskID, lun: a.LUN})
		if d, ok := c.p.disks[key(a.DiskID)]; ok {
			d.AttachedTo = append(d.AttachedTo, instance.ID)
		}
	}
	c.p.vms[key(instance.ID)] = added
}

// RemoveVM deletes a VM; its disks are released at once.
func (c *Cloud) RemoveVM(vmID string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.now()
	c.p.removeVM(vmID)
}

func (p *platform) removeVM(vmID string) {
	v, ok := p.vms[key(vmID)]
	if !ok {
		return
	}
	delete(p.vms, key(vmID))
	for _, s := range v.slots {
		p.release(s.diskID, vmID)
		if s.attaching != nil {
			s.attaching.end(noVM(vmID))
		}
		if s.detaching != nil {
			s.detaching.end(nil)
		}
	}
}

// SetPower changes the power state of a VM; its disks stay where they are. Those of a VM that is
// hibernated cannot be detached.
func (c *Cloud) SetPower(vmID string, power provisioner.PowerState) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if v, ok := c.p.vms[key(vmID)]; ok {
		v.Power = power
	}
}

// AddDisk puts a disk there that was not made by Create, as it stands: ready, unless an operation
// of that ID is in flight.
func (c *Cloud) AddDisk(added provisioner.Disk) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	added.Ready = true
	if added.MaxShares == 0 {
		added.MaxShares = 1
	}
	c.p.disks[key(added.ID)] = &disk{Disk: added}
}

// State is what there is on the platform.
type State struct {
	Disks     []provisioner.Disk
	Snapshots []provisioner.Snapshot
	Instances []provisioner.Instance
	// InFlight is the number of operations that have not ended.
	InFlight int
}

// State returns what there is now, each list in the order of the IDs. VMs have the disks that are
// attached, whatever they list.
func (c *Cloud) State() State {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.now()
	state := State{InFlight: len(c.p.inFlight)}
	for _, id := range slices.Sorted(maps.Keys(c.p.disks)) {
		state.Disks = append(state.Disks, c.p.disks[id].seen())
	}
	for _, id := range slices.Sorted(maps.Keys(c.p.snapshots)) {
		state.Snapshots = append(state.Snapshots, c.p.snapshots[id].seen())
	}
	for _, id := range slices.Sorted(maps.Keys(c.p.vms)) {
		state.Instances = append(state.Instances, c.p.vms[id].seen(false))
	}
	return state
}
