package conformance

import (
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
			for _, change := range []provisioner.DiskChange{
				{},
				{
					SizeBytes: before.SizeBytes,
					From:      provisioner.DiskSettings{BurstingEnabled: true, Tier: "P30"},
					To:        before.DiskSettings,
				},
				{From: provisioner.DiskSettings{
					Tier:         "P50",
					DiskAccessID: r.id("diskAccesses"),
					Tags:         map[string]string{"gone": "1"},
				}},
			} {
				op, err := r.Cloud.Disks().Update(r.ctx, id, change)
				r.done(op, err)
				if op.Token() != "" {
					r.Fatalf("%+v was sent", change)
				}
			}
		}},
		{"private network access is set and removed together with its disk access", func(r *run) {
			id, access := r.disk(nil), r.linked("diskAccesses")
			private := provisioner.DiskSettings{NetworkAccessPolicy: "AllowPrivate", DiskAccessID: access}
			r.changes(id, private)
			if d := r.get(id); d.NetworkAccessPolicy != "AllowPrivate" || !strings.EqualFold(d.DiskAccessID, access) {
				r.Fatalf("%+v", d)
			}
			op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{
				From: private,
				To:   provisioner.DiskSettings{NetworkAccessPolicy: "DenyAll"},
			})
			r.done(op, err)
			if d := r.get(id); d.NetworkAccessPolicy != "DenyAll" || d.DiskAccessID != "" {
				r.Fatalf("%+v", d)
			}
		}},
		{"tags that only From has, and those that To removes, are removed, and those of others remain", func(r *run) {
			id := r.disk(func(s *provisioner.DiskSpec) {
				s.Tags = map[string]string{"foreign": "1", "gone": "1", "kept": "1", "unwanted": "1"}
			})
			op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{
				From: provisioner.DiskSettings{Tags: map[string]string{"gone": "1", "kept": "1", "never": "1"}},
				To: provisioner.DiskSettings{
					Tags:        map[string]string{"kept": "2", "new": "3"},
					RemovedTags: []string{"Unwanted", "never"},
				},
			})
			r.done(op, err)
			if got, want := r.get(id).Tags, map[string]string{"foreign": "1", "kept": "2", "new": "3"}; !maps.Equal(got, want) {
				r.Fatalf("got tags %v, want %v", got, want)
			}
		}},
		{"a tier changes in use, and bursting does not", func(r *run) {
			id, vm := r.disk(func(s *provisioner.DiskSpec) { s.SizeBytes = 1024 * GiB }), r.NewVM(r.T, r.SmallSize, "")
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			r.changes(id, provisioner.DiskSettings{Tier: "P40"})
			op, err = r.Cloud.Disks().Update(r.ctx, id,
				provisioner.DiskChange{To: provisioner.DiskSettings{BurstingEnabled: true}})
			r.fails(provisioner.FailedPrecondition, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
			r.done(op, err)
			r.changes(id, provisioner.DiskSettings{BurstingEnabled: true})
			if d := r.get(id); d.Tier != "P40" || !d.BurstingEnabled {
				r.Fatalf("%+v", d.DiskSettings)
			}
		}},
		{"a shared disk that is attached changes neither SKU nor tier, but its tags", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.sharedDisk(2)
			op, err := r.attach(vm, id, true)
			r.done(op, err)
			for _, change := range []provisioner.DiskSettings{{SKUName: "StandardSSD_LRS"}, {Tier: "P10"}} {
				op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: change})
				r.fails(provisioner.FailedPrecondition, op, err)
			}
			r.changes(id, provisioner.DiskSettings{Tags: map[string]string{"in": "use"}})
		}},
		{"a disk grows in use, and not across 4 TiB", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: 4096 * GiB})
			r.done(op, err)
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: 4097 * GiB})
			r.fails(provisioner.FailedPrecondition, op, err)
		}},
		{"a SKU changes at rest, or to Premium v2 in use without caching, and never to what Azure does not convert to",
			func(r *run) { r.converts() }},
		{"what a SKU does not have is InvalidArgument, and changes nothing", func(r *run) {
			id := r.disk(nil)
			before := r.get(id)
			for what, change := range map[string]provisioner.DiskChange{
				"IOPS of a Premium SSD":    {To: provisioner.DiskSettings{DiskIOPSReadWrite: ptr(int64(5000))}},
				"bursting of a small disk": {To: provisioner.DiskSettings{BurstingEnabled: true}},
				"one that is right and one that is not": {
					SizeBytes: 20 * GiB,
					To:        provisioner.DiskSettings{BurstingEnabled: true},
				},
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

// changes makes a change of the settings that must succeed.
func (r *run) changes(id string, to provisioner.DiskSettings) {
	r.Helper()
	op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: to})
	r.done(op, err)
}

func (r *run) changesEverything() {
	id := r.disk(func(s *provisioner.DiskSpec) {
		s.SKUName, s.Zone, s.MaxShares, s.SizeBytes = "PremiumV2_LRS", "1", 2, 64*GiB
	})
	to := provisioner.DiskSettings{
		DiskIOPSReadWrite:   ptr(int64(20000)),
		DiskMBpsReadWrite:   ptr(int64(500)),
		DiskIOPSReadOnly:    ptr(int64(700)),
		DiskMBpsReadOnly:    ptr(int64(40)),
		NetworkAccessPolicy: "AllowPrivate",
		PublicNetworkAccess: "Disabled",
		DiskAccessID:        r.linked("diskAccesses"),
		Tags: map[string]string{
			"one": "1",
			"two": "2",
		},
	}
	op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: 128 * GiB, To: to})
	r.done(op, err)
	d := r.get(id)
	if lost := lost(to, d.Named(to)); len(lost) > 0 || d.SizeBytes != 128*GiB {
		r.Fatalf("lost or changed: %s, and the size is %d GiB, want 128; %+v", strings.Join(lost, ", "), d.SizeBytes/GiB, d)
	}
}

func (r *run) converts() {
	zonal := func(s *provisioner.DiskSpec) { s.Zone = "1" }
	id, other := r.disk(zonal), r.disk(zonal)
	for _, sku := range []string{"UltraSSD_LRS", "Premium_ZRS"} {
		op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: provisioner.DiskSettings{SKUName: sku}})
		r.fails(provisioner.InvalidArgument, op, err)
	}
	vm := r.NewVM(r.T, r.SmallSize, "1")
	op, err := r.attach(vm, id, false)
	r.done(op, err)
	op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: provisioner.DiskSettings{SKUName: "StandardSSD_LRS"}})
	r.fails(provisioner.FailedPrecondition, op, err)
	r.changes(id, provisioner.DiskSettings{SKUName: "PremiumV2_LRS"})
	r.eventually("the conversion has come to its end", func() bool {
		d := r.get(id)
		if d.SKUName != "PremiumV2_LRS" || !d.Ready {
			r.Fatalf("%+v", d)
		}
		return d.CompletionPercent >= 100
	})
	op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: provisioner.DiskSettings{SKUName: "Premium_LRS"}})
	r.fails(provisioner.InvalidArgument, op, err)
	r.changes(other, provisioner.DiskSettings{SKUName: "StandardSSD_LRS"})
	if d := r.get(other); d.SKUName != "StandardSSD_LRS" || d.CompletionPercent < 100 {
		r.Fatalf("%+v", d)
	}
}
