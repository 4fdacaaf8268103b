package azure

import (
	"context"
	"maps"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Update implements provisioner.Disks. The disk is read first, and what it has already is not sent.
func (d disks) Update(ctx context.Context, id string, change provisioner.DiskChange) (provisioner.Operation, error) {
	r, err := d.cloud.parse(id, typeDisk)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.readDisk(ctx, id)
	if err != nil {
		return nil, err
	}
	body, changed := changeOf(found.Disk, change)
	if !changed {
		return ended{}, nil
	}
	// Azure's answer to this is worded for people who can see the VM.
	alone := body.Properties.DiskSizeGB != nil || body.SKU != nil || body.Properties.Tier != nil
	if alone && found.MaxShares > 1 && len(found.AttachedTo) > 0 {
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"size, SKU and tier of shared disk %s cannot change while it is attached to %s", r.Name, strings.Join(found.AttachedTo, ", "))
	}
	p, err := wrap(r.disks.BeginUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	return d.cloud.begun(kindUpdateDisk, id, p, err)
}

// changeOf is what has to be sent: what the change names and the disk has otherwise; changed is false if that is nothing.
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
		p.DiskAccessID = azcore.NullValue[*string]() // a field that is left out stays what it is
	}
	if change.Bursting != nil && differs(*change.Bursting != value(found.Bursting)) {
		p.BurstingEnabled = change.Bursting
	}
	if change.Tags != nil && differs(!maps.Equal(change.Tags, found.Tags)) {
		body.Tags = pointers(change.Tags)
	}
	return body, changed
}
