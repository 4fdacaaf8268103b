package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// vmClient is a VM or an instance of a uniform scale set.
type vmClient struct {
	cloud *Cloud
	resource
}

func (c *Cloud) vm(id string) (vmClient, error) {
	r, err := c.parse(id, typeVM, typeScaleSetVM)
	return vmClient{cloud: c, resource: r}, err
}

func (v vmClient) inScaleSet() bool {
	return strings.EqualFold(v.ResourceType.String(), typeScaleSetVM)
}

// view is a VM as it was read.
type view struct {
	provisioner.Instance
	// state is the provisioning state.
	state string
	// complete says that the answer has the VM's disks: an answer without is not one of a VM without disks.
	complete bool
	// gone says that there is no such VM.
	gone bool
}

// get reads the VM. A VM that does not exist is a view that is gone.
func (v vmClient) get(ctx context.Context, withPower bool) (view, error) {
	read := v.getVM
	if v.inScaleSet() {
		read = v.getScaleSetVM
	}
	seen, err := read(v.persistent(ctx, policyGetVM), withPower)
	err = translate(err, v.cloud.clock.Now(), "read VM %s", v.Name)
	switch {
	case errors.Is(err, provisioner.NotFound) && saysGone(err):
		return view{gone: true}, nil
	case errors.Is(err, provisioner.NotFound):
		return view{}, &provisioner.Error{Kind: provisioner.Unavailable, Code: codeOf(err), Err: err,
			Message: "the answer does not say that there is no such VM: " + err.Error()}
	case err == nil && (!seen.complete || key(seen.ID) != key(v.String())):
		return view{}, provisioner.Errorf(provisioner.Unavailable, "the answer about VM %s is not complete", v.Name)
	}
	return seen, err
}

// saysGone says whether a 404 is Azure's word that there is no such VM. That it is gone proves that it cannot write, so one without a code, as from
// a proxy, does not count, nor does one about the subscription, which credentials of another tenant get as well.
func saysGone(err error) bool {
	switch codeOf(err) {
	case "NotFound", "ResourceNotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "InvalidParameter":
		return true
	}
	return false
}

func (v vmClient) getVM(ctx context.Context, withPower bool) (view, error) {
	var options armcompute.VirtualMachinesClientGetOptions
	if withPower {
		expand := armcompute.InstanceViewTypesInstanceView
		options.Expand = &expand
	}
	got, err := v.vms.Get(ctx, v.ResourceGroupName, v.Name, &options)
	if err != nil {
		return view{}, err
	}
	seen := view{Instance: provisioner.Instance{
		ID: value(got.ID), Name: value(got.Name), Location: value(got.Location), Zone: first(got.Zones), Power: provisioner.PowerUnknown,
	}}
	p := got.Properties
	if p == nil {
		return seen, nil
	}
	seen.state = value(p.ProvisioningState)
	if p.HardwareProfile != nil {
		seen.Size = string(value(p.HardwareProfile.VMSize))
	}
	if p.InstanceView != nil {
		seen.Power = powerOf(p.InstanceView.Statuses)
	}
	seen.DataDisks, seen.complete = dataDisksOf(p.StorageProfile), p.StorageProfile != nil
	return seen, nil
}

func (v vmClient) getScaleSetVM(ctx context.Context, withPower bool) (view, error) {
	var options armcompute.VirtualMachineScaleSetVMsClientGetOptions
	if withPower {
		expand := armcompute.InstanceViewTypesInstanceView
		options.Expand = &expand
	}
	got, err := v.scaleSets.Get(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, &options)
	if err != nil {
		return view{}, err
	}
	seen := view{Instance: provisioner.Instance{
		ID: value(got.ID), Name: value(got.Name), Location: value(got.Location), Zone: first(got.Zones), Power: provisioner.PowerUnknown,
	}}
	if got.SKU != nil {
		seen.Size = value(got.SKU.Name)
	}
	p := got.Properties
	if p == nil {
		return seen, nil
	}
	seen.state = value(p.ProvisioningState)
	if p.HardwareProfile != nil && p.HardwareProfile.VMSize != nil {
		seen.Size = string(*p.HardwareProfile.VMSize)
	}
	if p.InstanceView != nil {
		seen.Power = powerOf(p.InstanceView.Statuses)
	}
	seen.DataDisks, seen.complete = dataDisksOf(p.StorageProfile), p.StorageProfile != nil
	return seen, nil
}

// persistent sets how often the SDK retries a request about the VM: once, and not at all after a request that the platform failed to answer. The callers come
// again, and while the platform is down each further request takes from the quota that they need when it is back.
func (v vmClient) persistent(ctx context.Context, p policyName) context.Context {
	if v.cloud.pacer.failing(scope{policy: p, resource: key(v.String())}) {
		return retries(ctx, 0)
	}
	return retries(ctx, 1)
}

// attachDetach sends the call.
func (v vmClient) attachDetach(ctx context.Context, body armcompute.AttachDetachDataDisksRequest) (poller, error) {
	ctx = v.persistent(ctx, policyUpdateVM)
	if v.inScaleSet() {
		return wrap(v.scaleSets.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, body, nil))
	}
	return wrap(v.vms.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Name, body, nil))
}

// resume makes a poller from the SDK's token.
func (v vmClient) resume(ctx context.Context, sdkToken string) (poller, error) {
	if v.inScaleSet() {
		return wrap(v.scaleSets.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, armcompute.AttachDetachDataDisksRequest{},
			&armcompute.VirtualMachineScaleSetVMsClientBeginAttachDetachDataDisksOptions{ResumeToken: sdkToken}))
	}
	return wrap(v.vms.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Name, armcompute.AttachDetachDataDisksRequest{},
		&armcompute.VirtualMachinesClientBeginAttachDetachDataDisksOptions{ResumeToken: sdkToken}))
}

func dataDisksOf(s *armcompute.StorageProfile) []provisioner.Attachment {
	if s == nil {
		return nil
	}
	var list []provisioner.Attachment
	for _, d := range s.DataDisks {
		if d == nil || d.ManagedDisk == nil || d.ManagedDisk.ID == nil {
			continue // a blob-based disk, which is none of ours, and no VM has both
		}
		list = append(list, provisioner.Attachment{DiskID: *d.ManagedDisk.ID, LUN: value(d.Lun), Detaching: value(d.ToBeDetached)})
	}
	return list
}

// powerOf reads the status codes of an instance view.
func powerOf(statuses []*armcompute.InstanceViewStatus) provisioner.PowerState {
	for _, s := range statuses {
		if s == nil {
			continue
		}
		state, ok := strings.CutPrefix(value(s.Code), "PowerState/")
		if !ok {
			continue
		}
		switch state {
		case "running", "starting", "stopping", "deallocating":
			return provisioner.PowerRunning // it may run still, or already
		case "stopped":
			return provisioner.PowerStopped
		case "deallocated":
			return provisioner.PowerDeallocated
		}
	}
	return provisioner.PowerUnknown
}

// find returns the VM's entry for a disk.
func (v view) find(diskKey string) (provisioner.Attachment, bool) {
	for _, a := range v.DataDisks {
		if key(a.DiskID) == diskKey {
			return a, true
		}
	}
	return provisioner.Attachment{}, false
}

type instances struct{ cloud *Cloud }

// Get implements provisioner.Instances.
func (i instances) Get(ctx context.Context, vmID string) (provisioner.Instance, error) {
	seen, err := i.cloud.readVM(ctx, vmID, true)
	return seen.Instance, err
}

// readVM reads a VM that must exist.
func (c *Cloud) readVM(ctx context.Context, vmID string, withPower bool) (view, error) {
	v, err := c.vm(vmID)
	if err != nil {
		return view{}, err
	}
	seen, err := v.get(ctx, withPower)
	if err == nil && seen.gone {
		err = noVM(vmID)
	}
	return seen, err
}

func noVM(id string) error {
	return provisioner.Errorf(provisioner.NotFound, "VM %s does not exist", id)
}

// value is what a pointer points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func first(list []*string) string {
	if len(list) == 0 {
		return ""
	}
	return value(list[0])
}
