package volumeparams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Parameters are the parameters of a volume after Parse. A zero value or nil
// means that the parameter was not given.
type Parameters struct {
	SKUName                    string
	CachingMode                string
	FSType                     string
	Location                   string
	ResourceGroup              string
	SubscriptionID             string
	DiskName                   string
	MaxShares                  int32
	MaxMountReplicaCount       *int32
	DiskIOPSReadWrite          *int64
	DiskMBpsReadWrite          *int64
	LogicalSectorSize          *int32
	NetworkAccessPolicy        string
	PublicNetworkAccess        string
	DiskAccessID               string
	DiskEncryptionSetID        string
	DiskEncryptionType         string
	EnableBursting             bool
	EnablePerformancePlus      bool
	OptimizedForFrequentAttach bool
	WriteAcceleratorEnabled    bool
	Tags                       map[string]string
	// ClaimNamespace, ClaimName and VolumeName come from the provisioner, not from the StorageClass.
	ClaimNamespace, ClaimName, VolumeName string
	// WithoutEffect are the parameters that are known and that this driver does nothing with.
	WithoutEffect []string

	tags, tagDelimiter string
}

// The SKUs of managed disks.
const (
	StandardLRS    = "Standard_LRS"
	StandardSSDLRS = "StandardSSD_LRS"
	StandardSSDZRS = "StandardSSD_ZRS"
	PremiumLRS     = "Premium_LRS"
	PremiumZRS     = "Premium_ZRS"
	PremiumV2LRS   = "PremiumV2_LRS"
	UltraSSDLRS    = "UltraSSD_LRS"
)

// The host caching modes.
const (
	CachingNone      = "None"
	CachingReadOnly  = "ReadOnly"
	CachingReadWrite = "ReadWrite"
)

var skuNames = []string{StandardLRS, StandardSSDLRS, StandardSSDZRS, PremiumLRS, PremiumZRS, PremiumV2LRS, UltraSSDLRS}

// deviceSettingPrefix starts the names of an open set of V1 parameters.
const deviceSettingPrefix = "device-setting/"

// Parse reads parameters. The error is an InvalidArgument that lists every fault.
func Parse(raw map[string]string) (Parameters, error) {
	p := Parameters{tagDelimiter: ","}
	var faults []string
	given := map[string]string{} // canonical name to value
	for _, key := range sorted(raw) {
		value := raw[key]
		if strings.HasPrefix(strings.ToLower(key), deviceSettingPrefix) {
			p.WithoutEffect = append(p.WithoutEffect, key)
			continue
		}
		known, ok := lookup(key)
		if !ok {
			faults = append(faults, unknown(key, value))
			continue
		}
		if before, twice := given[known.name]; twice && before != value {
			faults = append(faults, fmt.Sprintf("parameter %s: given twice, as %q and as %q; give it once (%s)", known.name, before, value, key))
			continue
		}
		given[known.name] = value
		if known.set == nil {
			p.WithoutEffect = append(p.WithoutEffect, known.name)
		}
		if allowed := known.apply(&p, value); allowed != "" {
			faults = append(faults, fault(key, value, allowed))
		}
	}
	faults = append(faults, p.parseTags()...)
	if len(faults) == 0 {
		faults = p.contradictions()
	}
	return p, invalid(faults)
}

// contradictions returns what does not go together whatever the size of the disk.
func (p *Parameters) contradictions() []string {
	var faults []string
	provisioned := p.SKU() == UltraSSDLRS || p.SKU() == PremiumV2LRS
	onlyProvisioned := "only with skuName " + UltraSSDLRS + " or " + PremiumV2LRS + ", not with " + p.SKU()
	if p.DiskIOPSReadWrite != nil && !provisioned {
		faults = append(faults, fault("diskIOPSReadWrite", *p.DiskIOPSReadWrite, onlyProvisioned))
	}
	if p.DiskMBpsReadWrite != nil && !provisioned {
		faults = append(faults, fault("diskMBpsReadWrite", *p.DiskMBpsReadWrite, onlyProvisioned))
	}
	if p.LogicalSectorSize != nil && !provisioned {
		faults = append(faults, fault("logicalSectorSize", *p.LogicalSectorSize, onlyProvisioned))
	}
	if provisioned && p.CachingMode != "" && p.CachingMode != CachingNone {
		faults = append(faults, fault("cachingMode", p.CachingMode, CachingNone+" with skuName "+p.SKU()))
	}
	if (p.NetworkAccessPolicy == "AllowPrivate") != (p.DiskAccessID != "") {
		faults = append(faults, fault("diskAccessID", p.DiskAccessID, "a disk access ID if and only if networkAccessPolicy is AllowPrivate, and it is "+strconv.Quote(p.NetworkAccessPolicy)))
	}
	if p.DiskEncryptionType != "" && p.DiskEncryptionSetID == "" {
		faults = append(faults, fault("diskEncryptionType", p.DiskEncryptionType, "only with diskEncryptionSetID"))
	}
	if p.EnableBursting && p.SKU() != PremiumLRS && p.SKU() != PremiumZRS {
		faults = append(faults, fault("enableBursting", true, "only with skuName "+PremiumLRS+" or "+PremiumZRS+", not with "+p.SKU()))
	}
	if p.EnablePerformancePlus && provisioned {
		faults = append(faults, fault("enablePerformancePlus", true, "not with skuName "+p.SKU()))
	}
	return append(faults, p.sharedContradictions()...)
}

func (p *Parameters) sharedContradictions() []string {
	shares := p.Shares()
	var faults []string
	if p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > shares-1 {
		faults = append(faults, fault("maxMountReplicaCount", *p.MaxMountReplicaCount,
			fmt.Sprintf("0 to %d, which is maxShares - 1 (maxShares is %d)", shares-1, shares)))
	}
	if shares == 1 {
		return faults
	}
	if p.CachingMode != "" && p.CachingMode != CachingNone {
		faults = append(faults, fault("cachingMode", p.CachingMode, CachingNone+" with maxShares above 1"))
	}
	if p.EnableBursting {
		faults = append(faults, fault("enableBursting", true, "false with maxShares above 1"))
	}
	if p.WriteAcceleratorEnabled {
		faults = append(faults, fault("writeAcceleratorEnabled", true, "false with maxShares above 1"))
	}
	return faults
}

// SKU returns the SKU, or the default.
func (p *Parameters) SKU() string {
	if p.SKUName == "" {
		return StandardSSDLRS
	}
	return p.SKUName
}

// Shares returns the number of shares, or the default.
func (p *Parameters) Shares() int32 { return max(p.MaxShares, 1) }

// Replicas returns the number of replicas: what was asked for, or else all that
// the shares allow; always 0 for a volume that several nodes use at once.
// The error is an InvalidArgument.
func (p *Parameters) Replicas(multiNode bool) (int32, error) {
	switch {
	case multiNode && p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > 0:
		return 0, invalid([]string{fault("maxMountReplicaCount", *p.MaxMountReplicaCount, "0 for a volume of a multi-node access mode")})
	case multiNode:
		return 0, nil
	case p.MaxMountReplicaCount != nil:
		return *p.MaxMountReplicaCount, nil
	default:
		return p.Shares() - 1, nil
	}
}

func fault(name string, value any, allowed string) string {
	return fmt.Sprintf("parameter %s: value %q is not allowed; allowed: %s", name, fmt.Sprint(value), allowed)
}

func invalid(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return provisioner.Errorf(provisioner.InvalidArgument, "%s", strings.Join(faults, "; "))
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
