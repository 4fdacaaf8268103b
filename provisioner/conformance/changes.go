package conformance

import (
	"fmt"
	"maps"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func ptr[T any](v T) *T { return &v }

// changeTests are about Disks.Update beyond the size.
func changeTests() []test {
	return []test{
		{"one Update changes everything that can be changed", func(r *run) { r.changesEverything() }},
		{"Update of nothing, and of what the disk has already, does nothing", func(r *run) {
			id := r.disk(func(s *provisioner.DiskSpec) {
				s.SizeBytes, s.Tier, s.NetworkAccessPolicy = 1024*GiB, "P40", "DenyAll"
			})
			before := r.get(id)
			size, sku, tier, policy, off := before.SizeBytes, before.SKUName, "P40", "DenyAll", false
			for _, change := range []provisioner.DiskChange{{}, {SizeBytes: &size, SKUName: &sku, Tier: &tier, NetworkAccessPolicy: &policy, Bursting: &off, Tags: before.Tags}} {
				op, err := r.Cloud.Disks().Update(r.ctx, id, change)
				r.done(op, err)
				if op.Token() != "" {
					r.Fatalf("%+v was sent", change)
				}
			}
		}},
		{"private network access is set and removed together with its disk access", func(r *run) {
			id, access := r.disk(nil), r.id("diskAccesses")
			r.changes(id, provisioner.DiskChange{NetworkAccessPolicy: ptr("AllowPrivate"), DiskAccessID: &access})
			if d := r.get(id); d.NetworkAccessPolicy != "AllowPrivate" || !strings.EqualFold(d.DiskAccessID, access) {
				r.Fatalf("%+v", d)
			}
			r.changes(id, provisioner.DiskChange{NetworkAccessPolicy: ptr("DenyAll"), DiskAccessID: ptr("")})
			if d := r.get(id); d.NetworkAccessPolicy != "DenyAll" || d.DiskAccessID != "" {
				r.Fatalf("%+v", d)
			}
		}},
		{"a tier changes in use, and bursting does not", func(r *run) {
			id, vm := r.disk(func(s *provisioner.DiskSpec) { s.SizeBytes = 1024 * GiB }), r.NewVM(r.T, r.SmallSize, "")
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			r.changes(id, provisioner.DiskChange{Tier: ptr("P40")})
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{Bursting: ptr(true)})
			r.fails(provisioner.FailedPrecondition, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
			r.done(op, err)
			r.changes(id, provisioner.DiskChange{Bursting: ptr(true)})
			if d := r.get(id); d.Tier != "P40" || d.Bursting == nil || !*d.Bursting {
				r.Fatalf("%+v", d.DiskTuning)
			}
		}},
		{"a shared disk that is attached changes neither SKU nor tier, but its tags", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.sharedDisk(2)
			op, err := r.attach(vm, id, true)
			r.done(op, err)
			for _, change := range []provisioner.DiskChange{{SKUName: ptr("StandardSSD_LRS")}, {Tier: ptr("P10")}} {
				op, err = r.Cloud.Disks().Update(r.ctx, id, change)
				r.fails(provisioner.FailedPrecondition, op, err)
			}
			r.changes(id, provisioner.DiskChange{Tags: map[string]string{"in": "use"}})
		}},
		{"a disk grows in use, and not across 4 TiB", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			r.changes(id, provisioner.DiskChange{SizeBytes: ptr(4096 * GiB)})
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: ptr(4097 * GiB)})
			r.fails(provisioner.FailedPrecondition, op, err)
		}},
		{"a SKU changes at rest, or to Premium v2 in use without caching, and never to what Azure does not convert to", func(r *run) { r.converts() }},
		{"what a SKU does not have is InvalidArgument, and changes nothing", func(r *run) {
			id := r.disk(nil)
			before := r.get(id)
			for what, change := range map[string]provisioner.DiskChange{
				"IOPS of a Premium SSD": {IOPSReadWrite: ptr(int64(5000))}, "bursting of a small disk": {Bursting: ptr(true)},
				"one that is right and one that is not": {SizeBytes: ptr(20 * GiB), Bursting: ptr(true)},
			} {
				op, err := r.Cloud.Disks().Update(r.ctx, id, change)
				if err == nil {
					r.Errorf("%s was taken", what)
				}
				r.fails(provisioner.InvalidArgument, op, err)
			}
			if after := r.get(id); after.SizeBytes != before.SizeBytes || after.SKUName != before.SKUName {
				r.Fatalf("%+v, before %+v", after, before)
			}
		}},
	}
}

func (r *run) get(id string) provisioner.Disk {
	r.Helper()
	d, err := r.Cloud.Disks().Get(r.ctx, id)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// changes makes a change that must succeed.
func (r *run) changes(id string, change provisioner.DiskChange) {
	r.Helper()
	op, err := r.Cloud.Disks().Update(r.ctx, id, change)
	r.done(op, err)
}

func (r *run) changesEverything() {
	id := r.disk(func(s *provisioner.DiskSpec) {
		s.SKUName, s.Zone, s.MaxShares, s.SizeBytes = "PremiumV2_LRS", "1", 2, 64*GiB
	})
	access, tags := r.id("diskAccesses"), map[string]string{"one": "1", "two": "2"}
	r.changes(id, provisioner.DiskChange{
		SizeBytes: ptr(128 * GiB), IOPSReadWrite: ptr(int64(20000)), MBpsReadWrite: ptr(int64(500)), IOPSReadOnly: ptr(int64(700)), MBpsReadOnly: ptr(int64(40)),
		NetworkAccessPolicy: ptr("AllowPrivate"), PublicNetworkAccess: ptr("Disabled"), DiskAccessID: &access, Tags: tags,
	})
	d := r.get(id)
	got := fmt.Sprintln(d.SizeBytes/GiB, *d.IOPSReadWrite, *d.MBpsReadWrite, *d.IOPSReadOnly, *d.MBpsReadOnly, d.NetworkAccessPolicy, d.PublicNetworkAccess)
	if want := "128 20000 500 700 40 AllowPrivate Disabled\n"; got != want || !strings.EqualFold(d.DiskAccessID, access) || !maps.Equal(d.Tags, tags) {
		r.Fatalf("%s, want %s; %+v", got, want, d)
	}
}

func (r *run) converts() {
	zonal := func(s *provisioner.DiskSpec) { s.Zone = "1" }
	id, other := r.disk(zonal), r.disk(zonal)
	for _, sku := range []string{"UltraSSD_LRS", "Premium_ZRS"} {
		op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SKUName: &sku})
		r.fails(provisioner.InvalidArgument, op, err)
	}
	vm := r.NewVM(r.T, r.SmallSize, "1")
	op, err := r.attach(vm, id, false)
	r.done(op, err)
	op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SKUName: ptr("StandardSSD_LRS")})
	r.fails(provisioner.FailedPrecondition, op, err)
	r.changes(id, provisioner.DiskChange{SKUName: ptr("PremiumV2_LRS")})
	r.eventually("the conversion has come to its end", func() bool {
		d := r.get(id)
		if d.SKUName != "PremiumV2_LRS" || !d.Ready {
			r.Fatalf("%+v", d)
		}
		return d.CompletionPercent >= 100
	})
	op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SKUName: ptr("Premium_LRS")})
	r.fails(provisioner.InvalidArgument, op, err)
	r.changes(other, provisioner.DiskChange{SKUName: ptr("StandardSSD_LRS")})
	if d := r.get(other); d.SKUName != "StandardSSD_LRS" || d.CompletionPercent < 100 {
		r.Fatalf("%+v", d)
	}
}
