package azure

import (
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
)

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
