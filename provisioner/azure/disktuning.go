package azure

import (
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// tuningOf translates from Azure's words what most disks leave alone.
func tuningOf(p *armcompute.DiskProperties) provisioner.DiskTuning {
	t := provisioner.DiskTuning{
		IOPSReadWrite: p.DiskIOPSReadWrite, MBpsReadWrite: p.DiskMBpsReadWrite,
		IOPSReadOnly: p.DiskIOPSReadOnly, MBpsReadOnly: p.DiskMBpsReadOnly, Tier: value(p.Tier),
		NetworkAccessPolicy: string(value(p.NetworkAccessPolicy)), PublicNetworkAccess: string(value(p.PublicNetworkAccess)),
		DiskAccessID: value(p.DiskAccessID), Bursting: p.BurstingEnabled, OptimizedForFrequentAttach: p.OptimizedForFrequentAttach,
	}
	if p.CreationData != nil {
		t.LogicalSectorSize, t.PerformancePlus = p.CreationData.LogicalSectorSize, p.CreationData.PerformancePlus
	}
	if p.Encryption != nil {
		t.EncryptionSetID, t.EncryptionType = value(p.Encryption.DiskEncryptionSetID), string(value(p.Encryption.Type))
	}
	if p.AvailabilityPolicy != nil {
		t.ActionOnDiskDelay = string(value(p.AvailabilityPolicy.ActionOnDiskDelay))
	}
	return t
}

// tune puts what is asked for besides size, SKU and place into a disk to be made.
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
