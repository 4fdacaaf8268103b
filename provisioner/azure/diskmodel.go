package azure

import (
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
)

const gib = int64(1) << 30

// viewOfDisk translates a disk from the SDK's model.
func viewOfDisk(d *armcompute.Disk) diskView {
	seen := diskView{Disk: provisioner.Disk{
		ID: client.Value(d.ID), Location: client.Value(d.Location), Zone: first(d.Zones), Tags: values(d.Tags), MaxShares: 1, AttachedTo: attachedTo(d),
	}}
	if d.SKU != nil {
		seen.SKUName = string(client.Value(d.SKU.Name))
	}
	p := d.Properties
	if p == nil {
		return seen
	}
	seen.state = client.Value(p.ProvisioningState)
	seen.UniqueID, seen.SizeBytes = client.Value(p.UniqueID), int64(client.Value(p.DiskSizeGB))*gib
	if p.DiskSizeBytes != nil {
		seen.SizeBytes = *p.DiskSizeBytes
	}
	seen.DiskTuning = tuningOf(p)
	if p.MaxShares != nil {
		seen.MaxShares = max(*p.MaxShares, 1)
	}
	if p.CreationData != nil {
		seen.SourceID = client.Value(p.CreationData.SourceResourceID)
	}
	seen.CompletionPercent = 100
	if p.CompletionPercent != nil {
		seen.CompletionPercent = float64(*p.CompletionPercent)
	}
	// The background work on a disk without a source is a conversion, during which the disk can be used.
	seen.Ready = seen.state == operation.StateSucceeded && (seen.CompletionPercent >= 100 || seen.SourceID == "")
	return seen
}

// attachedTo joins the three fields that name a disk's VMs.
func attachedTo(d *armcompute.Disk) []string {
	named := append([]*string{d.ManagedBy}, d.ManagedByExtended...)
	if d.Properties != nil {
		for _, share := range d.Properties.ShareInfo {
			if share != nil {
				named = append(named, share.VMURI)
			}
		}
	}
	var ids []string
	seen := map[string]bool{}
	for _, id := range named {
		if client.Value(id) != "" && !seen[client.Key(*id)] {
			seen[client.Key(*id)] = true
			ids = append(ids, *id)
		}
	}
	return ids
}

// newDisk translates a disk to be created into the SDK's model.
func newDisk(spec provisioner.DiskSpec) armcompute.Disk {
	name, size := armcompute.DiskStorageAccountTypes(spec.SKUName), int32(spec.SizeBytes/gib)
	create := armcompute.DiskCreateOptionEmpty
	creation := &armcompute.CreationData{CreateOption: &create}
	if spec.SourceID != "" {
		create = armcompute.DiskCreateOptionCopy
		creation.SourceResourceID = &spec.SourceID
	}
	p := &armcompute.DiskProperties{CreationData: creation, DiskSizeGB: &size}
	tune(p, spec.DiskTuning)
	if spec.MaxShares > 1 {
		p.MaxShares = &spec.MaxShares
	}
	d := armcompute.Disk{Location: &spec.Location, Tags: pointers(spec.Tags), SKU: &armcompute.DiskSKU{Name: &name}, Properties: p}
	if spec.Zone != "" {
		d.Zones = []*string{&spec.Zone}
	}
	return d
}

// optional is a pointer to s, or nil for the zero value.
func optional[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

func pointers(m map[string]string) map[string]*string {
	if m == nil {
		return nil
	}
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}

func values(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = client.Value(v)
	}
	return out
}
