package skus

import (
	"slices"
	"strings"
)

// Size is a VM size.
type Size struct {
	Name         string
	Family       string
	Cores        int
	MemoryGB     float64
	MaxDataDisks int
	IOPS         int64 // uncached
	MBps         int64 // uncached
	PremiumIO    bool
	Ultra        bool // Ultra disks can be attached, in zones
	NVMe         bool // the size offers the NVMe disk controller besides SCSI
}

// Sizes lists the VM sizes.
var Sizes = []Size{
	{"Standard_A2_v2", "standardAv2Family", 2, 4, 4, 2000, 20, false, false, false},
	{"Standard_B1s", "standardBSFamily", 1, 1, 2, 320, 10, true, false, false},
	{"Standard_B2s", "standardBSFamily", 2, 4, 4, 1280, 15, true, false, false},
	{"Standard_B2ms", "standardBSFamily", 2, 8, 4, 1920, 22, true, false, false},
	{"Standard_B4ms", "standardBSFamily", 4, 16, 8, 2880, 35, true, false, false},
	{"Standard_DS2_v2", "standardDSv2Family", 2, 7, 8, 6400, 96, true, false, false},
	{"Standard_DS3_v2", "standardDSv2Family", 4, 14, 16, 12800, 192, true, false, false},
	{"Standard_DS5_v2", "standardDSv2Family", 16, 56, 64, 51200, 768, true, false, false},
	{"Standard_D2s_v3", "standardDSv3Family", 2, 8, 4, 3200, 48, true, true, false},
	{"Standard_D4s_v3", "standardDSv3Family", 4, 16, 8, 6400, 96, true, true, false},
	{"Standard_D8s_v3", "standardDSv3Family", 8, 32, 16, 12800, 192, true, true, false},
	{"Standard_D16s_v3", "standardDSv3Family", 16, 64, 32, 25600, 384, true, true, false},
	{"Standard_D32s_v3", "standardDSv3Family", 32, 128, 32, 51200, 768, true, true, false},
	{"Standard_D2s_v5", "standardDSv5Family", 2, 8, 4, 3750, 85, true, true, false},
	{"Standard_D4s_v5", "standardDSv5Family", 4, 16, 8, 6400, 145, true, true, false},
	{"Standard_D8s_v5", "standardDSv5Family", 8, 32, 16, 12800, 290, true, true, false},
	{"Standard_D16s_v5", "standardDSv5Family", 16, 64, 32, 25600, 600, true, true, false},
	{"Standard_D32s_v5", "standardDSv5Family", 32, 128, 32, 51200, 865, true, true, false},
	{"Standard_D64s_v5", "standardDSv5Family", 64, 256, 32, 80000, 1735, true, true, false},
	{"Standard_D2ds_v5", "standardDDSv5Family", 2, 8, 4, 3750, 85, true, true, false},
	{"Standard_D4ds_v5", "standardDDSv5Family", 4, 16, 8, 6400, 145, true, true, false},
	{"Standard_D8ds_v5", "standardDDSv5Family", 8, 32, 16, 12800, 290, true, true, false},
	{"Standard_E4s_v5", "standardESv5Family", 4, 32, 8, 6400, 145, true, true, false},
	{"Standard_E16s_v5", "standardESv5Family", 16, 128, 32, 25600, 600, true, true, false},
	{"Standard_F2s_v2", "standardFSv2Family", 2, 4, 4, 3200, 47, true, true, false},
	{"Standard_F8s_v2", "standardFSv2Family", 8, 16, 16, 12800, 190, true, true, false},
	{"Standard_L8s_v3", "standardLSv3Family", 8, 64, 16, 12800, 200, true, true, true},
	{"Standard_D2s_v6", "standardDSv6Family", 2, 8, 8, 3750, 106, true, true, true},
	{"Standard_D4s_v6", "standardDSv6Family", 4, 16, 12, 7600, 212, true, true, true},
	{"Standard_D16s_v6", "standardDSv6Family", 16, 64, 48, 30400, 848, true, true, true},
	{"Standard_D32s_v6", "standardDSv6Family", 32, 128, 64, 57600, 1696, true, true, true},
	{"Standard_M64s", "standardMSFamily", 64, 1024, 64, 40000, 1000, true, true, false},
}

// SizeByName finds a VM size; case does not matter.
func SizeByName(name string) (Size, bool) {
	for _, s := range Sizes {
		if strings.EqualFold(s.Name, name) {
			return s, true
		}
	}
	return Size{}, false
}

// Location is a region.
type Location struct {
	Name  string
	Zones []string // empty: the region has none
}

// regionalV2 are the locations with zones that also have Premium SSD v2 disks in no zone.
var regionalV2 = []string{"germanywestcentral"}

// NeedsZone reports whether a disk of a SKU must be in a zone of the location.
func (l Location) NeedsZone(d Disk) bool {
	return d.Provisioned && len(l.Zones) > 0 && (d.Name != PremiumV2LRS || !slices.Contains(regionalV2, l.Name))
}

var threeZones = []string{"1", "2", "3"}

// Locations lists the regions.
var Locations = []Location{
	{"eastus", threeZones}, {"eastus2", threeZones}, {"westus2", threeZones}, {"westus3", threeZones}, {"centralus", threeZones},
	{"northeurope", threeZones}, {"westeurope", threeZones}, {"germanywestcentral", threeZones}, {"swedencentral", threeZones},
	{"uksouth", threeZones},
	{"japaneast", threeZones}, {"southeastasia", threeZones},
	{"westus", nil}, {"northcentralus", nil}, {"ukwest", nil},
}

// lacking are the disk SKUs that a zone of a location does not have, as not every zone of Azure has
// all of them.
var lacking = map[string]map[string][]string{
	"eastus":        {"2": {UltraSSDLRS}},
	"southeastasia": {"3": {PremiumV2LRS, UltraSSDLRS}},
	"uksouth":       {"1": {PremiumV2LRS}, "2": {UltraSSDLRS}},
}

// ZonesOf returns the zones of a location that have a disk SKU.
func (l Location) ZonesOf(diskSKU string) []string {
	return slices.DeleteFunc(slices.Clone(l.Zones),
		func(zone string) bool { return slices.Contains(lacking[l.Name][zone], diskSKU) })
}

// LocationByName finds a region. Display names such as "East US" are understood, as Azure does.
func LocationByName(name string) (Location, bool) {
	name = NormalizeLocation(name)
	for _, l := range Locations {
		if l.Name == name {
			return l, true
		}
	}
	return Location{}, false
}

// NormalizeLocation turns "East US 2" into "eastus2".
func NormalizeLocation(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, " ", ""))
}
