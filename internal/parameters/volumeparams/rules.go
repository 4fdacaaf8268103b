package volumeparams

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

// provisioned reports whether IOPS and throughput of a SKU's disks can be set.
func provisioned(sku string) bool { return sku == UltraSSDLRS || sku == PremiumV2LRS }

func premium(sku string) bool { return sku == PremiumLRS || sku == PremiumZRS }

// contradictions returns the contradictions that do not depend on the size of the disk.
func (p *Parameters) contradictions() []string {
	faults := p.skuContradictions()
	if (p.NetworkAccessPolicy == allowPrivate) != (p.DiskAccessID != "") {
		faults = append(faults, paramtable.Fault("diskAccessID", p.DiskAccessID,
			"a disk access ID if and only if networkAccessPolicy is "+allowPrivate+", and it is "+
				strconv.Quote(p.NetworkAccessPolicy)))
	}
	if p.DiskEncryptionType != "" && p.DiskEncryptionSetID == "" {
		faults = append(faults, paramtable.Fault("diskEncryptionType", p.DiskEncryptionType, "only with diskEncryptionSetID"))
	}
	if p.WriteAcceleratorEnabled && p.CachingMode == cachingReadWrite {
		faults = append(faults, paramtable.Fault(cachingKey, p.CachingMode, "None or ReadOnly with writeAcceleratorEnabled"))
	}
	faults = append(faults, p.Tuning.contradictions()...)
	return append(faults, p.sharedContradictions()...)
}

// skuContradictions returns the parameters that disks of the SKU do not support.
func (p *Parameters) skuContradictions() []string {
	var faults []string
	only := func(name string, value any, allowed bool, skus ...string) {
		if !allowed {
			faults = append(faults, paramtable.Fault(name, value,
				"only with skuName "+strings.Join(skus, " or ")+", not with "+p.SKU()))
		}
	}
	for _, number := range []struct {
		name  string
		value *int64
	}{
		{iopsKey, p.DiskIOPSReadWrite}, {"diskMBpsReadWrite", p.DiskMBpsReadWrite},
		{"diskIOPSReadOnly", p.DiskIOPSReadOnly}, {"diskMBpsReadOnly", p.DiskMBpsReadOnly},
	} {
		if number.value != nil {
			only(number.name, *number.value, provisioned(p.SKU()), UltraSSDLRS, PremiumV2LRS)
		}
	}
	if p.IOPSPerGiB > 0 {
		only(iopsPerGBKey, p.IOPSPerGiB, provisioned(p.SKU()), UltraSSDLRS, PremiumV2LRS)
	}
	if p.LogicalSectorSizeBytes != nil {
		only("logicalSectorSize", *p.LogicalSectorSizeBytes, provisioned(p.SKU()), UltraSSDLRS, PremiumV2LRS)
	}
	if p.Tier != "" {
		only("tier", p.Tier, premium(p.SKU()), PremiumLRS, PremiumZRS)
	}
	if p.BurstingEnabled {
		only("enableBursting", true, premium(p.SKU()), PremiumLRS, PremiumZRS)
	}
	if p.WriteAcceleratorEnabled {
		only("writeAcceleratorEnabled", true, premium(p.SKU()), PremiumLRS, PremiumZRS)
	}
	if provisioned(p.SKU()) && p.CachingMode != "" && p.CachingMode != CachingNone {
		faults = append(faults, paramtable.Fault(cachingKey, p.CachingMode, CachingNone+" with skuName "+p.SKU()))
	}
	if p.PerformancePlusEnabled && provisioned(p.SKU()) {
		faults = append(faults, paramtable.Fault("enablePerformancePlus", true, "not with skuName "+p.SKU()))
	}
	return faults
}

func (p *Parameters) tooManyReplicas() string {
	shares := p.Shares()
	return paramtable.Fault("maxMountReplicaCount", *p.MaxMountReplicaCount,
		fmt.Sprintf("0 to %d, which is maxShares - 1 (maxShares is %d)", shares-1, shares))
}

func (p *Parameters) sharedContradictions() []string {
	shares := p.Shares()
	var faults []string
	if p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > shares-1 {
		faults = append(faults, p.tooManyReplicas())
	}
	if shares == 1 {
		if p.DiskIOPSReadOnly != nil {
			faults = append(faults, paramtable.Fault("diskIOPSReadOnly", *p.DiskIOPSReadOnly, "only with maxShares above 1"))
		}
		if p.DiskMBpsReadOnly != nil {
			faults = append(faults, paramtable.Fault("diskMBpsReadOnly", *p.DiskMBpsReadOnly, "only with maxShares above 1"))
		}
		return faults
	}
	if p.CachingMode != "" && p.CachingMode != CachingNone {
		faults = append(faults, paramtable.Fault(cachingKey, p.CachingMode, CachingNone+" with maxShares above 1"))
	}
	if p.BurstingEnabled {
		faults = append(faults, paramtable.Fault("enableBursting", true, "false with maxShares above 1"))
	}
	if p.WriteAcceleratorEnabled {
		faults = append(faults, paramtable.Fault("writeAcceleratorEnabled", true, "false with maxShares above 1"))
	}
	return faults
}
