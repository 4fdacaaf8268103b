package compute

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

func outOfRange(parameter string, value, lo, hi int64) *armerror.Error {
	return armerror.InvalidParameter(parameter,
		"The value '%d' of parameter '%s' is out of range. The value must be between '%d' and '%d', inclusive.", value, parameter,
		lo, hi)
}

func missing(parameter string) *armerror.Error {
	return armerror.InvalidParameter(parameter, "Required parameter '%s' is missing (null).", parameter)
}

// checkDisk judges the requested state of a disk, without regard to its present state.
func checkDisk(d *Disk) error {
	sku, ok := skus.DiskByName(d.Spec.SKU)
	if !ok {
		return armerror.InvalidParameter("sku.name",
			"The value '%s' of parameter 'sku.name' is invalid. Supported values are %s.",
			d.Spec.SKU, strings.Join(skus.DiskNames(), ", "))
	}
	for _, rule := range []func(*Disk, skus.Disk) error{checkSize, checkDiskZones, checkShares, checkTier, checkBursting,
		checkPerformance, checkNetworkAccess} {
		if err := rule(d, sku); err != nil {
			return err
		}
	}
	return nil
}

func checkSize(d *Disk, sku skus.Disk) error {
	least := int64(1)
	if sku.Name == skus.UltraSSDLRS {
		least = 4
	}
	if d.Spec.SizeGB < least || d.Spec.SizeGB > sku.MaxSizeGB() {
		return outOfRange("disk.diskSizeGB", d.Spec.SizeGB, least, sku.MaxSizeGB())
	}
	return nil
}

func checkDiskZones(d *Disk, sku skus.Disk) error {
	location, ok := skus.LocationByName(d.Location)
	if !ok {
		return locationUnknown(d.Location)
	}
	switch {
	case len(d.Zones) > 1:
		return armerror.BadRequest("InvalidAvailabilityZone", "A disk can be in one availability zone only; %d were given.",
			len(d.Zones))
	case len(d.Zones) == 1 && sku.ZoneRedundant:
		return armerror.InvalidParameter("zones", "A disk of SKU '%s' is zone redundant, so that zones must not be given.",
			sku.Name)
	case len(d.Zones) == 1 && !slices.Contains(location.Zones, d.Zones[0]):
		return armerror.BadRequest("InvalidAvailabilityZone",
			"The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '%s'.",
			d.Zones[0], d.ID, location.Name, strings.Join(location.Zones, ","))
	case len(d.Zones) == 1 && !slices.Contains(location.ZonesOf(sku.Name), d.Zones[0]):
		return armerror.New(409, "SkuNotAvailable",
			"The requested disk SKU '%s' for resource '%s' is currently not available in location '%s' zones '%s'. "+
				"Please try another zone or SKU.", sku.Name, d.ID, location.Name, d.Zones[0])
	case len(d.Zones) == 0 && location.NeedsZone(sku):
		return armerror.InvalidParameter("zones", "A disk of SKU '%s' must be in an availability zone in location '%s'.",
			sku.Name, location.Name)
	case sku.ZoneRedundant && len(location.Zones) == 0:
		return armerror.InvalidParameter("sku.name", "SKU '%s' is not available in location '%s'.", sku.Name, location.Name)
	}
	return nil
}

func checkShares(d *Disk, sku skus.Disk) error {
	limit := sku.TierFor(d.Spec.SizeGB).MaxShares
	if d.Spec.MaxShares < 1 || d.Spec.MaxShares > limit {
		return outOfRange("disk.maxShares", int64(d.Spec.MaxShares), 1, int64(limit))
	}
	return nil
}

func checkTier(d *Disk, sku skus.Disk) error {
	if d.Spec.Tier == "" {
		return nil
	}
	if sku.ResourceTier != "Premium" || sku.Provisioned {
		return armerror.InvalidParameter("disk.tier", "Performance tier cannot be set for a disk of SKU '%s'.", sku.Name)
	}
	rank, ok := sku.TierByName(d.Spec.Tier)
	if !ok {
		return armerror.InvalidParameter("disk.tier", "The value '%s' of parameter 'disk.tier' is invalid.", d.Spec.Tier)
	}
	if own, _ := sku.TierByName(sku.TierFor(d.Spec.SizeGB).Name); rank < own {
		return armerror.InvalidParameter("disk.tier",
			"Performance tier '%s' is below the baseline tier '%s' of a disk of %d GiB.",
			d.Spec.Tier, sku.Tiers[own].Name, d.Spec.SizeGB)
	}
	return nil
}

func checkBursting(d *Disk, sku skus.Disk) error {
	switch {
	case !d.Spec.Bursting:
		return nil
	case !sku.Burstable:
		return armerror.InvalidParameter("disk.burstingEnabled", "On-demand bursting is not supported for a disk of SKU '%s'.",
			sku.Name)
	case d.Spec.SizeGB <= 512:
		return armerror.InvalidParameter("disk.burstingEnabled",
			"On-demand bursting is supported for disks of more than 512 GiB; this one has %d GiB.", d.Spec.SizeGB)
	case d.Spec.MaxShares > 1:
		return armerror.InvalidParameter("disk.burstingEnabled", "On-demand bursting is not supported for a shared disk.")
	}
	return nil
}

func checkPerformance(d *Disk, sku skus.Disk) error {
	s := d.Spec
	if !sku.Provisioned {
		if s.IOPS+s.MBps+s.IOPSReadOnly+s.MBpsReadOnly > 0 {
			return armerror.InvalidParameter("disk.diskIOPSReadWrite",
				"IOPS and throughput can be set for SKUs %s and %s only, not for '%s'.",
				skus.UltraSSDLRS, skus.PremiumV2LRS, sku.Name)
		}
		return nil
	}
	l := sku.PerformanceLimits(s.SizeGB, s.IOPS)
	switch {
	case s.IOPS < l.MinIOPS || s.IOPS > l.MaxIOPS:
		return outOfRange("disk.diskIOPSReadWrite", s.IOPS, l.MinIOPS, l.MaxIOPS)
	case s.MBps < l.MinMBps || s.MBps > l.MaxMBps:
		return outOfRange("disk.diskMBpsReadWrite", s.MBps, l.MinMBps, l.MaxMBps)
	case s.IOPSReadOnly > 0 && s.MaxShares < 2:
		return armerror.InvalidParameter("disk.diskIOPSReadOnly", "Read-only IOPS can be set for shared disks only.")
	case s.MBpsReadOnly > 0 && s.MaxShares < 2:
		return armerror.InvalidParameter("disk.diskMBpsReadOnly", "Read-only throughput can be set for shared disks only.")
	}
	return nil
}

// defaultPerformance fills in what a provisioned SKU gives when nothing is asked for.
func defaultPerformance(s *DiskSpec) {
	sku, ok := skus.DiskByName(s.SKU)
	if !ok || !sku.Provisioned {
		return
	}
	if s.IOPS == 0 {
		l := sku.PerformanceLimits(s.SizeGB, 0)
		s.IOPS = min(max(l.MinIOPS, 500), l.MaxIOPS)
		if sku.Name == skus.PremiumV2LRS {
			s.IOPS = l.MinIOPS
		}
	}
	if s.MBps == 0 {
		l := sku.PerformanceLimits(s.SizeGB, s.IOPS)
		s.MBps = min(max(l.MinMBps, 100), l.MaxMBps)
	}
}
