package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const gib = int64(1) << 30

// skuOffer is what a disk SKU allows. Shares by size follow Azure's table of tiers.
type skuOffer struct {
	maxGiB     int64
	zonal      bool // a disk may have a zone
	sharesFlat int32
	tiered     bool
}

func offers() map[string]skuOffer {
	return map[string]skuOffer{
		"Premium_LRS":     {maxGiB: 32767, zonal: true, tiered: true},
		"StandardSSD_LRS": {maxGiB: 32767, zonal: true, tiered: true},
		"Premium_ZRS":     {maxGiB: 32767, tiered: true},
		"StandardSSD_ZRS": {maxGiB: 32767, tiered: true},
		"Standard_LRS":    {maxGiB: 32767, zonal: true, sharesFlat: 1},
		"UltraSSD_LRS":    {maxGiB: 65536, zonal: true, sharesFlat: 15},
		"PremiumV2_LRS":   {maxGiB: 65536, zonal: true, sharesFlat: 15},
	}
}

func zones() []string { return []string{"1", "2", "3"} }

func (o skuOffer) maxShares(sizeBytes int64) int32 {
	switch {
	case !o.tiered:
		return o.sharesFlat
	case sizeBytes <= 512*gib:
		return 3
	case sizeBytes <= 4096*gib:
		return 5
	default:
		return 10
	}
}

// limits returns the limits of a disk, or why the disk cannot exist.
func limits(skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	offer, ok := offers()[skuName]
	if !ok {
		return provisioner.DiskLimits{}, provisioner.Errorf(provisioner.NotFound, "disk SKU %q is not offered", skuName)
	}
	if sizeBytes < gib || sizeBytes > offer.maxGiB*gib {
		return provisioner.DiskLimits{}, provisioner.Errorf(provisioner.InvalidArgument,
			"a %s disk has between 1 and %d GiB, not %d bytes", skuName, offer.maxGiB, sizeBytes)
	}
	return provisioner.DiskLimits{
		MinSizeBytes: gib,
		MaxSizeBytes: offer.maxGiB * gib,
		MaxShares:    offer.maxShares(sizeBytes),
		Zones:        zones(),
	}, nil
}

type skus struct{ p *platform }

// VM implements provisioner.SKUs. Every size but those of the series A takes Premium disks, and
// Ultra disks in every zone.
func (s skus) VM(ctx context.Context, _, vmSize string) (provisioner.VMLimits, error) {
	_, err := s.p.enter(ctx, SKUsVM, vmSize, "")
	if err != nil {
		return provisioner.VMLimits{}, s.p.leave(SKUsVM, vmSize, "", err)
	}
	n, ok := s.p.maxDataDisks(vmSize)
	if !ok {
		return provisioner.VMLimits{}, s.p.leave(SKUsVM, vmSize, "",
			provisioner.Errorf(provisioner.NotFound, "VM size %q is not offered", vmSize))
	}
	found := provisioner.VMLimits{MaxDataDisks: n, UncachedIOPS: 6400, UncachedBytesPerSecond: 145_000_000}
	if !strings.HasPrefix(strings.ToLower(vmSize), "standard_a") {
		found.PremiumIO, found.UltraZones = true, zones()
	}
	return found, s.p.leave(SKUsVM, vmSize, "", nil)
}

// Disk implements provisioner.SKUs.
func (s skus) Disk(ctx context.Context, _, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	_, err := s.p.enter(ctx, SKUsDisk, skuName, "")
	if err != nil {
		return provisioner.DiskLimits{}, s.p.leave(SKUsDisk, skuName, "", err)
	}
	found, err := limits(skuName, sizeBytes)
	if err == nil {
		if found.Zones = s.p.offeredIn(skuName); len(found.Zones) == 0 {
			found, err = provisioner.DiskLimits{}, provisioner.Errorf(provisioner.NotFound, "disk SKU %q is not offered", skuName)
		}
	}
	return found, s.p.leave(SKUsDisk, skuName, "", err)
}

// Quota implements provisioner.SKUs.
func (s skus) Quota(ctx context.Context, _, location, skuName string) (provisioner.DiskQuota, error) {
	return read(ctx, s.p, SKUsQuota, skuName, func() (provisioner.DiskQuota, error) {
		if _, ok := offers()[skuName]; !ok {
			return provisioner.DiskQuota{}, provisioner.Errorf(provisioner.NotFound, "disk SKU %q is not offered", skuName)
		}
		return s.p.quotaLeft(location, skuName), nil
	})
}

// SetQuota limits the number and the total size of the disks of a SKU in a region;
// provisioner.Unlimited for no limit.
func (c *Cloud) SetQuota(skuName string, limit provisioner.DiskQuota) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.quotas[skuName] = limit
}

// Withdraw ends the offer of a disk SKU in zones, for new disks; a SKU that is offered in none is
// not offered at all.
func (c *Cloud) Withdraw(skuName string, zones ...string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.withdrawn[skuName] = append(c.p.withdrawn[skuName], zones...)
}

func (p *platform) offeredIn(skuName string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offeredInLocked(skuName)
}

func (p *platform) offeredInLocked(skuName string) []string {
	return slices.DeleteFunc(zones(), func(z string) bool { return slices.Contains(p.withdrawn[skuName], z) })
}

// quotaLeft is what may still be created in a region. The caller holds mu.
func (p *platform) quotaLeft(location, skuName string) provisioner.DiskQuota {
	left := provisioner.DiskQuota{Disks: provisioner.Unlimited, SizeBytes: provisioner.Unlimited}
	if limit, ok := p.quotas[skuName]; ok {
		left = limit
	}
	if n := p.options.MaxDisks; n > 0 && left.Disks == provisioner.Unlimited {
		left.Disks = max(0, int64(n-len(p.disks)))
	}
	limit, ok := p.quotas[skuName]
	for _, d := range p.disks {
		if !ok || d.SKUName != skuName || !strings.EqualFold(d.Location, location) {
			continue
		}
		if limit.Disks != provisioner.Unlimited {
			left.Disks = max(0, left.Disks-1)
		}
		if limit.SizeBytes != provisioner.Unlimited {
			left.SizeBytes = max(0, left.SizeBytes-d.SizeBytes)
		}
	}
	return left
}

// checkQuota says why a new disk cannot be had here and now. The caller holds mu.
func (p *platform) checkQuota(spec provisioner.DiskSpec) error {
	if offered := p.offeredInLocked(spec.SKUName); len(offered) == 0 ||
		(spec.Zone != "" && !slices.Contains(offered, spec.Zone)) {
		return provisioner.Errorf(provisioner.InsufficientCapacity, "disk SKU %q is not offered in zone %q", spec.SKUName,
			spec.Zone)
	}
	left := p.quotaLeft(spec.Location, spec.SKUName)
	if left.Disks == 0 || (left.SizeBytes != provisioner.Unlimited && left.SizeBytes < spec.SizeBytes) {
		return provisioner.Errorf(provisioner.InsufficientCapacity,
			"the quota of %s disks is used up: %d disks and %d bytes are left", spec.SKUName, left.Disks, left.SizeBytes)
	}
	return nil
}

func (p *platform) maxDataDisks(vmSize string) (int32, bool) {
	for size, n := range p.options.Sizes {
		if strings.EqualFold(size, vmSize) {
			return n, true
		}
	}
	return 0, false
}

// checkSpec says why the platform will never make the disk.
func checkSpec(spec provisioner.DiskSpec) error {
	found, err := limits(spec.SKUName, spec.SizeBytes)
	refuse := func(format string, args ...any) error {
		return provisioner.Errorf(provisioner.InvalidArgument, format, args...)
	}
	switch {
	case provisioner.KindOf(err) == provisioner.NotFound:
		return refuse("disk SKU %q is not offered", spec.SKUName)
	case err != nil:
		return err
	case spec.SizeBytes%gib != 0:
		return refuse("size %d is not a multiple of 1 GiB", spec.SizeBytes)
	case spec.MaxShares < 1 || spec.MaxShares > found.MaxShares:
		return refuse("maxShares %d: a %s disk of this size has between 1 and %d", spec.MaxShares, spec.SKUName, found.MaxShares)
	case spec.Location == "":
		return refuse("a disk needs a location")
	case spec.Zone != "" && !offers()[spec.SKUName].zonal:
		return refuse("a %s disk has no zone", spec.SKUName)
	case spec.Zone != "" && !slices.Contains(zones(), spec.Zone):
		return refuse("zone %q does not exist", spec.Zone)
	}
	return nil
}
