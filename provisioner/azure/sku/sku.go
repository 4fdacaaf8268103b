// Package sku answers what a region of Azure offers and what is left of the subscription's quotas there. It keeps Azure's answers for a day and a minute.
package sku

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
)

const gib = int64(1) << 30

// skuAge is how long the list of a region is used.
const skuAge = 24 * time.Hour

// Options of New.
type Options struct {
	Client *client.Client
	Clock  *pacing.Clock
	// SubscriptionID whose SKU list is read.
	SubscriptionID string
	Logger         logr.Logger
}

// Catalog keeps the resource SKUs and the usage counters of regions. It implements provisioner.SKUs.
type Catalog struct {
	Options

	ctx    context.Context // of readings without a caller
	usages usageCache

	mu      sync.Mutex
	regions map[string]*region
}

// region is what a region offers.
type region struct {
	reading chan struct{} // holds a token unless the list is being read; callers wait for it
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

// New makes a Catalog. Readings without a caller end with ctx.
func New(ctx context.Context, options Options) *Catalog {
	return &Catalog{Options: options, ctx: ctx, regions: map[string]*region{}, usages: usageCache{options: options, regions: map[string]*usage{}}}
}

// VM implements provisioner.SKUs.
func (c *Catalog) VM(ctx context.Context, location, vmSize string) (provisioner.VMLimits, error) {
	r, err := c.region(ctx, location)
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

// KnownDataDisks returns the number of data disks of a VM size without waiting; 0 if the list has not been read. Then it starts to read the list, which is
// large, so that attaches do not wait for it.
func (c *Catalog) KnownDataDisks(location, vmSize string) int {
	r := c.entry(client.NormalLocation(location))
	select {
	case <-r.reading:
	default:
		return 0
	}
	n, old := r.sizes[strings.ToLower(vmSize)].MaxDataDisks, r.read.IsZero() || c.Clock.Since(r.read) >= skuAge
	r.reading <- struct{}{}
	if old {
		go func() {
			if _, err := c.region(c.ctx, location); err != nil {
				c.Logger.V(1).Info("cannot read the SKU list", "location", location, "reason", err.Error())
			}
		}()
	}
	return int(n)
}

// Disk implements provisioner.SKUs.
func (c *Catalog) Disk(ctx context.Context, location, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	r, err := c.region(ctx, location)
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
		return provisioner.DiskLimits{}, provisioner.Errorf(provisioner.InvalidArgument, "a %s disk in %s must have between %d and %d GiB, and %d bytes were requested",
			skuName, location, limits.MinSizeBytes/gib, limits.MaxSizeBytes/gib, sizeBytes)
	}
	limits.MaxShares = fit.maxShares
	return limits, nil
}

// region returns what a region offers, read at most a day ago.
func (c *Catalog) region(ctx context.Context, location string) (*region, error) {
	r := c.entry(client.NormalLocation(location))
	select {
	case <-r.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.reading <- struct{}{} }()
	if !r.read.IsZero() && c.Clock.Since(r.read) < skuAge {
		return r.copy(), nil
	}
	sizes, tiers, err := c.list(ctx, client.NormalLocation(location))
	if err != nil {
		return nil, err
	}
	r.read, r.sizes, r.tiers = c.Clock.Now(), sizes, tiers
	return r.copy(), nil
}

// copy shares the maps, which are replaced but not changed.
func (r *region) copy() *region { return &region{sizes: r.sizes, tiers: r.tiers} }

func (c *Catalog) entry(location string) *region {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.regions[location]
	if !ok {
		r = &region{reading: make(chan struct{}, 1)}
		r.reading <- struct{}{}
		c.regions[location] = r
	}
	return r
}

func (c *Catalog) list(ctx context.Context, location string) (map[string]provisioner.VMLimits, map[string][]tier, error) {
	in, err := c.Client.In(c.SubscriptionID)
	if err != nil {
		return nil, nil, err
	}
	filter := "location eq '" + strings.ReplaceAll(location, "'", "''") + "'"
	sizes, tiers := map[string]provisioner.VMLimits{}, map[string][]tier{}
	for pager := in.SKUs.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, nil, c.Client.Translate(err, "list the SKUs of %s", location)
		}
		for _, sku := range page.Value {
			if sku == nil {
				continue
			}
			name, has := strings.ToLower(client.Value(sku.Name)), capabilitiesOf(sku.Capabilities)
			switch client.Value(sku.ResourceType) {
			case "virtualMachines":
				// Restrictions hold for new VMs only.
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
	for _, capability := range list {
		if capability != nil {
			has[client.Value(capability.Name)] = client.Value(capability.Value)
		}
	}
	return has
}

// number is a capability as a whole number; 0 if it is no number.
func number(has map[string]string, name string) int64 {
	n, err := strconv.ParseInt(has[name], 10, 32)
	if err != nil {
		return 0
	}
	return n
}

// limitsOf reads the limits of a VM size.
func limitsOf(sku *armcompute.ResourceSKU, location string) provisioner.VMLimits {
	const ultra = "UltraSSDAvailable"
	has := capabilitiesOf(sku.Capabilities)
	limits := provisioner.VMLimits{
		MaxDataDisks: int32(number(has, "MaxDataDiskCount")), PremiumIO: strings.EqualFold(has["PremiumIO"], "True"),
		UltraRegional: strings.EqualFold(has[ultra], "True"),
	}
	for _, info := range sku.LocationInfo {
		if info == nil || client.NormalLocation(client.Value(info.Location)) != location {
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
		if info != nil && client.NormalLocation(client.Value(info.Location)) == location {
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
		out = append(out, client.Value(s))
	}
	return out
}
