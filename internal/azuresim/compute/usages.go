package compute

import (
	"sort"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Usage is one of the counters by which Azure limits what a subscription has in a location.
type Usage struct {
	Name      string // as in PremiumDiskCount
	Localized string
	Current   int64
	Limit     int64
}

// counter is a limit on the disks of some SKUs: on their number, or on their sizes in GiB together.
type counter struct {
	name, localized string
	limit           int64 // without a word of the operator: as Azure gives, and more of the sizes
	sku             string
	sizes           bool
}

// of is what a disk adds to the counter.
func (k counter) of(s DiskSpec) int64 {
	switch {
	case !strings.EqualFold(k.sku, s.SKU):
		return 0
	case k.sizes:
		return s.SizeGB
	default:
		return 1
	}
}

var diskCounters = []counter{
	{"StandardDiskCount", "Standard Storage Managed Disks", 50000, skus.StandardLRS, false},
	{"StandardSSDDiskCount", "StandardSSD Storage Managed Disks", 50000, skus.StandardSSDLRS, false},
	{"StandardSSDZRSDiskCount", "StandardSSD ZRS Storage Managed Disks", 50000, skus.StandardSSDZRS, false},
	{"PremiumDiskCount", "Premium Storage Managed Disks", 50000, skus.PremiumLRS, false},
	{"PremiumZRSDiskCount", "Premium ZRS Storage Managed Disks", 50000, skus.PremiumZRS, false},
	{"PremiumV2DiskCount", "Premium SSD v2 Managed Disks", 1000, skus.PremiumV2LRS, false},
	{"PremiumV2DiskSizeInGB", "Premium SSD v2 Total Size In GB", 1 << 20, skus.PremiumV2LRS, true},
	{"UltraSSDDiskCount", "Ultra SSD Managed Disks", 1000, skus.UltraSSDLRS, false},
	{"UltraSSDDiskSizeInGB", "Ultra SSD Total Size In GB", 1 << 20, skus.UltraSSDLRS, true},
}

// QuotaNames lists the counters that have a limit, sorted.
func QuotaNames() []string {
	names := make([]string, 0, len(diskCounters))
	for _, k := range diskCounters {
		names = append(names, k.name)
	}
	sort.Strings(names)
	return names
}

func counterByName(name string) (counter, bool) {
	for _, k := range diskCounters {
		if strings.EqualFold(k.name, name) {
			return k, true
		}
	}
	return counter{}, false
}

// SetQuota sets the limit of a counter, in every subscription and location; nil sets it back to
// what Azure gives every subscription.
func (c *Cloud) SetQuota(name string, limit *int64) error {
	k, ok := counterByName(name)
	if !ok {
		return armerror.New(404, "NotFound", "there is no counter '%s'; there are %s", name, strings.Join(QuotaNames(), ", "))
	}
	if limit != nil && *limit < 0 {
		return armerror.BadRequest("BadRequest", "the limit %d of counter '%s' must not be negative", *limit, k.name)
	}
	return c.Store.Update(func(tx *store.Tx) error {
		if limit == nil {
			return quotaTable.Delete(tx, k.name)
		}
		return quotaTable.Put(tx, k.name, limit)
	})
}

func (k counter) limitIn(tx *store.Tx) (int64, error) {
	changed, err := quotaTable.Get(tx, k.name)
	if err != nil || changed == nil {
		return k.limit, err
	}
	return *changed, nil
}

// Usages returns the counters of a subscription in a location.
func (c *Cloud) Usages(subscription, location string) ([]Usage, error) {
	known, ok := skus.LocationByName(location)
	if !ok {
		return nil, locationUnknown(location)
	}
	return view(c, func(tx *store.Tx) ([]Usage, error) {
		disks, err := disksIn(tx, subscription, known.Name, "")
		if err != nil {
			return nil, err
		}
		list := make([]Usage, 0, len(diskCounters)+1)
		for _, k := range diskCounters {
			limit, err := k.limitIn(tx)
			if err != nil {
				return nil, err
			}
			list = append(list, Usage{
				Name:      k.name,
				Localized: k.localized,
				Current:   k.sum(disks),
				Limit:     limit,
			})
		}
		snapshots, err := snapshotUsages(tx, subscription, known.Name)
		if err != nil {
			return nil, err
		}
		vms, err := vmTable.All(tx, "")
		if err != nil {
			return nil, err
		}
		machines := Usage{
			Name:      "virtualMachines",
			Localized: "Virtual Machines",
			Limit:     25000,
		}
		for _, vm := range vms {
			if strings.EqualFold(vm.Value.ID.Subscription, subscription) && vm.Value.Location == known.Name {
				machines.Current++
			}
		}
		sets := Usage{
			Name:      "availabilitySets",
			Localized: "Availability Sets",
			Limit:     2500,
		}
		return append(append(list, snapshots...), sets, machines), nil
	})
}

// snapshotUsages counts snapshots. Their limits are shown and not enforced.
func snapshotUsages(tx *store.Tx, subscription, location string) ([]Usage, error) {
	const limit = 75000
	list := []Usage{
		{Name: "StandardSnapshotCount", Localized: "Standard Snapshots", Limit: limit},
		{Name: "PremiumSnapshotCount", Localized: "Premium Snapshots", Limit: limit},
		{Name: "ZRSSnapshotCount", Localized: "ZRS Snapshots", Limit: limit},
	}
	at := map[string]int{"Standard_LRS": 0, "Premium_LRS": 1, "Standard_ZRS": 2}
	for r, err := range snapshotTable.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		s := r.Value
		if strings.EqualFold(s.ID.Subscription, subscription) && s.Location == location {
			list[at[s.SKU]].Current++
		}
	}
	return list, nil
}

func (k counter) sum(disks []DiskSpec) int64 {
	n := int64(0)
	for _, d := range disks {
		n += k.of(d)
	}
	return n
}

// disksIn returns the disks of a subscription in a location, but one.
func disksIn(tx *store.Tx, subscription, location, except string) ([]DiskSpec, error) {
	var list []DiskSpec
	for r, err := range diskTable.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		d := r.Value
		if r.Key != except && strings.EqualFold(d.ID.Subscription, subscription) && d.Location == location &&
			d.Provisioning != Failed {
			list = append(list, d.Spec)
		}
	}
	return list, nil
}

// checkQuota refuses a disk that the counters do not hold. before is what the disk was, nil for a
// new one: a change that asks for nothing more is accepted.
func checkQuota(tx *store.Tx, d *Disk, before *DiskSpec) error {
	disks, err := disksIn(tx, d.ID.Subscription, d.Location, d.ID.Key())
	if err != nil {
		return err
	}
	for _, k := range diskCounters {
		more := k.of(d.Spec)
		had := int64(0)
		if before != nil {
			had = k.of(*before)
		}
		if more <= had {
			continue
		}
		limit, err := k.limitIn(tx)
		if err != nil {
			return err
		}
		if used := k.sum(disks) + had; used+more-had > limit {
			return armerror.NotAllowed("Operation could not be completed as it results in exceeding approved %s quota. Additional details - Deployment Model: Resource Manager, "+
				"Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d, (Minimum) New Limit Required: %d. "+
				"Submit a request for a quota increase to go on.", k.name, d.Location, limit, used, more-had, used+more-had)
		}
	}
	return nil
}
