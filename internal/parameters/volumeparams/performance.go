package volumeparams

import (
	"fmt"
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

// tier is a size class of disks whose performance depends on their size.
// Source: https://learn.microsoft.com/azure/virtual-machines/disks-types
type tier struct {
	number     string
	largestGiB int64
	premium    Performance
	standard   Performance // SSD
	hdd        Performance
}

// Performance has the limits of a disk.
type Performance struct{ IOPS, MBps int64 }

var tiers = []tier{
	{"1", 4, Performance{120, 25}, Performance{500, 100}, Performance{500, 60}},
	{"2", 8, Performance{120, 25}, Performance{500, 100}, Performance{500, 60}},
	{"3", 16, Performance{120, 25}, Performance{500, 100}, Performance{500, 60}},
	{"4", 32, Performance{120, 25}, Performance{500, 100}, Performance{500, 60}},
	{"6", 64, Performance{240, 50}, Performance{500, 100}, Performance{500, 60}},
	{"10", 128, Performance{500, 100}, Performance{500, 100}, Performance{500, 60}},
	{"15", 256, Performance{1100, 125}, Performance{500, 100}, Performance{500, 60}},
	{"20", 512, Performance{2300, 150}, Performance{500, 100}, Performance{500, 60}},
	{"30", 1024, Performance{5000, 200}, Performance{500, 100}, Performance{500, 60}},
	{"40", 2048, Performance{7500, 250}, Performance{500, 100}, Performance{500, 60}},
	{"50", 4096, Performance{7500, 250}, Performance{500, 100}, Performance{500, 60}},
	{"60", 8192, Performance{16000, 500}, Performance{2000, 400}, Performance{1300, 300}},
	{"70", 16384, Performance{18000, 750}, Performance{4000, 600}, Performance{2000, 500}},
	{"80", largestGiB, Performance{20000, 900}, Performance{6000, 750}, Performance{2000, 500}},
}

// firstLargeTier is the lowest tier that only disks of more than 4096 GiB can have.
const firstLargeTier = "60"

func isTier(name string) bool { return rankOf(name) >= 0 }

// rankOf returns the index of a tier such as "P30" among the tiers, or -1.
func rankOf(name string) int {
	if len(name) < 2 || name[0] != 'P' && name[0] != 'p' {
		return -1
	}
	return slices.IndexFunc(tiers, func(t tier) bool { return t.number == name[1:] })
}

// rankOfSize returns the index of the tier of a size.
func rankOfSize(sizeBytes int64) int {
	i := slices.IndexFunc(tiers, func(t tier) bool { return sizeBytes <= t.largestGiB*GiB })
	if i < 0 {
		return len(tiers) - 1
	}
	return i
}

// BaselineTier returns the performance tier of a Premium SSD of the size if no other tier was
// requested.
func BaselineTier(sizeBytes int64) string { return "P" + tiers[rankOfSize(sizeBytes)].number }

// HasTiers reports whether disks of a SKU can have another performance tier than their size's.
func HasTiers(skuName string) bool { return premium(skuName) }

// checkTier returns a fault for a tier that a disk of the size cannot have.
func (p *Parameters) checkTier(sizeBytes int64) []string {
	if p.Tier == "" {
		return nil
	}
	rank, own, large := rankOf(p.Tier), rankOfSize(sizeBytes), rankOf("P"+firstLargeTier)
	switch {
	case rank < own:
		return []string{paramtable.Fault("tier", p.Tier,
			fmt.Sprintf("%s or a higher one for a size of %d GiB", BaselineTier(sizeBytes), sizeBytes/GiB))}
	case rank >= large && own < large:
		return []string{paramtable.Fault("tier", p.Tier, fmt.Sprintf("below P%s up to %d GiB", firstLargeTier, noCachingFromGiB))}
	}
	return nil
}

// Performance returns the limits of a disk with the parameters and the size: the provisioned
// limits, or the limits of the SKU, the size and the tier. Bursts do not count.
func (p *Parameters) Performance(sizeBytes int64) Performance {
	rank := rankOfSize(sizeBytes)
	switch p.SKU() {
	case UltraSSDLRS, PremiumV2LRS:
		limits := p.performanceLimits(sizeBytes, 0)
		found := Performance{IOPS: max(sizeBytes/GiB, minUltraDefaultIOPS), MBps: minUltraDefaultMBps}
		if p.SKU() == PremiumV2LRS {
			found = limits.low
		}
		switch {
		case p.DiskIOPSReadWrite != nil:
			found.IOPS = *p.DiskIOPSReadWrite
		case p.IOPSPerGiB > 0:
			found.IOPS = p.iopsOfSize(sizeBytes)
		}
		if p.DiskMBpsReadWrite != nil {
			found.MBps = *p.DiskMBpsReadWrite
		}
		return found
	case PremiumLRS, PremiumZRS:
		return tiers[max(rank, rankOf(p.Tier))].premium
	case StandardLRS:
		return tiers[rank].hdd
	default:
		return tiers[rank].standard
	}
}

const (
	minUltraDefaultIOPS = 500
	maxUltraDefaultIOPS = 160000
	minUltraDefaultMBps = 100

	ultraDefaultIOPSPerGiB = 1
	// maxIOPSPerGiB is the most that any SKU has for each GiB.
	maxIOPSPerGiB = 1000
)

// SetDefaultPerformance sets the IOPS that iopsPerGB asks for, and values for an Ultra disk without
// IOPS and throughput, which TestUltraDisksHaveTheDefaultsOfV1 compares with V1's. Other SKUs have
// the platform's default.
func (p *Parameters) SetDefaultPerformance(sizeBytes int64) {
	p.RaiseIOPS(sizeBytes)
	if p.SKU() != UltraSSDLRS || p.DiskIOPSReadWrite != nil || p.DiskMBpsReadWrite != nil {
		return
	}
	p.IOPSPerGiB = ultraDefaultIOPSPerGiB
	iops := min(max(minUltraDefaultIOPS, sizeBytes/GiB), maxUltraDefaultIOPS)
	// 4 kB/s for each IOPS was Azure's documented minimum. V1 divides by 256, and is a little below it
	// for the largest disks, because Azure's MB is 10^6 bytes.
	mbps := max(minUltraDefaultMBps, (iops*4+999)/1000)
	p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = &iops, &mbps
}

// RaiseIOPS raises the IOPS of a disk that has the size, or grows to it, to those that iopsPerGB
// asks for. It never lowers them: they may have been raised otherwise.
func (p *Parameters) RaiseIOPS(sizeBytes int64) {
	if p.IOPSPerGiB == 0 || !provisioned(p.SKU()) {
		return
	}
	if iops := p.iopsOfSize(sizeBytes); p.DiskIOPSReadWrite == nil || *p.DiskIOPSReadWrite < iops {
		p.DiskIOPSReadWrite = &iops
	}
}

// iopsOfSize returns the IOPS that iopsPerGB asks for, within the limits of a disk of the size.
func (p *Parameters) iopsOfSize(sizeBytes int64) int64 {
	limits := p.performanceLimits(sizeBytes, 0)
	return min(max(p.IOPSPerGiB*(sizeBytes/GiB), limits.low.IOPS), limits.high.IOPS)
}

// bothIOPS returns a fault for parameters of one class that name the IOPS twice.
func (p *Parameters) bothIOPS() []string {
	if p.IOPSPerGiB == 0 || p.DiskIOPSReadWrite == nil {
		return nil
	}
	return []string{paramtable.Fault(iopsPerGBKey, p.IOPSPerGiB, fmt.Sprintf("not with %s (%d)", iopsKey, *p.DiskIOPSReadWrite))}
}

// bounds of provisioned performance.
type bounds struct{ low, high Performance }

// performanceLimits returns the allowed values for a disk of the size; the throughput depends on
// the IOPS. Source: https://learn.microsoft.com/azure/virtual-machines/disks-types, Ultra and
// Premium SSD v2
func (p *Parameters) performanceLimits(sizeBytes, iops int64) bounds {
	gib := sizeBytes / GiB
	if p.SKU() == UltraSSDLRS {
		// 256 kB for each IOPS was the documented limit before it became 0.25 MB. Azure decides
		// about values between.
		low := Performance{IOPS: 100, MBps: 1}
		return bounds{low, Performance{IOPS: min(400000, 1000*gib), MBps: min(10000, max(low.MBps, iops*256/1000))}}
	}
	low := Performance{IOPS: 3000, MBps: 125}
	return bounds{low, Performance{IOPS: min(80000, max(low.IOPS, 500*gib)), MBps: min(2000, max(low.MBps, iops/4))}}
}

// checkPerformance returns faults for IOPS and throughput that a disk of the size cannot have.
func (p *Parameters) checkPerformance(sizeBytes int64) []string {
	if !provisioned(p.SKU()) {
		return nil
	}
	var faults []string
	check := func(name string, value *int64, low, high int64, given string) {
		if value != nil && (*value < low || *value > high) {
			faults = append(faults, paramtable.Fault(name, *value,
				fmt.Sprintf("%d to %d for skuName %s and %s", low, high, p.SKU(), given)))
		}
	}
	size := fmt.Sprintf("a size of %d GiB", sizeBytes/GiB)
	limits := p.performanceLimits(sizeBytes, 0)
	check(iopsKey, p.DiskIOPSReadWrite, limits.low.IOPS, limits.high.IOPS, size)
	iops := p.Performance(sizeBytes).IOPS
	limits = p.performanceLimits(sizeBytes, iops)
	check("diskMBpsReadWrite", p.DiskMBpsReadWrite, limits.low.MBps, limits.high.MBps, fmt.Sprintf("%d IOPS", iops))
	return faults
}
