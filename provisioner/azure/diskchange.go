package azure

import (
	"context"
	"maps"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
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
			"change shared disk %s: its size, SKU and tier cannot change while it is attached to %s", r.Name, strings.Join(found.AttachedTo, ", "))
	}
	p, err := client.Wrap(r.Disks.BeginUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	return d.cloud.begun(operation.UpdateDisk, id, p, err)
}

// changeOf is the part of the change that differs from the disk; changed is false if nothing differs.
func changeOf(found provisioner.Disk, change provisioner.DiskChange) (body armcompute.DiskUpdate, changed bool) {
	p := &armcompute.DiskUpdateProperties{}
	body.Properties = p
	differs := func(b bool) bool {
		changed = changed || b
		return b
	}
	if change.SizeBytes != nil && differs(*change.SizeBytes > found.SizeBytes) {
		size := int32((*change.SizeBytes + gib - 1) / gib)
		p.DiskSizeGB = &size
	}
	if change.SKUName != nil && differs(!strings.EqualFold(*change.SKUName, found.SKUName)) {
		name := armcompute.DiskStorageAccountTypes(*change.SKUName)
		body.SKU = &armcompute.DiskSKU{Name: &name}
	}
	number := func(to, is *int64) *int64 {
		if to == nil || !differs(is == nil || *to != *is) {
			return nil
		}
		return to
	}
	text := func(to *string, is string) *string {
		if to == nil || !differs(!strings.EqualFold(*to, is)) {
			return nil
		}
		return to
	}
	p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = number(change.IOPSReadWrite, found.IOPSReadWrite), number(change.MBpsReadWrite, found.MBpsReadWrite)
	p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = number(change.IOPSReadOnly, found.IOPSReadOnly), number(change.MBpsReadOnly, found.MBpsReadOnly)
	p.Tier = text(change.Tier, found.Tier)
	p.NetworkAccessPolicy = (*armcompute.NetworkAccessPolicy)(text(change.NetworkAccessPolicy, found.NetworkAccessPolicy))
	p.PublicNetworkAccess = (*armcompute.PublicNetworkAccess)(text(change.PublicNetworkAccess, found.PublicNetworkAccess))
	if p.DiskAccessID = text(change.DiskAccessID, found.DiskAccessID); p.DiskAccessID != nil && *p.DiskAccessID == "" {
		p.DiskAccessID = azcore.NullValue[*string]() // Azure keeps a field that is left out
	}
	if change.Bursting != nil && differs(*change.Bursting != client.Value(found.Bursting)) {
		p.BurstingEnabled = change.Bursting
	}
	if change.Tags != nil && differs(!maps.Equal(change.Tags, found.Tags)) {
		body.Tags = pointers(change.Tags)
	}
	return body, changed
}
