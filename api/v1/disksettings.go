package v1

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DiskSettings are the parameters of a disk that can be changed while it exists. They mean what they mean in DiskParameters.
type DiskSettings struct {
	// SKUName is the storage account type.
	SKUName string `json:"skuName"`
	// DiskIOPSReadWrite is the provisioned IOPS.
	// +optional
	DiskIOPSReadWrite *int64 `json:"diskIOPSReadWrite,omitempty"`
	// DiskMBpsReadWrite is the provisioned throughput in MB/s.
	// +optional
	DiskMBpsReadWrite *int64 `json:"diskMBpsReadWrite,omitempty"`
	// DiskIOPSReadOnly is the provisioned IOPS of the VMs that share the disk read-only.
	// +optional
	DiskIOPSReadOnly *int64 `json:"diskIOPSReadOnly,omitempty"`
	// DiskMBpsReadOnly is the provisioned throughput in MB/s of the VMs that share the disk read-only.
	// +optional
	DiskMBpsReadOnly *int64 `json:"diskMBpsReadOnly,omitempty"`
	// Tier is the performance tier; empty for that of the size.
	// +optional
	Tier string `json:"tier,omitempty"`
	// EnableBursting is on-demand bursting.
	// +optional
	EnableBursting bool `json:"enableBursting,omitempty"`
	// NetworkAccessPolicy is who may export or import the disk.
	// +optional
	NetworkAccessPolicy string `json:"networkAccessPolicy,omitempty"`
	// PublicNetworkAccess says whether the disk may be reached from the internet.
	// +optional
	PublicNetworkAccess string `json:"publicNetworkAccess,omitempty"`
	// DiskAccessID is the resource ID of the disk access resource.
	// +optional
	DiskAccessID string `json:"diskAccessID,omitempty"`
	// Tags are those that the driver, or a user through the driver, has set on the disk. The disk may have more.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
}

// AppliedSettings are the settings to which the disk at Azure has been brought.
type AppliedSettings struct {
	// Generation of the AzVolume whose spec asked for them.
	Generation int64 `json:"generation"`
	// DiskSettings are the settings.
	DiskSettings `json:",inline"`
}

// Refusal is a change of the disk that Azure, or a rule of Azure that the driver knows, refused permanently. The spec
// that requested it is reverted to what is applied, so that it blocks no other change.
type Refusal struct {
	// Generation of the AzVolume whose spec was refused.
	Generation int64 `json:"generation"`
	// Error says why.
	Error `json:",inline"`
}

// Conversion is a change of a disk's SKU that continues in the background at Azure, while the disk is in use.
type Conversion struct {
	// Percent that is done.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`
	// StartTime is when it was first seen.
	StartTime metav1.Time `json:"startTime"`
	// Time is when Azure was asked last.
	Time metav1.Time `json:"time"`
}

// Settings returns the parameters that can be changed. The tags are a copy.
func (p *DiskParameters) Settings() DiskSettings {
	return DiskSettings{
		SKUName: p.SKUName, DiskIOPSReadWrite: p.DiskIOPSReadWrite, DiskMBpsReadWrite: p.DiskMBpsReadWrite,
		DiskIOPSReadOnly: p.DiskIOPSReadOnly, DiskMBpsReadOnly: p.DiskMBpsReadOnly, Tier: p.Tier, EnableBursting: p.EnableBursting,
		NetworkAccessPolicy: p.NetworkAccessPolicy, PublicNetworkAccess: p.PublicNetworkAccess, DiskAccessID: p.DiskAccessID, Tags: maps.Clone(p.Tags),
	}
}

// SetSettings replaces the parameters that can be changed.
func (p *DiskParameters) SetSettings(s DiskSettings) {
	s = *s.DeepCopy()
	p.SKUName, p.Tier, p.EnableBursting, p.Tags = s.SKUName, s.Tier, s.EnableBursting, s.Tags
	p.DiskIOPSReadWrite, p.DiskMBpsReadWrite, p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = s.DiskIOPSReadWrite, s.DiskMBpsReadWrite, s.DiskIOPSReadOnly, s.DiskMBpsReadOnly
	p.NetworkAccessPolicy, p.PublicNetworkAccess, p.DiskAccessID = s.NetworkAccessPolicy, s.PublicNetworkAccess, s.DiskAccessID
}
