// Package skus is the simulated catalogue: locations and their zones, VM sizes with what they can
// take, disk SKUs with their tiers. The model validates against it and the resource SKU list is
// rendered from it, so the two cannot disagree.
package skus

import "strings"

// Disk SKU names.
const (
	StandardLRS    = "Standard_LRS"
	StandardSSDLRS = "StandardSSD_LRS"
	StandardSSDZRS = "StandardSSD_ZRS"
	PremiumLRS     = "Premium_LRS"
	PremiumZRS     = "Premium_ZRS"
	PremiumV2LRS   = "PremiumV2_LRS"
	UltraSSDLRS    = "UltraSSD_LRS"
)

// Tier is a size class of a disk SKU; a disk has the performance of the smallest tier that holds
// it.
type Tier struct {
	Name                 string
	MaxSizeGB            int64
	IOPS, MBps           int64
	BurstIOPS, BurstMBps int64 // 0: does not burst
	MaxShares            int
}

// Disk is a disk SKU.
type Disk struct {
	Name          string
	ResourceTier  string // Standard, Premium, Ultra
	Tiers         []Tier // ascending; one for the SKUs whose performance is provisioned
	ZoneRedundant bool
	Provisioned   bool // IOPS and throughput are chosen: Ultra and Premium v2
	Burstable     bool // on-demand bursting can be switched on
}

// Limits of provisioned performance.
type Limits struct{ MinIOPS, MaxIOPS, MinMBps, MaxMBps int64 }

var tierSizes = []int64{4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32767}

var tierNumbers = []string{"1", "2", "3", "4", "6", "10", "15", "20", "30", "40", "50", "60", "70", "80"}

var (
	premiumIOPS  = []int64{120, 120, 120, 120, 240, 500, 1100, 2300, 5000, 7500, 7500, 16000, 18000, 20000}
	premiumMBps  = []int64{25, 25, 25, 25, 50, 100, 125, 150, 200, 250, 250, 500, 750, 900}
	standardIOPS = []int64{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 2000, 4000, 6000}
	standardMBps = []int64{100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 400, 600, 750}
	hddIOPS      = []int64{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 1300, 2000, 2000}
	hddMBps      = []int64{60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 300, 500, 500}
)

// sharesBySize is how often a disk of a tier may be attached: 3 up to 512 GiB, 5 up to 4 TiB, 10
// above.
func sharesBySize(sizeGB int64) int {
	switch {
	case sizeGB <= 512:
		return 3
	case sizeGB <= 4096:
		return 5
	default:
		return 10
	}
}

func tiers(letter string, iops, mbps []int64, shared, bursts bool) []Tier {
	list := make([]Tier, 0, len(tierSizes))
	for i, size := range tierSizes {
		t := Tier{
			Name:      letter + tierNumbers[i],
			MaxSizeGB: size,
			IOPS:      iops[i],
			MBps:      mbps[i],
			MaxShares: 1,
		}
		if shared {
			t.MaxShares = sharesBySize(size)
		}
		if bursts && size <= 512 {
			t.BurstIOPS, t.BurstMBps = 3500, 170
		} else if bursts {
			t.BurstIOPS, t.BurstMBps = 30000, 1000
		}
		list = append(list, t)
	}
	return list
}

func provisioned(tierName string) []Tier {
	return []Tier{{Name: tierName, MaxSizeGB: 65536, IOPS: 3000, MBps: 125, MaxShares: 15}}
}

// Disks lists the disk SKUs.
var Disks = []Disk{
	// The smallest is S4: there are no S1 to S3.
	{Name: StandardLRS, ResourceTier: "Standard", Tiers: tiers("S", hddIOPS, hddMBps, false, false)[3:]},
	{Name: StandardSSDLRS, ResourceTier: "Standard", Tiers: tiers("E", standardIOPS, standardMBps, true, false)},
	{
		Name:          StandardSSDZRS,
		ResourceTier:  "Standard",
		Tiers:         tiers("E", standardIOPS, standardMBps, true, false),
		ZoneRedundant: true,
	},
	{Name: PremiumLRS, ResourceTier: "Premium", Tiers: tiers("P", premiumIOPS, premiumMBps, true, true), Burstable: true},
	{
		Name:          PremiumZRS,
		ResourceTier:  "Premium",
		Tiers:         tiers("P", premiumIOPS, premiumMBps, true, true),
		Burstable:     true,
		ZoneRedundant: true,
	},
	{Name: PremiumV2LRS, ResourceTier: "Premium", Tiers: provisioned("P"), Provisioned: true},
	{Name: UltraSSDLRS, ResourceTier: "Ultra", Tiers: provisioned("U"), Provisioned: true},
}

// DiskByName finds a disk SKU; case does not matter.
func DiskByName(name string) (Disk, bool) {
	for _, d := range Disks {
		if strings.EqualFold(d.Name, name) {
			return d, true
		}
	}
	return Disk{}, false
}

// DiskNames lists the names of the disk SKUs.
func DiskNames() []string {
	names := make([]string, 0, len(Disks))
	for _, d := range Disks {
		names = append(names, d.Name)
	}
	return names
}

// MaxSizeGB is the largest size of the SKU.
func (d Disk) MaxSizeGB() int64 { return d.Tiers[len(d.Tiers)-1].MaxSizeGB }

// TierFor returns the tier of a size; a size above the maximum has the last.
func (d Disk) TierFor(sizeGB int64) Tier {
	for _, t := range d.Tiers {
		if sizeGB <= t.MaxSizeGB {
			return t
		}
	}
	return d.Tiers[len(d.Tiers)-1]
}

// TierByName finds a tier of the SKU and its rank.
func (d Disk) TierByName(name string) (rank int, ok bool) {
	for i, t := range d.Tiers {
		if strings.EqualFold(t.Name, name) {
			return i, true
		}
	}
	return 0, false
}

// PerformanceLimits returns what may be provisioned for a size. It means something only for
// provisioned SKUs.
func (d Disk) PerformanceLimits(sizeGB, iops int64) Limits {
	if d.Name == UltraSSDLRS {
		l := Limits{
			MinIOPS: 100,
			MaxIOPS: min(400000, 1000*sizeGB),
			MinMBps: 1,
		}
		l.MaxMBps = min(10000, max(l.MinMBps, iops*256/1000))
		return l
	}
	return Limits{
		MinIOPS: 3000,
		MaxIOPS: min(80000, max(3000, 500*sizeGB)),
		MinMBps: 125,
		MaxMBps: min(2000, max(125, iops/4)),
	}
}
