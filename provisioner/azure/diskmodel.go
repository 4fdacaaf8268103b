package azure

import (
	"maps"
	"reflect"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

const gib = int64(1) << 30

// viewOfDisk translates a disk from the SDK's model.
func viewOfDisk(d *armcompute.Disk) batch.Disk {
	seen := batch.Disk{Disk: provisioner.Disk{
		ID:                    client.Value(d.ID),
		Location:              client.Value(d.Location),
		Zone:                  first(d.Zones),
		MaxShares:             1,
		AttachedTo:            attachedTo(d),
		DiskSettings:          settingsOf(d),
		ImmutableDiskSettings: immutableOf(d.Properties),
	}}
	p := d.Properties
	if p == nil {
		return seen
	}
	seen.State = client.Value(p.ProvisioningState)
	seen.UniqueID, seen.SizeBytes = client.Value(p.UniqueID), int64(client.Value(p.DiskSizeGB))*gib
	if p.DiskSizeBytes != nil {
		seen.SizeBytes = *p.DiskSizeBytes
	}
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
	// The background work on a disk without a source is a conversion, during which the disk can be
	// used.
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
	size := int32(spec.SizeBytes / gib)
	create := armcompute.DiskCreateOptionEmpty
	creation := &armcompute.CreationData{CreateOption: &create}
	if spec.SourceID != "" {
		create = armcompute.DiskCreateOptionCopy
		creation.SourceResourceID = &spec.SourceID
	}
	p := &armcompute.DiskProperties{CreationData: creation, DiskSizeGB: &size}
	d := armcompute.Disk{Location: &spec.Location, Properties: p}
	set(&d, spec.DiskSettings, spec.ImmutableDiskSettings)
	if spec.MaxShares > 1 {
		p.MaxShares = &spec.MaxShares
	}
	if spec.Zone != "" {
		d.Zones = []*string{&spec.Zone}
	}
	return d
}

// optional is a pointer to v, or nil, the platform's default, for the zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
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

// settingsOf translates the settings of a disk that can be changed.
func settingsOf(d *armcompute.Disk) provisioner.DiskSettings {
	s := provisioner.DiskSettings{Tags: values(d.Tags)}
	if d.SKU != nil {
		s.SKUName = string(client.Value(d.SKU.Name))
	}
	if p := d.Properties; p != nil {
		s.DiskIOPSReadWrite, s.DiskMBpsReadWrite = p.DiskIOPSReadWrite, p.DiskMBpsReadWrite
		s.DiskIOPSReadOnly, s.DiskMBpsReadOnly = p.DiskIOPSReadOnly, p.DiskMBpsReadOnly
		s.Tier, s.BurstingEnabled = client.Value(p.Tier), client.Value(p.BurstingEnabled)
		s.NetworkAccessPolicy, s.PublicNetworkAccess = string(client.Value(p.NetworkAccessPolicy)), string(
			client.Value(p.PublicNetworkAccess))
		s.DiskAccessID = client.Value(p.DiskAccessID)
	}
	return s
}

// immutableOf translates what a disk has for life.
func immutableOf(p *armcompute.DiskProperties) provisioner.ImmutableDiskSettings {
	var t provisioner.ImmutableDiskSettings
	if p == nil {
		return t
	}
	t.OptimizedForFrequentAttach = client.Value(p.OptimizedForFrequentAttach)
	if p.CreationData != nil {
		t.LogicalSectorSizeBytes, t.PerformancePlusEnabled = p.CreationData.LogicalSectorSize, client.Value(
			p.CreationData.PerformancePlus)
	}
	if p.Encryption != nil {
		t.DiskEncryptionSetID, t.DiskEncryptionType = client.Value(p.Encryption.DiskEncryptionSetID), string(
			client.Value(p.Encryption.Type))
	}
	if p.AvailabilityPolicy != nil {
		t.ActionOnDiskDelay = string(client.Value(p.AvailabilityPolicy.ActionOnDiskDelay))
	}
	return t
}

// set sets the requested properties of a new disk, besides its size and place.
func set(d *armcompute.Disk, s provisioner.DiskSettings, t provisioner.ImmutableDiskSettings) {
	d.SKU, d.Tags = &armcompute.DiskSKU{Name: optional(armcompute.DiskStorageAccountTypes(s.SKUName))}, pointers(s.Tags)
	p := d.Properties
	p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = s.DiskIOPSReadWrite, s.DiskMBpsReadWrite
	p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = s.DiskIOPSReadOnly, s.DiskMBpsReadOnly
	p.Tier, p.BurstingEnabled = optional(s.Tier), optional(s.BurstingEnabled)
	p.NetworkAccessPolicy = optional(armcompute.NetworkAccessPolicy(s.NetworkAccessPolicy))
	p.PublicNetworkAccess = optional(armcompute.PublicNetworkAccess(s.PublicNetworkAccess))
	p.DiskAccessID = optional(s.DiskAccessID)
	p.CreationData.LogicalSectorSize = t.LogicalSectorSizeBytes
	p.CreationData.PerformancePlus = optional(t.PerformancePlusEnabled)
	p.OptimizedForFrequentAttach = optional(t.OptimizedForFrequentAttach)
	if t.DiskEncryptionSetID != "" || t.DiskEncryptionType != "" {
		p.Encryption = &armcompute.Encryption{
			DiskEncryptionSetID: optional(t.DiskEncryptionSetID), Type: optional(armcompute.EncryptionType(t.DiskEncryptionType)),
		}
	}
	if t.ActionOnDiskDelay != "" {
		p.AvailabilityPolicy = &armcompute.AvailabilityPolicy{ActionOnDiskDelay: optional(
			armcompute.AvailabilityPolicyDiskDelay(t.ActionOnDiskDelay))}
	}
}

// changeOf is the part of the change that differs from the disk; changed is false if nothing
// differs.
func changeOf(found provisioner.Disk, change provisioner.DiskChange) (body armcompute.DiskUpdate, changed bool) {
	is, to := found.DiskSettings, change.Apply(found.DiskSettings)
	grows := change.SizeBytes > found.SizeBytes
	p := &armcompute.DiskUpdateProperties{
		DiskIOPSReadWrite:   differing(is.DiskIOPSReadWrite, to.DiskIOPSReadWrite),
		DiskMBpsReadWrite:   differing(is.DiskMBpsReadWrite, to.DiskMBpsReadWrite),
		DiskIOPSReadOnly:    differing(is.DiskIOPSReadOnly, to.DiskIOPSReadOnly),
		DiskMBpsReadOnly:    differing(is.DiskMBpsReadOnly, to.DiskMBpsReadOnly),
		Tier:                differing(&is.Tier, &to.Tier),
		BurstingEnabled:     differing(&is.BurstingEnabled, &to.BurstingEnabled),
		NetworkAccessPolicy: (*armcompute.NetworkAccessPolicy)(differing(&is.NetworkAccessPolicy, &to.NetworkAccessPolicy)),
		PublicNetworkAccess: (*armcompute.PublicNetworkAccess)(differing(&is.PublicNetworkAccess, &to.PublicNetworkAccess)),
		DiskAccessID:        differing(&is.DiskAccessID, &to.DiskAccessID),
	}
	body.Properties = p
	if to.DiskAccessID == "" {
		// The specification knows no null. The disk access ends with the network access policy that
		// needs it.
		p.DiskAccessID = nil
	}
	if grows {
		p.DiskSizeGB = optional(int32((change.SizeBytes + gib - 1) / gib))
	}
	if to.SKUName != is.SKUName {
		body.SKU = &armcompute.DiskSKU{Name: optional(armcompute.DiskStorageAccountTypes(to.SKUName))}
	}
	if !maps.Equal(to.Tags, is.Tags) {
		body.Tags = pointers(to.Tags)
	}
	return body, grows || !reflect.DeepEqual(to, is)
}

// differing returns what a setting is to be, or nil, which leaves it alone, if it is that already.
func differing[T comparable](is, to *T) *T {
	if to == nil || is != nil && *to == *is {
		return nil
	}
	return to
}
