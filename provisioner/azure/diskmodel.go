package azure

import (
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
)

const gib = int64(1) << 30

// viewOfDisk translates a disk from the SDK's model.
func viewOfDisk(d *armcompute.Disk) batch.Disk {
	seen := batch.Disk{Disk: provisioner.Disk{
		ID: client.Value(d.ID), Location: client.Value(d.Location), Zone: first(d.Zones), Tags: values(d.Tags), MaxShares: 1, AttachedTo: attachedTo(d),
	}}
	if d.SKU != nil {
		seen.SKUName = string(client.Value(d.SKU.Name))
	}
	p := d.Properties
	if p == nil {
		return seen
	}
	seen.State = client.Value(p.ProvisioningState)
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
	seen.Ready = seen.State == operation.StateSucceeded && (seen.CompletionPercent >= 100 || seen.SourceID == "")
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
		if client.Value(id) != "" && !seen[operation.Key(*id)] {
			seen[operation.Key(*id)] = true
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

// tuningOf translates the settings that most disks leave at their defaults.
func tuningOf(p *armcompute.DiskProperties) provisioner.DiskTuning {
	t := provisioner.DiskTuning{
		IOPSReadWrite: p.DiskIOPSReadWrite, MBpsReadWrite: p.DiskMBpsReadWrite,
		IOPSReadOnly: p.DiskIOPSReadOnly, MBpsReadOnly: p.DiskMBpsReadOnly, Tier: client.Value(p.Tier),
		NetworkAccessPolicy: string(client.Value(p.NetworkAccessPolicy)), PublicNetworkAccess: string(client.Value(p.PublicNetworkAccess)),
		DiskAccessID: client.Value(p.DiskAccessID), Bursting: p.BurstingEnabled, OptimizedForFrequentAttach: p.OptimizedForFrequentAttach,
	}
	if p.CreationData != nil {
		t.LogicalSectorSize, t.PerformancePlus = p.CreationData.LogicalSectorSize, p.CreationData.PerformancePlus
	}
	if p.Encryption != nil {
		t.EncryptionSetID, t.EncryptionType = client.Value(p.Encryption.DiskEncryptionSetID), string(client.Value(p.Encryption.Type))
	}
	if p.AvailabilityPolicy != nil {
		t.ActionOnDiskDelay = string(client.Value(p.AvailabilityPolicy.ActionOnDiskDelay))
	}
	return t
}

// tune sets what is requested besides size, SKU and place.
func tune(p *armcompute.DiskProperties, t provisioner.DiskTuning) {
	p.CreationData.LogicalSectorSize, p.CreationData.PerformancePlus = t.LogicalSectorSize, t.PerformancePlus
	p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = t.IOPSReadWrite, t.MBpsReadWrite
	p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = t.IOPSReadOnly, t.MBpsReadOnly
	p.Tier = optional(t.Tier)
	p.BurstingEnabled, p.OptimizedForFrequentAttach = t.Bursting, t.OptimizedForFrequentAttach
	p.DiskAccessID = optional(t.DiskAccessID)
	p.NetworkAccessPolicy = optional(armcompute.NetworkAccessPolicy(t.NetworkAccessPolicy))
	p.PublicNetworkAccess = optional(armcompute.PublicNetworkAccess(t.PublicNetworkAccess))
	if t.EncryptionSetID != "" || t.EncryptionType != "" {
		p.Encryption = &armcompute.Encryption{
			DiskEncryptionSetID: optional(t.EncryptionSetID), Type: optional(armcompute.EncryptionType(t.EncryptionType)),
		}
	}
	if t.ActionOnDiskDelay != "" {
		action := armcompute.AvailabilityPolicyDiskDelay(t.ActionOnDiskDelay)
		p.AvailabilityPolicy = &armcompute.AvailabilityPolicy{ActionOnDiskDelay: &action}
	}
}
