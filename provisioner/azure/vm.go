package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// vmClient is a VM or an instance of a uniform scale set.
type vmClient struct {
	cloud *Cloud
	client.Resource
}

func (c *Cloud) vm(id string) (vmClient, error) {
	r, err := c.api.Parse(id, client.TypeVM, client.TypeScaleSetVM)
	return vmClient{cloud: c, Resource: r}, err
}

// get reads the VM. If it does not exist, the result is Gone and err is nil.
func (v vmClient) get(ctx context.Context, withPower bool) (batch.VM, error) {
	read := v.getVM
	if v.Is(client.TypeScaleSetVM) {
		read = v.getScaleSetVM
	}
	seen, err := read(v.cloud.api.Persistent(ctx, pacing.GetVM, v.String()), withPower)
	err = v.cloud.api.Translate(err, "read VM %s", v.Name)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return batch.VM{Gone: true}, nil
	case err != nil:
		return batch.VM{}, err
	case seen.storage == nil || operation.Key(client.Value(seen.id)) != operation.Key(v.String()):
		// An answer without the storage profile does not say that the VM has no disks.
		return batch.VM{}, incomplete("VM", v.Name)
	}
	return seen.view(), nil
}

// incomplete is the error of a read whose answer is about another resource, or has not what was
// requested.
func incomplete(what, name string) error {
	return provisioner.Errorf(provisioner.Unavailable, "read %s %s: the answer is incomplete or about another %s", what, name,
		what)
}

// model is what VMs and scale-set instances have in common in the SDK's model.
type model struct {
	id, name, location *string
	zones              []*string
	state              *string
	storage            *armcompute.StorageProfile
	statuses           []*armcompute.InstanceViewStatus
	hibernates         bool // it can be hibernated
	size               string
}

func (m model) view() batch.VM {
	return batch.VM{State: client.Value(m.state), Instance: provisioner.Instance{
		ID:        client.Value(m.id),
		Name:      client.Value(m.name),
		Location:  client.Value(m.location),
		Zone:      first(m.zones),
		Size:      m.size,
		Power:     powerOf(m.statuses, m.hibernates),
		DataDisks: dataDisksOf(m.storage),
		Settled:   client.Value(m.state) == operation.StateSucceeded,
	}}
}

func (v vmClient) getVM(ctx context.Context, withPower bool) (model, error) {
	var options armcompute.VirtualMachinesClientGetOptions
	if withPower {
		expand := armcompute.InstanceViewTypesInstanceView
		options.Expand = &expand
	}
	got, err := v.VMs.Get(ctx, v.ResourceGroupName, v.Name, &options)
	return modelOfVM(&got.VirtualMachine), err
}

func modelOfVM(got *armcompute.VirtualMachine) model {
	m := model{
		id:       got.ID,
		name:     got.Name,
		location: got.Location,
		zones:    got.Zones,
	}
	if p := got.Properties; p != nil {
		m.state, m.storage, m.hibernates = p.ProvisioningState, p.StorageProfile, hibernates(p.AdditionalCapabilities)
		if p.HardwareProfile != nil {
			m.size = string(client.Value(p.HardwareProfile.VMSize))
		}
		if p.InstanceView != nil {
			m.statuses = p.InstanceView.Statuses
		}
	}
	return m
}

func (v vmClient) getScaleSetVM(ctx context.Context, withPower bool) (model, error) {
	var options armcompute.VirtualMachineScaleSetVMsClientGetOptions
	if withPower {
		expand := armcompute.InstanceViewTypesInstanceView
		options.Expand = &expand
	}
	got, err := v.ScaleSets.Get(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, &options)
	return modelOfScaleSetVM(&got.VirtualMachineScaleSetVM), err
}

func modelOfScaleSetVM(got *armcompute.VirtualMachineScaleSetVM) model {
	m := model{
		id:       got.ID,
		name:     got.Name,
		location: got.Location,
		zones:    got.Zones,
	}
	if got.SKU != nil {
		m.size = client.Value(got.SKU.Name)
	}
	if p := got.Properties; p != nil {
		m.state, m.storage, m.hibernates = p.ProvisioningState, p.StorageProfile, hibernates(p.AdditionalCapabilities)
		if p.HardwareProfile != nil && p.HardwareProfile.VMSize != nil {
			m.size = string(*p.HardwareProfile.VMSize)
		}
		if p.InstanceView != nil {
			m.statuses = p.InstanceView.Statuses
		}
	}
	return m
}

func dataDisksOf(s *armcompute.StorageProfile) []provisioner.Attachment {
	var list []provisioner.Attachment
	for _, d := range s.DataDisks {
		if d == nil || d.ManagedDisk == nil || d.ManagedDisk.ID == nil {
			continue // a disk in a blob: this driver has none, and no VM has both kinds
		}
		list = append(list, provisioner.Attachment{
			DiskID:    *d.ManagedDisk.ID,
			LUN:       client.Value(d.Lun),
			Detaching: client.Value(d.ToBeDetached),
		})
	}
	return list
}

// hibernates reports whether a VM can be hibernated.
func hibernates(c *armcompute.AdditionalCapabilities) bool {
	return c != nil && client.Value(c.HibernationEnabled)
}

// powerOf reads the status codes of an instance view. A VM that can be hibernated is never Stopped
// or Deallocated: while it is being hibernated, it looks like one that is being deallocated, and it
// is not known in which order the two statuses appear.
func powerOf(statuses []*armcompute.InstanceViewStatus, hibernates bool) provisioner.PowerState {
	power := provisioner.PowerUnknown
	for _, s := range statuses {
		if s == nil {
			continue
		}
		kind, state, _ := strings.Cut(client.Value(s.Code), "/")
		switch {
		case strings.EqualFold(kind, "HibernationState"):
			hibernates = true
		case !strings.EqualFold(kind, "PowerState"):
		case state == "running", state == "starting", state == "stopping", state == "deallocating":
			power = provisioner.PowerRunning // it may still run, or run already
		case state == "stopped":
			power = provisioner.PowerStopped
		case state == "deallocated":
			power = provisioner.PowerDeallocated
		}
	}
	if hibernates && (power == provisioner.PowerStopped || power == provisioner.PowerDeallocated) {
		return provisioner.PowerHibernated
	}
	return power
}

type instances struct{ cloud *Cloud }

// Get implements provisioner.Instances.
func (i instances) Get(ctx context.Context, vmID string) (provisioner.Instance, error) {
	seen, err := i.cloud.readVM(ctx, vmID, true)
	return seen.Instance, err
}

// readVM reads a VM that must exist.
func (c *Cloud) readVM(ctx context.Context, vmID string, withPower bool) (batch.VM, error) {
	v, err := c.vm(vmID)
	if err != nil {
		return batch.VM{}, err
	}
	seen, err := v.get(ctx, withPower)
	if err == nil && seen.Gone {
		err = noVM(vmID)
	}
	return seen, err
}

func noVM(id string) error {
	return provisioner.Errorf(provisioner.NotFound, "VM %s does not exist", id)
}

func first(list []*string) string {
	if len(list) == 0 {
		return ""
	}
	return client.Value(list[0])
}
