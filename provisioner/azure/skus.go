package azure

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// skuAge is how long the list of a region is used.
const skuAge = 24 * time.Hour

// skuCache keeps the resource SKUs of regions. It implements provisioner.SKUs.
type skuCache struct {
	cloud  *Cloud
	usages *usageCache

	mu      sync.Mutex
	regions map[string]*region
}

// region is what a region offers. Its mutex makes those who come while it is read wait for that reading.
type region struct {
	reading chan struct{} // holds a token while nobody reads
	read    time.Time
	sizes   map[string]provisioner.VMLimits // by VM size in lower case
	tiers   map[string][]tier               // by disk SKU in lower case
}

// tier is one size range of a disk SKU.
type tier struct {
	minGiB, maxGiB int64
	maxShares      int32
	zones          []string
}

// VM implements provisioner.SKUs.
func (s *skuCache) VM(ctx context.Context, location, vmSize string) (provisioner.VMLimits, error) {
	r, err := s.region(ctx, location)
	if err != nil {
		return provisioner.VMLimits{}, err
	}
	limits, ok := r.sizes[strings.ToLower(vmSize)]
	if !ok {
		return provisioner.VMLimits{}, provisioner.Errorf(provisioner.NotFound, "VM size %q is not offered in %s", vmSize, location)
	}
	limits.UltraZones = slices.Clone(limits.UltraZones)
	return limits, nil
}

// known returns the number of data disks of a VM size without waiting, 0 if it is not at hand; then the list is being read when it returns.
// The list is large, and an attach shall not wait for it.
func (s *skuCache) known(location, vmSize string) int {
	r := s.entry(normalLocation(location))
	select {
	case <-r.reading:
	default:
		return 0
	}
	n, old := r.sizes[strings.ToLower(vmSize)].MaxDataDisks, r.read.IsZero() || s.cloud.clock.Since(r.read) >= skuAge
	r.reading <- struct{}{}
	if old {
		go func() {
			if _, err := s.region(s.cloud.ctx, location); err != nil {
				s.cloud.log.V(1).Info("the SKU list could not be read", "location", location, "reason", err.Error())
			}
		}()
	}
	return int(n)
}

// Disk implements provisioner.SKUs.
func (s *skuCache) Disk(ctx context.Context, location, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	r, err := s.region(ctx, location)
	if err != nil {
		return provisioner.DiskLimits{}, err
	}
	tiers := r.tiers[strings.ToLower(skuName)]
	if len(tiers) == 0 {
		return provisioner.DiskLimits{}, provisioner.Errorf(provisioner.NotFound, "disk SKU %q is not offered in %s", skuName, location)
	}
	limits := provisioner.DiskLimits{MinSizeBytes: tiers[0].minGiB * gib, Zones: tiers[0].zones}
	var fit *tier
	for _, t := range tiers {
		limits.MinSizeBytes = min(limits.MinSizeBytes, t.minGiB*gib)
		limits.MaxSizeBytes = max(limits.MaxSizeBytes, t.maxGiB*gib)
		if sizeBytes <= t.maxGiB*gib && (fit == nil || t.maxGiB < fit.maxGiB) {
			fit = &t
		}
	}
	limits.MinSizeBytes = max(limits.MinSizeBytes, gib)
	if fit == nil || sizeBytes < limits.MinSizeBytes {
		return provisioner.DiskLimits{}, provisioner.Errorf(provisioner.InvalidArgument, "a %s disk in %s has between %d and %d GiB, not %d bytes",
			skuName, location, limits.MinSizeBytes/gib, limits.MaxSizeBytes/gib, sizeBytes)
	}
	limits.MaxShares = fit.maxShares
	return limits, nil
}

// region returns what a region offers, read at most a day ago.
func (s *skuCache) region(ctx context.Context, location string) (*region, error) {
	r := s.entry(normalLocation(location))
	select {
	case <-r.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.reading <- struct{}{} }()
	if !r.read.IsZero() && s.cloud.clock.Since(r.read) < skuAge {
		return r.copy(), nil
	}
	sizes, tiers, err := s.list(ctx, normalLocation(location))
	if err != nil {
		return nil, err
	}
	r.read, r.sizes, r.tiers = s.cloud.clock.Now(), sizes, tiers
	return r.copy(), nil
}

// copy shares the maps, which are replaced and never changed.
func (r *region) copy() *region { return &region{sizes: r.sizes, tiers: r.tiers} }

func (s *skuCache) entry(location string) *region {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.regions == nil {
		s.regions = map[string]*region{}
	}
	r, ok := s.regions[location]
	if !ok {
		r = &region{reading: make(chan struct{}, 1)}
		r.reading <- struct{}{}
		s.regions[location] = r
	}
	return r
}

func (s *skuCache) list(ctx context.Context, location string) (map[string]provisioner.VMLimits, map[string][]tier, error) {
	in, err := s.cloud.in(s.cloud.subscription)
	if err != nil {
		return nil, nil, err
	}
	filter := "location eq '" + strings.ReplaceAll(location, "'", "''") + "'"
	sizes, tiers := map[string]provisioner.VMLimits{}, map[string][]tier{}
	for pager := in.skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, nil, translate(err, s.cloud.clock.Now(), "list the SKUs of %s", location)
		}
		for _, sku := range page.Value {
			if sku == nil {
				continue
			}
			name, has := strings.ToLower(value(sku.Name)), capabilitiesOf(sku.Capabilities)
			switch value(sku.ResourceType) {
			case "virtualMachines":
				// Restrictions are for new VMs; this one is there.
				if _, ok := has["MaxDataDiskCount"]; ok {
					sizes[name] = limitsOf(sku, location)
				}
			case "disks":
				if zones, offered := offerOf(sku, location); offered {
					tiers[name] = append(tiers[name], tier{
						minGiB: number(has, "MinSizeGiB"), maxGiB: number(has, "MaxSizeGiB"), maxShares: int32(max(number(has, "MaxValueOfMaxShares"), 1)), zones: zones,
					})
				}
			}
		}
	}
	return sizes, tiers, nil
}

func capabilitiesOf(list []*armcompute.ResourceSKUCapabilities) map[string]string {
	has := map[string]string{}
	for _, c := range list {
		if c != nil {
			has[value(c.Name)] = value(c.Value)
		}
	}
	return has
}

// number is a capability that is a whole number; 0 if it is none.
func number(has map[string]string, name string) int64 {
	n, err := strconv.ParseInt(has[name], 10, 32)
	if err != nil {
		return 0
	}
	return n
}

// limitsOf reads what a VM size can take.
func limitsOf(sku *armcompute.ResourceSKU, location string) provisioner.VMLimits {
	const ultra = "UltraSSDAvailable"
	has := capabilitiesOf(sku.Capabilities)
	limits := provisioner.VMLimits{
		MaxDataDisks: int32(number(has, "MaxDataDiskCount")), PremiumIO: strings.EqualFold(has["PremiumIO"], "True"),
		UltraRegional: strings.EqualFold(has[ultra], "True"),
	}
	for _, info := range sku.LocationInfo {
		if info == nil || normalLocation(value(info.Location)) != location {
			continue
		}
		for _, details := range info.ZoneDetails {
			if details != nil && strings.EqualFold(capabilitiesOf(details.Capabilities)[ultra], "True") {
				limits.UltraZones = append(limits.UltraZones, texts(details.Name)...)
			}
		}
	}
	return limits
}

// offerOf returns the zones in which a disk SKU is offered to the subscription; offered is false if it is not offered in the region.
func offerOf(sku *armcompute.ResourceSKU, location string) (zones []string, offered bool) {
	for _, info := range sku.LocationInfo {
		if info != nil && normalLocation(value(info.Location)) == location {
			zones = append(zones, texts(info.Zones)...)
		}
	}
	had := len(zones) > 0
	for _, r := range sku.Restrictions {
		if r == nil || r.Type == nil {
			continue
		}
		switch {
		case *r.Type == armcompute.ResourceSKURestrictionsTypeLocation:
			return nil, false
		case *r.Type == armcompute.ResourceSKURestrictionsTypeZone && r.RestrictionInfo != nil:
			not := texts(r.RestrictionInfo.Zones)
			zones = slices.DeleteFunc(zones, func(z string) bool { return slices.Contains(not, z) })
		}
	}
	return zones, !had || len(zones) > 0
}

func texts(list []*string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, value(s))
	}
	return out
}
