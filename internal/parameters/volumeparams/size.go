package volumeparams

import (
	"fmt"
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// GiB is the unit in which Azure sizes disks.
const GiB = int64(1) << 30

const (
	defaultSizeGiB         = 1
	largestGiB             = 32767
	largestProvisionedGiB  = 65536
	smallestUltraGiB       = 4
	noCachingFromGiB       = 4096
	burstingAboveGiB       = 512
	performancePlusFromGiB = 513
)

// MaxShares returns the largest maxShares that Azure allows for a SKU and size.
// Source: https://learn.microsoft.com/azure/virtual-machines/disks-shared
func MaxShares(skuName string, sizeBytes int64) int32 {
	switch skuName {
	case UltraSSDLRS, PremiumV2LRS:
		return 15
	case PremiumLRS, PremiumZRS, StandardSSDLRS, standardSSDZRS:
		switch {
		case sizeBytes <= 512*GiB:
			return 3
		case sizeBytes <= 4096*GiB:
			return 5
		default:
			return 10
		}
	default:
		return 1
	}
}

// Size returns the size of a disk for a request: requiredBytes, rounded up to whole GiB and to the
// smallest size that the parameters allow. 0 means that a bound was not given. Errors:
// InvalidArgument for bounds that contradict each other, paramtable.OutOfRangeError for bounds between which
// no disk has its size.
func (p *Parameters) Size(requiredBytes, limitBytes int64) (int64, error) {
	if requiredBytes < 0 || limitBytes < 0 {
		return 0, provisioner.Errorf(provisioner.InvalidArgument, "capacity range: required %d and limit %d must not be negative",
			requiredBytes, limitBytes)
	}
	if limitBytes > 0 && requiredBytes > limitBytes {
		return 0, provisioner.Errorf(provisioner.InvalidArgument,
			"capacity range: required %d bytes is above the limit of %d bytes", requiredBytes, limitBytes)
	}
	low, high := p.sizeRange()
	if requiredBytes > high {
		return 0, &paramtable.OutOfRangeError{Message: fmt.Sprintf(
			"capacity range: required %d bytes; skuName %s allows %d to %d bytes",
			requiredBytes, p.SKU(), low, high)}
	}
	size := max(roundUp(requiredBytes), low)
	if limitBytes > 0 && size > limitBytes {
		return 0, &paramtable.OutOfRangeError{Message: fmt.Sprintf(
			"capacity range: the smallest disk for %d bytes has %d bytes, which is above the limit of %d bytes", requiredBytes,
			size, limitBytes)}
	}
	return size, nil
}

func (p *Parameters) sizeRange() (low, high int64) {
	low, high = defaultSizeGiB, largestGiB
	switch p.SKU() {
	case UltraSSDLRS:
		low, high = smallestUltraGiB, largestProvisionedGiB
	case PremiumV2LRS:
		high = largestProvisionedGiB
	}
	if p.PerformancePlusEnabled {
		low = performancePlusFromGiB
	}
	return low * GiB, high * GiB
}

func roundUp(bytes int64) int64 { return (bytes + GiB - 1) / GiB * GiB }

// CheckSize returns an InvalidArgument for parameters that a disk of the size cannot have.
func (p *Parameters) CheckSize(sizeBytes int64) error {
	return paramtable.Invalid(p.sizeContradictions(sizeBytes))
}

func (p *Parameters) sizeContradictions(sizeBytes int64) []string {
	var faults []string
	if allowed := MaxShares(p.SKU(), sizeBytes); p.Shares() > allowed {
		what := fmt.Sprintf("1 to %d for skuName %s and a size of %d GiB", allowed, p.SKU(), sizeBytes/GiB)
		if allowed == 1 {
			what = fmt.Sprintf("1 for skuName %s and a size of %d GiB", p.SKU(), sizeBytes/GiB)
		}
		faults = append(faults, paramtable.Fault("maxShares", p.Shares(), what))
	}
	if p.BurstingEnabled && sizeBytes <= burstingAboveGiB*GiB {
		faults = append(faults, paramtable.Fault("enableBursting", true, fmt.Sprintf("false up to %d GiB", burstingAboveGiB)))
	}
	faults = append(faults, p.filesystemContradictions(sizeBytes)...)
	faults = append(faults, p.checkTier(sizeBytes)...)
	return append(faults, p.checkPerformance(sizeBytes)...)
}

// Caching returns the host caching of a disk of the size: the requested one, or the default. For
// shared disks, disks of provisioned performance and disks from 4096 GiB on it is always None,
// because Azure refuses to attach them with another one. A disk of a SKU that this driver does not know
// may be such a disk.
func (p *Parameters) Caching(sizeBytes int64) string {
	switch {
	case sizeBytes >= noCachingFromGiB*GiB, p.Shares() > 1, provisioned(p.SKU()):
		return CachingNone
	case p.CachingMode != "":
		return p.CachingMode
	case !slices.Contains(skuNames, p.SKU()):
		return CachingNone
	default:
		return cachingReadOnly
	}
}
