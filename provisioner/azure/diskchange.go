package azure

import (
	"context"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// Update implements provisioner.Disks. The disk is read first, and only what differs is sent.
func (d disks) Update(ctx context.Context, id string, change provisioner.DiskChange) (provisioner.Operation, error) {
	r, err := d.cloud.api.Parse(id, client.TypeDisk)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.readDisk(ctx, id)
	if err != nil {
		return nil, err
	}
	body, changed := changeOf(found.Disk, change)
	if !changed {
		return operation.Ended{}, nil
	}
	// Azure's answer to such a call does not name the VMs.
	alone := body.Properties.DiskSizeGB != nil || body.SKU != nil || body.Properties.Tier != nil
	if alone && found.MaxShares > 1 && len(found.AttachedTo) > 0 {
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"change shared disk %s: its size, SKU and tier cannot change while it is attached to %s", r.Name,
			strings.Join(found.AttachedTo, ", "))
	}
	p, err := client.Wrap(r.Disks.BeginUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	return d.cloud.begun(operation.UpdateDisk, id, p, err)
}
