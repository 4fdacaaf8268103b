// Package sku reads the offers of a region of Azure and the remaining quotas of the subscription
// there. It keeps Azure's answers for a day and a minute.
package sku

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
)

const gib = int64(1) << 30

// skuAge is how long the list of a region is used.
const skuAge = 24 * time.Hour

// Catalog keeps the resource SKUs and the usage counters of regions. It implements
// provisioner.SKUs.
type Catalog struct {
	ctx    context.Context // of readings without a caller
	client *client.Client
	offers cache[offers]
	left   cache[map[string]int64] // of the usage counters by name in lower case; by subscription and region
}

// New makes a Catalog. Readings without a caller end with ctx.
func New(ctx context.Context, c *client.Client) *Catalog { return &Catalog{ctx: ctx, client: c} }

// offers is what a region offers.
type offers struct {
	sizes map[string]provisioner.VMLimits // by VM size in lower case
	tiers map[string][]tier               // by disk SKU in lower case
}

// tier is one size range of a disk SKU.
type tier struct {
	minGiB, maxGiB int64
	maxShares      int32
	zones          []string
}

// VM implements provisioner.SKUs.
func (c *Catalog) VM(ctx context.Context, location, vmSize string) (provisioner.VMLimits, error) {
	r, err := c.region(ctx, location)
	if err != nil {
		return provisioner.VMLimits{}, err
	}
	limits, ok := r.sizes[strings.ToLower(vmSize)]
	if !ok {
		return provisioner.VMLimits{}, provisioner.Errorf(provisioner.NotFound, "VM size %q is not offered in %s", vmSize,
			location)
	}
	limits.UltraZones = slices.Clone(limits.UltraZones)
	return limits, nil
}

// KnownDataDisks returns the number of data disks of a VM size without waiting; 0 if the list has
// not been read. Then it starts to read the list, which is large, so that attaches do not wait for
// it.
func (c *Catalog) KnownDataDisks(location, vmSize string) int {
	known, recent := c.offers.known(client.NormalLocation(location), c.client.Clock.Now().Add(-skuAge))
	if !recent {
		go func() {
			if _, err := c.region(c.ctx, location); err != nil {
				c.client.Logger.V(1).Info("cannot read the SKU list", "location", location, "reason", err.Error())
			}
		}()
	}
	return int(known.sizes[strings.ToLower(vmSize)].MaxDataDisks)
}

// Disk implements provisioner.SKUs.
func (c *Catalog) Disk(ctx context.Context, location, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	r, err := c.region(ctx, location)
	if err != nil {
		return provisioner.DiskLimits{}, err
	}
	tiers := r.tiers[strings.ToLower(skuName)]
	if len(tiers) == 0 {
		return provisioner.DiskLimits{},
			provisioner.Errorf(provisioner.NotFound, "disk SKU %q is not offered in %s", skuName, location)
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
		return provisioner.DiskLimits{},
			provisioner.Errorf(provisioner.InvalidArgument,
				"a %s disk in %s must have between %d and %d GiB, and %d bytes were requested",
				skuName, location, limits.MinSizeBytes/gib, limits.MaxSizeBytes/gib, sizeBytes)
	}
	limits.MaxShares = fit.maxShares
	return limits, nil
}

// region returns what a region offers, read at most a day ago.
func (c *Catalog) region(ctx context.Context, location string) (offers, error) {
	location = client.NormalLocation(location)
	now := c.client.Clock.Now
	valid := func(a *answer[offers]) bool { return a.err == nil && now().Sub(a.at) < skuAge }
	return c.offers.get(ctx, location, now, valid, func() (offers, error) { return c.list(ctx, location) })
}

func (c *Catalog) list(ctx context.Context, location string) (offers, error) {
	all := offers{sizes: map[string]provisioner.VMLimits{}, tiers: map[string][]tier{}}
	in, err := c.client.In(c.client.SubscriptionID)
	if err != nil {
		return all, err
	}
	filter := "location eq '" + strings.ReplaceAll(location, "'", "''") + "'"
	pager := in.SKUs.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: &filter})
	err = client.Each(
		ctx,
		pager,
		func(page armcompute.ResourceSKUsClientListResponse) []*armcompute.ResourceSKU { return page.Value },
		func(sku *armcompute.ResourceSKU) { all.add(sku, location) },
	)
	return all, c.client.Translate(err, "list the SKUs of %s", location)
}

// add adds a SKU, unless it is of other regions only. Azure filters the list; an answer that is not
// filtered must not count for the region.
func (o offers) add(sku *armcompute.ResourceSKU, location string) {
	if !names(sku.Locations, location) {
		return
	}
	name, has := strings.ToLower(client.Value(sku.Name)), capabilitiesOf(sku.Capabilities)
	switch client.Value(sku.ResourceType) {
	case "virtualMachines":
		// Restrictions hold for new VMs only.
		if _, ok := has["MaxDataDiskCount"]; ok {
			o.sizes[name] = limitsOf(sku, location)
		}
	case "disks":
		if zones, offered := offerOf(sku, location); offered {
			o.tiers[name] = append(o.tiers[name], tier{
				minGiB:    number(has, "MinSizeGiB"),
				maxGiB:    number(has, "MaxSizeGiB"),
				maxShares: int32(max(number(has, "MaxValueOfMaxShares"), 1)),
				zones:     zones,
			})
		}
	}
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

// number is a capability as a whole number of 32 bits; 0 if it is none.
func number(has map[string]string, name string) int64 { return numberOf(has, name, 32) }

func numberOf(has map[string]string, name string, bits int) int64 {
	n, err := strconv.ParseInt(has[name], 10, bits)
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
		MaxDataDisks:  int32(number(has, "MaxDataDiskCount")),
		PremiumIO:     strings.EqualFold(has["PremiumIO"], "True"),
		UltraRegional: strings.EqualFold(has[ultra], "True"),

		UncachedIOPS:           max(number(has, "UncachedDiskIOPS"), 0),
		UncachedBytesPerSecond: max(numberOf(has, "UncachedDiskBytesPerSecond", 64), 0),
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

// offerOf returns the zones in which a disk SKU is offered to the subscription; offered is false if
// it is not offered in the region.
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
		var of []*string
		if r.RestrictionInfo != nil {
			of = r.RestrictionInfo.Locations
		}
		switch {
		case !names(of, location): // it holds in other regions
		case *r.Type == armcompute.ResourceSKURestrictionsTypeLocation:
			return nil, false
		case *r.Type == armcompute.ResourceSKURestrictionsTypeZone && r.RestrictionInfo != nil:
			not := texts(r.RestrictionInfo.Zones)
			zones = slices.DeleteFunc(zones, func(z string) bool { return slices.Contains(not, z) })
		}
	}
	return zones, !had || len(zones) > 0
}

// names reports whether a list of regions has the region. A list without regions is about all of
// them.
func names(locations []*string, location string) bool {
	return len(locations) == 0 || slices.ContainsFunc(locations, func(l *string) bool {
		return client.NormalLocation(client.Value(l)) == location
	})
}

func texts(list []*string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, client.Value(s))
	}
	return out
}
