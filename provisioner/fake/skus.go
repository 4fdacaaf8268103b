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

// limits returns what a disk may have, or why there is no such disk.
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
		MinSizeBytes: gib, MaxSizeBytes: offer.maxGiB * gib,
		MaxShares: offer.maxShares(sizeBytes), Zones: zones(),
	}, nil
}

type skus struct{ p *platform }

// MaxDataDisks implements provisioner.SKUs.
func (s skus) MaxDataDisks(ctx context.Context, _, vmSize string) (int32, error) {
	_, err := s.p.enter(ctx, SKUsMaxDataDisks, vmSize, "")
	if err != nil {
		return 0, s.p.leave(SKUsMaxDataDisks, vmSize, "", err)
	}
	n, ok := s.p.maxDataDisks(vmSize)
	if !ok {
		err = provisioner.Errorf(provisioner.NotFound, "VM size %q is not offered", vmSize)
	}
	return n, s.p.leave(SKUsMaxDataDisks, vmSize, "", err)
}

// Disk implements provisioner.SKUs.
func (s skus) Disk(ctx context.Context, _, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	_, err := s.p.enter(ctx, SKUsDisk, skuName, "")
	if err != nil {
		return provisioner.DiskLimits{}, s.p.leave(SKUsDisk, skuName, "", err)
	}
	found, err := limits(skuName, sizeBytes)
	return found, s.p.leave(SKUsDisk, skuName, "", err)
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
