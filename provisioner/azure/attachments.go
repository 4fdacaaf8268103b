package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// attachments implements provisioner.Attachments.
type attachments struct {
	*batch.Engine
	*vmLists
	cloud *Cloud
}

// List implements provisioner.Attachments.
func (a attachments) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	seen, err := a.cloud.readVM(ctx, vmID, false)
	return seen.DataDisks, err
}

// platform implements batch.Platform.
type platform struct {
	*client.Client // UpdateDelay, HasReads
	cloud          *Cloud
}

// Validate implements batch.Platform.
func (p platform) Validate(vmID, diskID string) error {
	if _, err := p.cloud.vm(vmID); err != nil {
		return err
	}
	_, err := p.Parse(diskID, client.TypeDisk)
	return err
}

// VM implements batch.Platform.
func (p platform) VM(ctx context.Context, vmID string) (batch.VM, error) {
	v, err := p.cloud.vm(vmID)
	if err != nil {
		return batch.VM{}, err
	}
	return v.get(ctx, false)
}

// Disk implements batch.Platform.
func (p platform) Disk(ctx context.Context, diskID string) (batch.Disk, error) {
	return p.cloud.readDisk(ctx, diskID)
}

// Update implements batch.Platform.
func (p platform) Update(ctx context.Context, update batch.Update) (*operation.Operation, error) {
	v, err := p.cloud.vm(update.VMID)
	if err != nil {
		return nil, err
	}
	poller, byList, err := v.updateDisks(ctx, update.Changes)
	if err != nil {
		return nil, err
	}
	return p.Follow(operation.Following{
		Kind:     update.Kind(),
		ByList:   byList,
		Usual:    update.Usual(),
		Resource: update.VMID,
		Look:     update.Look,
	}, poller), nil
}

// Resume implements batch.Platform.
func (p platform) Resume(ctx context.Context, t operation.Token, look *operation.Look) (*operation.Operation, error) {
	v, err := p.cloud.vm(t.ID)
	if err != nil {
		return nil, err
	}
	resume := v.resume
	if t.ByList {
		resume = v.resumeList
	}
	poller, err := resume(ctx, t.SDK)
	if err != nil {
		return nil, err
	}
	return p.Follow(operation.Following{
		Kind:     t.Kind,
		ByList:   t.ByList,
		Usual:    operation.Usual(t.Kind, max(t.Together, 1)),
		Resource: t.ID,
		Resumed:  true,
		Look:     look,
	}, poller), nil
}

// updateOf translates changes into Azure's request. luns are by disk; Azure chooses for those that
// are not there.
func updateOf(changes []batch.Change, luns map[string]int32) armcompute.AttachDetachDataDisksRequest {
	var body armcompute.AttachDetachDataDisksRequest
	for _, change := range changes {
		if change.Kind != operation.Attach {
			out := &armcompute.DataDisksToDetach{DiskID: &change.DiskID}
			if change.Kind == operation.ForceDetach {
				force := armcompute.DiskDetachOptionTypesForceDetach
				out.DetachOption = &force
			}
			body.DataDisksToDetach = append(body.DataDisksToDetach, out)
			continue
		}
		in := &armcompute.DataDisksToAttach{
			DiskID:  &change.DiskID,
			Caching: optional(armcompute.CachingTypes(change.CachingMode)),
		}
		if lun, chosen := luns[change.DiskID]; chosen {
			in.Lun = &lun
		}
		if change.DiskEncryptionSetID != "" {
			in.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &change.DiskEncryptionSetID}
		}
		if change.WriteAccelerator {
			in.WriteAcceleratorEnabled = &change.WriteAccelerator
		}
		body.DataDisksToAttach = append(body.DataDisksToAttach, in)
	}
	return body
}

// attachDetach sends a request that changes the VM's data disks.
func (v vmClient) attachDetach(ctx context.Context, body armcompute.AttachDetachDataDisksRequest) (client.SDKPoller, error) {
	ctx = v.cloud.api.Persistent(ctx, pacing.UpdateVM, v.String())
	if v.Is(client.TypeScaleSetVM) {
		return client.Wrap(v.ScaleSets.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, body, nil))
	}
	return client.Wrap(v.VMs.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Name, body, nil))
}

// resume makes a poller from the SDK's token.
func (v vmClient) resume(ctx context.Context, sdkToken string) (client.SDKPoller, error) {
	if v.Is(client.TypeScaleSetVM) {
		return client.Wrap(v.ScaleSets.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Parent.Name, v.Name,
			armcompute.AttachDetachDataDisksRequest{},
			&armcompute.VirtualMachineScaleSetVMsClientBeginAttachDetachDataDisksOptions{ResumeToken: sdkToken}))
	}
	return client.Wrap(v.VMs.BeginAttachDetachDataDisks(ctx, v.ResourceGroupName, v.Name,
		armcompute.AttachDetachDataDisksRequest{},
		&armcompute.VirtualMachinesClientBeginAttachDetachDataDisksOptions{ResumeToken: sdkToken}))
}
