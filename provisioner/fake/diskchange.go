package fake

import (
	"reflect"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func (p *platform) updateDisk(id string, change provisioner.DiskChange, plan effect) (*operation, error) {
	if _, err := parseKind(id, kindDisk); err != nil {
		return nil, err
	}
	found, ok := p.disks[key(id)]
	if !ok {
		return nil, noDisk(id)
	}
	want := found.Disk
	want.SizeBytes, want.DiskSettings = max(found.SizeBytes, change.SizeBytes), change.Apply(found.DiskSettings)
	if err := checkSpec(provisioner.DiskSpec{
		SizeBytes:             want.SizeBytes,
		MaxShares:             want.MaxShares,
		Location:              want.Location,
		Zone:                  want.Zone,
		DiskSettings:          want.DiskSettings,
		ImmutableDiskSettings: want.ImmutableDiskSettings,
	}); err != nil {
		return nil, err
	}
	if err := checkTuning(want); err != nil {
		return nil, err
	}
	if found.op != nil {
		return nil, provisioner.Errorf(provisioner.Conflict, "another operation on disk %s is in flight", id)
	}
	if want.SizeBytes == found.SizeBytes && reflect.DeepEqual(want.DiskSettings, found.DiskSettings) {
		return p.ended(), nil
	}
	if err := checkChange(found.Disk, want, len(p.holders(id)) > 0); err != nil {
		return nil, err
	}
	op := p.begin(p.options.Latency.UpdateDisk, plan, func() error {
		if want.SKUName != found.SKUName && provisioned(want.SKUName) {
			found.conversion = p.beginCopy()
		}
		found.SizeBytes, found.DiskSettings, found.op = want.SizeBytes, want.DiskSettings, nil
		return nil
	}, func() { found.op = nil })
	if !op.ended {
		found.op = op
	}
	return op, nil
}

// checkTuning says why no disk can be as d is meant to be.
func checkTuning(d provisioner.Disk) error {
	refuse := func(format string, args ...any) error {
		return provisioner.Errorf(provisioner.InvalidArgument, format, args...)
	}
	premium := d.SKUName == "Premium_LRS" || d.SKUName == "Premium_ZRS"
	switch {
	case !provisioned(d.SKUName) && (d.DiskIOPSReadWrite != nil || d.DiskMBpsReadWrite != nil || d.DiskIOPSReadOnly != nil ||
		d.DiskMBpsReadOnly != nil):
		return refuse("IOPS and throughput of a %s disk cannot be chosen", d.SKUName)
	case d.DiskIOPSReadWrite != nil && *d.DiskIOPSReadWrite > 400000:
		return refuse("a disk has at most 400000 IOPS, not %d", *d.DiskIOPSReadWrite)
	case d.Tier != "" && !premium:
		return refuse("the tier of a %s disk cannot be chosen", d.SKUName)
	case d.BurstingEnabled && (!premium || d.SizeBytes <= 512*gib || d.MaxShares > 1):
		return refuse("a %s disk of %d GiB with %d shares does not burst on demand", d.SKUName, d.SizeBytes/gib, d.MaxShares)
	}
	return nil
}

// checkChange says why the platform does not go from one disk to another, or not now.
func checkChange(from, to provisioner.Disk, attached bool) error {
	grows, converts := to.SizeBytes > from.SizeBytes, to.SKUName != from.SKUName
	refuse := func(format string, args ...any) error {
		return provisioner.Errorf(provisioner.FailedPrecondition, format, args...)
	}
	redundant := func(sku string) bool { return strings.HasSuffix(sku, "_ZRS") }
	switch {
	case converts && (provisioned(from.SKUName) || to.SKUName == "UltraSSD_LRS" ||
		redundant(from.SKUName) != redundant(to.SKUName)):
		return provisioner.Errorf(provisioner.InvalidArgument, "a %s disk cannot become %s", from.SKUName, to.SKUName)
	case attached && from.MaxShares > 1 && (grows || converts || to.Tier != from.Tier):
		return refuse("size, SKU and tier of shared disk %s cannot change while it is attached", from.ID)
	case attached && grows && !provisioned(from.SKUName) && from.SizeBytes <= 4096*gib && to.SizeBytes > 4096*gib:
		return refuse("disk %s cannot grow beyond 4 TiB while it is attached", from.ID)
	case attached && converts && to.SKUName != "PremiumV2_LRS":
		return refuse("the SKU of disk %s cannot change while it is attached", from.ID)
	case attached && to.BurstingEnabled && !from.BurstingEnabled:
		return refuse("bursting of disk %s cannot be turned on while it is attached", from.ID)
	}
	return nil
}
