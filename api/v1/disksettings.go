package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Provisioner Library has types with the fields of DiskSettings and ImmutableDiskSettings, and
// Go converts these into those. The compiler refuses a field that only one of them has.

// DiskSettings are the parameters of a disk that can be changed while it exists.
type DiskSettings struct {
	// skuName is the storage account type. Azure may add more: the driver creates disks of those that it
	// knows, and adopts and attaches disks of all.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	SKUName string `json:"skuName"`
	// diskIOPSReadWrite is the provisioned IOPS (UltraSSD_LRS, PremiumV2_LRS).
	// +optional
	DiskIOPSReadWrite *int64 `json:"diskIOPSReadWrite,omitempty"`
	// diskMBpsReadWrite is the provisioned throughput in MB/s (UltraSSD_LRS, PremiumV2_LRS).
	// +optional
	DiskMBpsReadWrite *int64 `json:"diskMBpsReadWrite,omitempty"`
	// diskIOPSReadOnly is the provisioned IOPS of the VMs that share the disk read-only
	// (UltraSSD_LRS, PremiumV2_LRS).
	// +optional
	DiskIOPSReadOnly *int64 `json:"diskIOPSReadOnly,omitempty"`
	// diskMBpsReadOnly is the provisioned throughput in MB/s of the VMs that share the disk
	// read-only (UltraSSD_LRS, PremiumV2_LRS).
	// +optional
	DiskMBpsReadOnly *int64 `json:"diskMBpsReadOnly,omitempty"`
	// tier is the performance tier, as in "P30", above that of the size (Premium_LRS, Premium_ZRS).
	// +kubebuilder:validation:Pattern=`^([A-Z][0-9]+)?$`
	// +kubebuilder:validation:MaxLength=4
	// +optional
	Tier string `json:"tier,omitempty"`
	// burstingEnabled turns on-demand bursting on.
	// +optional
	BurstingEnabled bool `json:"burstingEnabled,omitempty"`
	// networkAccessPolicy is who may export or import the disk.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NetworkAccessPolicy string `json:"networkAccessPolicy,omitempty"`
	// publicNetworkAccess reports whether the disk may be reached from the internet.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	PublicNetworkAccess string `json:"publicNetworkAccess,omitempty"`
	// diskAccessID is the resource ID of the disk access resource (AllowPrivate only).
	// +kubebuilder:validation:MaxLength=512
	// +optional
	DiskAccessID string `json:"diskAccessID,omitempty"`
	// tags are those that the driver, or a user through the driver, has set on the disk. The disk
	// may have more.
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.size() <= 512 && self[name].size() <= 256)",message="the name of a tag has at most 512 characters, and its value at most 256"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// removedTags are the names of the tags that the VolumeAttributesClass removes from the disk,
	// without regard to case.
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^<>%&?/\\]+$`
	// +optional
	RemovedTags []string `json:"removedTags,omitempty"`
}

// ImmutableDiskSettings are the parameters that a disk has for life.
//
// +kubebuilder:validation:XValidation:rule="has(self.logicalSectorSizeBytes) == has(oldSelf.logicalSectorSizeBytes) && (!has(self.logicalSectorSizeBytes) || self.logicalSectorSizeBytes == oldSelf.logicalSectorSizeBytes)",message="spec.disk.logicalSectorSizeBytes is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.diskEncryptionSetID) && self.diskEncryptionSetID != \"\") ? (has(oldSelf.diskEncryptionSetID) && self.diskEncryptionSetID == oldSelf.diskEncryptionSetID) : (!has(oldSelf.diskEncryptionSetID) || oldSelf.diskEncryptionSetID == \"\")",message="spec.disk.diskEncryptionSetID is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.diskEncryptionType) && self.diskEncryptionType != \"\") ? (has(oldSelf.diskEncryptionType) && self.diskEncryptionType == oldSelf.diskEncryptionType) : (!has(oldSelf.diskEncryptionType) || oldSelf.diskEncryptionType == \"\")",message="spec.disk.diskEncryptionType is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.performancePlusEnabled) && self.performancePlusEnabled) == (has(oldSelf.performancePlusEnabled) && oldSelf.performancePlusEnabled)",message="spec.disk.performancePlusEnabled is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.optimizedForFrequentAttach) && self.optimizedForFrequentAttach) == (has(oldSelf.optimizedForFrequentAttach) && oldSelf.optimizedForFrequentAttach)",message="spec.disk.optimizedForFrequentAttach is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.actionOnDiskDelay) && self.actionOnDiskDelay != \"\") ? (has(oldSelf.actionOnDiskDelay) && self.actionOnDiskDelay == oldSelf.actionOnDiskDelay) : (!has(oldSelf.actionOnDiskDelay) || oldSelf.actionOnDiskDelay == \"\")",message="spec.disk.actionOnDiskDelay is immutable"
type ImmutableDiskSettings struct {
	// logicalSectorSizeBytes is 512 or 4096 bytes (UltraSSD_LRS, PremiumV2_LRS).
	// +kubebuilder:validation:Minimum=512
	// +kubebuilder:validation:Maximum=65536
	// +optional
	LogicalSectorSizeBytes *int32 `json:"logicalSectorSizeBytes,omitempty"`
	// diskEncryptionSetID is the resource ID of the disk encryption set.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
	// diskEncryptionType is the encryption type that belongs to the disk encryption set.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	DiskEncryptionType string `json:"diskEncryptionType,omitempty"`
	// performancePlusEnabled turns performance plus on.
	// +optional
	PerformancePlusEnabled bool `json:"performancePlusEnabled,omitempty"`
	// optimizedForFrequentAttach asks Azure to optimise for more than five attaches a day.
	// +optional
	OptimizedForFrequentAttach bool `json:"optimizedForFrequentAttach,omitempty"`
	// actionOnDiskDelay is what Azure does when the disk stops answering.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ActionOnDiskDelay string `json:"actionOnDiskDelay,omitempty"`
}

// FilesystemOptions are the options with which a filesystem is made on a blank disk. 0 is the
// default of mkfs. The Provisioner Library has a type with the same fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.blockSizeBytes) == has(oldSelf.blockSizeBytes) && (!has(self.blockSizeBytes) || self.blockSizeBytes == oldSelf.blockSizeBytes)",message="spec.filesystem.blockSizeBytes is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.inodeSizeBytes) == has(oldSelf.inodeSizeBytes) && (!has(self.inodeSizeBytes) || self.inodeSizeBytes == oldSelf.inodeSizeBytes)",message="spec.filesystem.inodeSizeBytes is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.bytesPerInode) == has(oldSelf.bytesPerInode) && (!has(self.bytesPerInode) || self.bytesPerInode == oldSelf.bytesPerInode)",message="spec.filesystem.bytesPerInode is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.numberOfInodes) == has(oldSelf.numberOfInodes) && (!has(self.numberOfInodes) || self.numberOfInodes == oldSelf.numberOfInodes)",message="spec.filesystem.numberOfInodes is immutable"
type FilesystemOptions struct {
	// blockSizeBytes is the size of a block in bytes (ext2, ext3, ext4, xfs). More values may be added; treat an
	// unknown one as any other size.
	// +kubebuilder:validation:Enum=1024;2048;4096
	// +optional
	BlockSizeBytes int64 `json:"blockSizeBytes,omitempty"`
	// inodeSizeBytes is the size of an inode in bytes (ext2, ext3, ext4, xfs). More values may be added; treat
	// an unknown one as any other size.
	// +kubebuilder:validation:Enum=128;256;512;1024;2048;4096
	// +optional
	InodeSizeBytes int64 `json:"inodeSizeBytes,omitempty"`
	// bytesPerInode is the size in bytes for which there is one inode (ext2, ext3, ext4).
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=67108864
	// +optional
	BytesPerInode int64 `json:"bytesPerInode,omitempty"`
	// numberOfInodes is the number of inodes (ext2, ext3, ext4).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +optional
	NumberOfInodes int64 `json:"numberOfInodes,omitempty"`
}

// AppliedSettings are the settings to which the disk at Azure has been brought.
type AppliedSettings struct {
	// generation of the AzVolume whose spec asked for them.
	// +required
	Generation int64 `json:"generation"`
	// DiskSettings are the settings.
	DiskSettings `json:",inline"`
}

// Refusal is a change of the disk that Azure, or a rule of Azure that the driver knows, refused
// permanently. The spec that requested it is reverted to what is applied, so that it blocks no
// other change.
type Refusal struct {
	// generation of the AzVolume whose spec was refused.
	// +required
	Generation int64 `json:"generation"`
	// capacityBytes is the size that the spec had. While the disk is in use, the same size is refused again
	// without a request to Azure.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// skuName is the SKU that the spec had, as capacityBytes.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SKUName string `json:"skuName,omitempty"`
	// tier is the tier that the spec had, as capacityBytes.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Tier string `json:"tier,omitempty"`
	// Error says why.
	Error `json:",inline"`
}

// Conversion is a change of a disk's SKU that continues in the background at Azure, while the disk
// is in use.
type Conversion struct {
	// percent that is done.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +required
	Percent int32 `json:"percent"`
	// startTime is when it was first seen.
	// +required
	StartTime metav1.Time `json:"startTime"`
	// observedTime is when Azure was asked last.
	// +required
	ObservedTime metav1.Time `json:"observedTime"`
}
