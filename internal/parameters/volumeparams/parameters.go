package volumeparams

import (
	"cmp"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

// Parameters are the parameters of a volume after Parse.
type Parameters struct {
	// DiskParameters are the parameters of the disk. A zero value means that the parameter was not
	// given; Disk adds the defaults. The name may have templates.
	apiv1.DiskParameters
	// FSType is the filesystem that is made on a blank disk; "" for none or raw block.
	FSType string
	apiv1.FilesystemOptions
	// MaxMountReplicaCount is nil if it was not given.
	MaxMountReplicaCount *int32
	// Tuning has the kernel's settings of the device, which the node writes.
	Tuning Tuning
	// ClaimNamespace, ClaimName and VolumeName come from the provisioner, not from the
	// StorageClass.
	ClaimNamespace, ClaimName, VolumeName string
	// WithoutEffect are the given parameters that have no effect.
	WithoutEffect []string

	tags, removeTags, tagDelimiter string
	// templates are the tags whose values hold templates of labels and annotations.
	templates map[string]string
}

// The SKUs of managed disks.
const (
	StandardLRS    = "Standard_LRS"
	StandardSSDLRS = "StandardSSD_LRS"
	standardSSDZRS = "StandardSSD_ZRS"
	PremiumLRS     = "Premium_LRS"
	PremiumZRS     = "Premium_ZRS"
	PremiumV2LRS   = "PremiumV2_LRS"
	UltraSSDLRS    = "UltraSSD_LRS"
)

// The host caching modes.
const (
	CachingNone      = "None"
	cachingReadOnly  = "ReadOnly"
	cachingReadWrite = "ReadWrite"
)

var skuNames = []string{StandardLRS, StandardSSDLRS, standardSSDZRS, PremiumLRS, PremiumZRS, PremiumV2LRS, UltraSSDLRS}

// Parse reads the parameters of a StorageClass. An empty value counts as not given. The error is an
// InvalidArgument that lists every fault.
func Parse(raw map[string]string) (Parameters, error) {
	p := Parameters{tagDelimiter: ","}
	named := make(map[string]string, len(raw))
	for key, value := range raw {
		if !isDeviceSetting(key) {
			named[key] = value
		}
	}
	faults, withoutEffect := table.Read(&p, named)
	faults = append(faults, p.Tuning.addAll(raw)...)
	faults = append(faults, p.parseTags()...)
	faults = append(faults, p.bothIOPS()...)
	if len(faults) == 0 {
		faults = p.contradictions()
	}
	p.WithoutEffect = append(withoutEffect, p.Tuning.withoutEffect()...)
	return p, paramtable.Invalid(faults)
}

// Overlay returns the parameters of a StorageClass overridden by a VolumeAttributesClass. It
// compares names without regard to case and treats aliases as the same parameter.
func Overlay(class, attributes map[string]string) map[string]string {
	return table.Overlay(class, attributes)
}

// SKU returns the SKU, or the default.
func (p *Parameters) SKU() string { return cmp.Or(p.SKUName, StandardSSDLRS) }

// Shares returns the number of shares, or the default.
func (p *Parameters) Shares() int32 { return max(p.MaxShares, 1) }

// Disk returns the parameters of a new disk of the size: the given ones, and the defaults of the
// others. The caller sets its name and its place.
func (p *Parameters) Disk(sizeBytes int64) apiv1.DiskParameters {
	d := *p.DiskParameters.DeepCopy()
	d.SKUName, d.MaxShares, d.CachingMode = p.SKU(), p.Shares(), p.Caching(sizeBytes)
	d.NetworkAccessPolicy, d.PublicNetworkAccess = cmp.Or(p.NetworkAccessPolicy, "DenyAll"), cmp.Or(p.PublicNetworkAccess,
		"Disabled")
	if d.DiskEncryptionType == "" && d.DiskEncryptionSetID != "" {
		d.DiskEncryptionType = customerKey
	}
	return d
}

// Replicas returns the number of replicas: the requested one, or by default as many as the shares
// allow; always 0 for a volume that several nodes may use. The error is an InvalidArgument.
func (p *Parameters) Replicas(multiNode bool) (int32, error) {
	switch {
	case multiNode && p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > 0:
		return 0, paramtable.Invalid([]string{paramtable.Fault("maxMountReplicaCount", *p.MaxMountReplicaCount,
			"0 for a volume of a multi-node access mode")})
	case multiNode:
		return 0, nil
	case p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > p.Shares()-1:
		return 0, paramtable.Invalid([]string{p.tooManyReplicas()})
	case p.MaxMountReplicaCount != nil:
		return *p.MaxMountReplicaCount, nil
	default:
		return p.Shares() - 1, nil
	}
}
