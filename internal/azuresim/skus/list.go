package skus

import (
	"strconv"
	"strings"
)

// Capability is a name with a value, both strings as in Azure.
type Capability struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ZoneDetails are capabilities that hold only in some zones of a location.
type ZoneDetails struct {
	Name         []string     `json:"name"`
	Capabilities []Capability `json:"capabilities"`
}

// LocationInfo says where and in which zones an entry is on offer.
type LocationInfo struct {
	Location    string        `json:"location"`
	Zones       []string      `json:"zones"`
	ZoneDetails []ZoneDetails `json:"zoneDetails"`
}

// Entry is an element of the resource SKU list, in Azure's JSON form.
type Entry struct {
	ResourceType string         `json:"resourceType"`
	Name         string         `json:"name"`
	Tier         string         `json:"tier,omitempty"`
	Size         string         `json:"size,omitempty"`
	Family       string         `json:"family,omitempty"`
	Locations    []string       `json:"locations"`
	LocationInfo []LocationInfo `json:"locationInfo"`
	Capabilities []Capability   `json:"capabilities,omitempty"`
	Restrictions []any          `json:"restrictions"`
}

// List returns the catalogue: of one location, or of all if location is empty. An unknown location
// has no entries.
func List(location string) []Entry {
	var list []Entry
	for _, l := range Locations {
		if location != "" && l.Name != NormalizeLocation(location) {
			continue
		}
		for _, s := range Sizes {
			list = append(list, s.entry(l))
		}
		for _, d := range Disks {
			list = append(list, d.entries(l)...)
		}
		list = append(list, snapshotEntries(l)...)
	}
	return list
}

func newEntry(l Location, resourceType, name string) Entry {
	return Entry{
		ResourceType: resourceType,
		Name:         name,
		Locations:    []string{l.Name},
		LocationInfo: []LocationInfo{{Location: l.Name, Zones: listed(l.Zones), ZoneDetails: []ZoneDetails{}}},
		Restrictions: []any{},
	}
}

// listed is a list that is there also if it is empty.
func listed(names []string) []string { return append([]string{}, names...) }

func (s Size) entry(l Location) Entry {
	e := newEntry(l, "virtualMachines", s.Name)
	e.Tier, e.Size, e.Family = "Standard", strings.TrimPrefix(s.Name, "Standard_"), s.Family
	controllers := "SCSI"
	if s.NVMe {
		controllers = "SCSI, NVMe"
	}
	e.Capabilities = []Capability{
		{"MaxResourceVolumeMB", "0"},
		{"OSVhdSizeMB", "1047552"},
		{"vCPUs", strconv.Itoa(s.Cores)},
		{"MemoryGB", strconv.FormatFloat(s.MemoryGB, 'g', -1, 64)},
		{"MaxDataDiskCount", strconv.Itoa(s.MaxDataDisks)},
		{"CpuArchitectureType", "x64"},
		{"PremiumIO", boolText(s.PremiumIO)},
		{"VMDeploymentTypes", "IaaS"},
		{"vCPUsAvailable", strconv.Itoa(s.Cores)},
		{"DiskControllerTypes", controllers},
		{"UncachedDiskIOPS", strconv.FormatInt(s.IOPS, 10)},
		{"UncachedDiskBytesPerSecond", strconv.FormatInt(s.MBps*1000*1000, 10)},
		{"EphemeralOSDiskSupported", "False"},
		{"EncryptionAtHostSupported", "True"},
		{"AcceleratedNetworkingEnabled", "True"},
		{"MaxNetworkInterfaces", "4"},
	}
	ultra := Capability{"UltraSSDAvailable", "True"}
	switch {
	case !s.Ultra:
	case len(l.Zones) > 0:
		e.LocationInfo[0].ZoneDetails = []ZoneDetails{{Name: l.ZonesOf(UltraSSDLRS), Capabilities: []Capability{ultra}}}
	default:
		e.Capabilities = append(e.Capabilities, ultra)
	}
	return e
}

func (d Disk) entries(l Location) []Entry {
	if d.ZoneRedundant && len(l.Zones) == 0 {
		return nil
	}
	list := make([]Entry, 0, len(d.Tiers))
	minSize := int64(1)
	if d.Name == StandardLRS {
		minSize = 0
	}
	for _, t := range d.Tiers {
		e := newEntry(l, "disks", d.Name)
		e.LocationInfo[0].Zones = listed(l.ZonesOf(d.Name))
		e.Tier, e.Size = d.ResourceTier, t.Name
		e.Capabilities = d.capabilities(t, minSize)
		minSize = t.MaxSizeGB
		list = append(list, e)
	}
	return list
}

func (d Disk) capabilities(t Tier, minSizeGB int64) []Capability {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	c := []Capability{
		{"MaxSizeGiB", n(t.MaxSizeGB)},
		{"MinSizeGiB", n(minSizeGB)},
		{"MaxValueOfMaxShares", strconv.Itoa(t.MaxShares)},
	}
	if d.Provisioned {
		most, least := d.PerformanceLimits(t.MaxSizeGB, 400000), d.PerformanceLimits(1, 0)
		return append(c,
			Capability{"MaxIOpsReadWrite", n(most.MaxIOPS)}, Capability{"MinIOpsReadWrite", n(least.MinIOPS)},
			Capability{"MaxBandwidthMBpsReadWrite", n(most.MaxMBps)}, Capability{"MinBandwidthMBpsReadWrite", n(least.MinMBps)},
			Capability{"MaxIopsReadOnly", n(most.MaxIOPS)}, Capability{"MinIopsReadOnly", n(least.MinIOPS)},
			Capability{"MaxBandwidthMBpsReadOnly", n(most.MaxMBps)}, Capability{"MinBandwidthMBpsReadOnly", n(least.MinMBps)})
	}
	c = append(c, Capability{"MaxIOps", n(t.IOPS)}, Capability{"MinIOps", n(t.IOPS)},
		Capability{"MaxBandwidthMBps", n(t.MBps)}, Capability{"MinBandwidthMBps", n(t.MBps)})
	if t.BurstIOPS > 0 {
		c = append(c, Capability{"MaxBurstIops", n(t.BurstIOPS)}, Capability{"MaxBurstBandwidthMBps", n(t.BurstMBps)},
			Capability{"BurstCreditBucketSizeInGiB", "600"})
	}
	return c
}

func snapshotEntries(l Location) []Entry {
	var list []Entry
	for _, name := range []string{"Standard_LRS", "Premium_LRS", "Standard_ZRS"} {
		if name == "Standard_ZRS" && len(l.Zones) == 0 {
			continue
		}
		e := newEntry(l, "snapshots", name)
		e.Tier, _, _ = strings.Cut(name, "_")
		list = append(list, e)
	}
	return list
}

func boolText(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
