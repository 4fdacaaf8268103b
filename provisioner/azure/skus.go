package azure

import (
	"context"
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
	cloud *Cloud

	mu      sync.Mutex
	regions map[string]*region
}

// region is what a region offers. Its mutex makes those who come while it is read wait for that reading.
type region struct {
	reading chan struct{} // holds a token while nobody reads
	read    time.Time
	sizes   map[string]int32  // VM size in lower case -> data disks
	tiers   map[string][]tier // disk SKU in lower case
}

// tier is one size range of a disk SKU.
type tier struct {
	minGiB, maxGiB int64
	maxShares      int32
	zones          []string
}

// MaxDataDisks implements provisioner.SKUs.
func (s *skuCache) MaxDataDisks(ctx context.Context, location, vmSize string) (int32, error) {
	r, err := s.region(ctx, location)
	if err != nil {
		return 0, err
	}
	n, ok := r.sizes[strings.ToLower(vmSize)]
	if !ok {
		return 0, provisioner.Errorf(provisioner.NotFound, "VM size %q is not offered in %s", vmSize, location)
	}
	return n, nil
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
	n, old := r.sizes[strings.ToLower(vmSize)], r.read.IsZero() || s.cloud.clock.Since(r.read) >= skuAge
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

func (s *skuCache) list(ctx context.Context, location string) (map[string]int32, map[string][]tier, error) {
	in, err := s.cloud.in(s.cloud.subscription)
	if err != nil {
		return nil, nil, err
	}
	filter := "location eq '" + strings.ReplaceAll(location, "'", "''") + "'"
	sizes, tiers := map[string]int32{}, map[string][]tier{}
	for pager := in.skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, nil, translate(err, s.cloud.clock.Now(), "list the SKUs of %s", location)
		}
		for _, sku := range page.Value {
			name, has := strings.ToLower(value(sku.Name)), capabilitiesOf(sku)
			switch value(sku.ResourceType) {
			case "virtualMachines":
				if n, ok := has["MaxDataDiskCount"]; ok {
					sizes[name] = int32(n)
				}
			case "disks":
				tiers[name] = append(tiers[name], tier{
					minGiB: has["MinSizeGiB"], maxGiB: has["MaxSizeGiB"], maxShares: int32(max(has["MaxValueOfMaxShares"], 1)), zones: zonesOf(sku, location),
				})
			}
		}
	}
	return sizes, tiers, nil
}

// capabilitiesOf returns the capabilities that are whole numbers.
func capabilitiesOf(sku *armcompute.ResourceSKU) map[string]int64 {
	has := map[string]int64{}
	for _, c := range sku.Capabilities {
		if n, err := strconv.ParseInt(value(c.Value), 10, 32); err == nil {
			has[value(c.Name)] = n
		}
	}
	return has
}

func zonesOf(sku *armcompute.ResourceSKU, location string) []string {
	var zones []string
	for _, info := range sku.LocationInfo {
		if normalLocation(value(info.Location)) != location {
			continue
		}
		for _, z := range info.Zones {
			zones = append(zones, value(z))
		}
	}
	return zones
}
