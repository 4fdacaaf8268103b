package fake

import (
	"maps"
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
	want := changed(found.Disk, change)
	if err := checkSpec(provisioner.DiskSpec{
		SKUName: want.SKUName, SizeBytes: want.SizeBytes, MaxShares: want.MaxShares, Location: want.Location, Zone: want.Zone, DiskTuning: want.DiskTuning,
	}); err != nil {
		return nil, err
	}
	if err := checkTuning(want); err != nil {
		return nil, err
	}
	if found.op != nil {
		return nil, provisioner.Errorf(provisioner.Conflict, "another operation on disk %s is in flight", id)
	}
	if same(found.Disk, want) {
		return p.ended(), nil
	}
	if err := checkChange(found.Disk, want, len(p.holders(id)) > 0); err != nil {
		return nil, err
	}
	op := p.begin(p.options.Latency.UpdateDisk, plan, func() error {
		if want.SKUName != found.SKUName && provisioned(want.SKUName) {
			found.conversion = p.beginCopy()
		}
		found.SizeBytes, found.SKUName, found.Tags, found.DiskTuning, found.op = want.SizeBytes, want.SKUName, want.Tags, want.DiskTuning, nil
		return nil
	}, func() { found.op = nil })
	if !op.ended {
		found.op = op
	}
	return op, nil
}

// changed is the disk with a change laid over it.
func changed(d provisioner.Disk, c provisioner.DiskChange) provisioner.Disk {
	if c.SizeBytes != nil {
		d.SizeBytes = max(d.SizeBytes, *c.SizeBytes)
	}
	for to, from := range map[*string]*string{
		&d.SKUName: c.SKUName, &d.Tier: c.Tier, &d.NetworkAccessPolicy: c.NetworkAccessPolicy, &d.PublicNetworkAccess: c.PublicNetworkAccess, &d.DiskAccessID: c.DiskAccessID,
	} {
		if from != nil {
			*to = *from
		}
	}
	for to, from := range map[**int64]*int64{
		&d.IOPSReadWrite: c.IOPSReadWrite, &d.MBpsReadWrite: c.MBpsReadWrite, &d.IOPSReadOnly: c.IOPSReadOnly, &d.MBpsReadOnly: c.MBpsReadOnly,
	} {
		if from != nil {
			n := *from
			*to = &n
		}
	}
	if c.Bursting != nil {
		on := *c.Bursting
		d.Bursting = &on
	}
	if d.Tags = maps.Clone(d.Tags); c.Tags != nil {
		d.Tags = maps.Clone(c.Tags)
	}
	return d
}

func same(a, b provisioner.Disk) bool {
	number := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	return a.SizeBytes == b.SizeBytes && a.SKUName == b.SKUName && maps.Equal(a.Tags, b.Tags) && a.Tier == b.Tier && on(a.Bursting) == on(b.Bursting) &&
		a.NetworkAccessPolicy == b.NetworkAccessPolicy && a.PublicNetworkAccess == b.PublicNetworkAccess && strings.EqualFold(a.DiskAccessID, b.DiskAccessID) &&
		number(a.IOPSReadWrite, b.IOPSReadWrite) && number(a.MBpsReadWrite, b.MBpsReadWrite) &&
		number(a.IOPSReadOnly, b.IOPSReadOnly) && number(a.MBpsReadOnly, b.MBpsReadOnly)
}

func on(b *bool) bool { return b != nil && *b }

// checkTuning says why no disk can be as d is meant to be.
func checkTuning(d provisioner.Disk) error {
	refuse := func(format string, args ...any) error {
		return provisioner.Errorf(provisioner.InvalidArgument, format, args...)
	}
	premium := d.SKUName == "Premium_LRS" || d.SKUName == "Premium_ZRS"
	switch {
	case !provisioned(d.SKUName) && (d.IOPSReadWrite != nil || d.MBpsReadWrite != nil || d.IOPSReadOnly != nil || d.MBpsReadOnly != nil):
		return refuse("IOPS and throughput of a %s disk cannot be chosen", d.SKUName)
	case d.IOPSReadWrite != nil && *d.IOPSReadWrite > 400000:
		return refuse("a disk has at most 400000 IOPS, not %d", *d.IOPSReadWrite)
	case d.Tier != "" && !premium:
		return refuse("the tier of a %s disk cannot be chosen", d.SKUName)
	case on(d.Bursting) && (!premium || d.SizeBytes <= 512*gib || d.MaxShares > 1):
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
	case converts && (provisioned(from.SKUName) || to.SKUName == "UltraSSD_LRS" || redundant(from.SKUName) != redundant(to.SKUName)):
		return provisioner.Errorf(provisioner.InvalidArgument, "a %s disk cannot become %s", from.SKUName, to.SKUName)
	case attached && from.MaxShares > 1 && (grows || converts || to.Tier != from.Tier):
		return refuse("size, SKU and tier of shared disk %s cannot change while it is attached", from.ID)
	case attached && grows && !provisioned(from.SKUName) && from.SizeBytes <= 4096*gib && to.SizeBytes > 4096*gib:
		return refuse("disk %s cannot grow beyond 4 TiB while it is attached", from.ID)
	case attached && converts && to.SKUName != "PremiumV2_LRS":
		return refuse("the SKU of disk %s cannot change while it is attached", from.ID)
	case attached && on(to.Bursting) && !on(from.Bursting):
		return refuse("bursting of disk %s cannot be turned on while it is attached", from.ID)
	}
	return nil
}
