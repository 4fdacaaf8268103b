package conformance

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func diskTests() []test {
	return []test{
		{"a disk that was created reads back as asked for", func(r *run) {
			spec := r.spec()
			spec.Zone, spec.MaxShares = "1", 2
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			r.done(op, err)
			d, err := r.Cloud.Disks().Get(r.ctx, spec.ID)
			if err != nil {
				r.Fatal(err)
			}
			if !strings.EqualFold(d.ID, spec.ID) || d.SizeBytes != spec.SizeBytes || d.SKUName != spec.SKUName || d.Zone != "1" ||
				d.MaxShares != 2 || !maps.Equal(d.Tags, spec.Tags) || !d.Ready || d.UniqueID == "" || len(d.AttachedTo) != 0 ||
				d.Location != spec.Location {
				r.Fatalf("got %+v for %+v", d, spec)
			}
			if described, ok := op.(provisioner.DiskOperation); ok {
				if made, known := described.Disk(); known && !reflect.DeepEqual(made, d) {
					r.Errorf("the operation describes %+v, want what Get returns: %+v", made, d)
				}
			}
		}},
		{"a disk reads back all of its tuning", func(r *run) { r.readsBackTuning() }},
		{"creating the same disk again, in any case, is a success", func(r *run) {
			spec := r.spec()
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			r.done(op, err)
			first, err := r.Cloud.Disks().Get(r.ctx, spec.ID)
			if err != nil {
				r.Fatal(err)
			}
			again := spec
			again.ID = otherCase(spec.ID)
			op, err = r.Cloud.Disks().Create(r.ctx, again)
			r.done(op, err)
			if second, err := r.Cloud.Disks().Get(r.ctx, again.ID); err != nil || second.UniqueID != first.UniqueID {
				r.Fatalf("another disk: %+v, %v", second, err)
			}
		}},
		{"a disk that differs already exists and is not touched", func(r *run) {
			spec := r.spec()
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			r.done(op, err)
			other := r.disk(nil)
			for what, change := range map[string]func(*provisioner.DiskSpec){
				"size":   func(s *provisioner.DiskSpec) { s.SizeBytes += GiB },
				"SKU":    func(s *provisioner.DiskSpec) { s.SKUName = "StandardSSD_LRS" },
				"shares": shared(3), "zone": func(s *provisioner.DiskSpec) { s.Zone = "2" },
				"source": func(s *provisioner.DiskSpec) { s.SourceID = other },
			} {
				differs := spec
				change(&differs)
				op, err := r.Cloud.Disks().Create(r.ctx, differs)
				if err == nil {
					r.Errorf("another %s was taken", what)
				}
				r.refused(provisioner.AlreadyExists, op, err)
			}
			if d, err := r.Cloud.Disks().Get(r.ctx, spec.ID); err != nil || d.SizeBytes != spec.SizeBytes || d.MaxShares != 1 ||
				d.SKUName != spec.SKUName {
				r.Fatalf("touched: %+v, %v", d, err)
			}
		}},
		{"a creation in flight is joined by the next call and resumed by another process", func(r *run) {
			release := r.Slow(r.T, CreateDisk)
			defer release()
			spec := r.spec()
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			if err != nil {
				r.Fatal(err)
			}
			if op.Token() == "" {
				r.Fatal("no token for an operation in flight")
			}
			again, err := r.Cloud.Disks().Create(r.ctx, spec)
			if err != nil {
				r.Fatalf("second call: %v", err)
			}
			resumed, err := r.Reopen().Disks().Resume(r.ctx, op.Token())
			if err != nil {
				r.Fatalf("resume: %v", err)
			}
			elsewhere, err := r.Reopen().Disks().Create(r.ctx, spec)
			if err != nil {
				r.Fatalf("call of another process: %v", err)
			}
			release()
			for _, op := range []provisioner.Operation{op, again, resumed, elsewhere} {
				r.done(op, nil)
			}
			if d, err := r.Cloud.Disks().Get(r.ctx, spec.ID); err != nil || !d.Ready {
				r.Fatalf("%+v, %v", d, err)
			}
		}},
		{"parameters that the platform never takes are InvalidArgument", func(r *run) {
			for what, change := range map[string]func(*provisioner.DiskSpec){
				"an unknown SKU":  func(s *provisioner.DiskSpec) { s.SKUName = "Golden_LRS" },
				"too many shares": shared(11),
				"too large":       func(s *provisioner.DiskSpec) { s.SizeBytes = 400000 * GiB },
				"no size":         func(s *provisioner.DiskSpec) { s.SizeBytes = 0 },
				"no resource ID":  func(s *provisioner.DiskSpec) { s.ID = "disk-1" },
				"an unknown zone": func(s *provisioner.DiskSpec) { s.Zone = "17" },
			} {
				spec := r.spec()
				change(&spec)
				op, err := r.Cloud.Disks().Create(r.ctx, spec)
				if err == nil {
					r.Errorf("%s was taken", what)
				}
				r.fails(provisioner.InvalidArgument, op, err)
			}
		}},
		{"a missing source or resource group is NotFound", func(r *run) {
			spec := r.spec()
			spec.SourceID = r.id("disks")
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			r.fails(provisioner.NotFound, op, err)
			spec = r.spec()
			spec.ID = strings.Replace(spec.ID, "/resourceGroups/"+r.Scope.ResourceGroup+"/", "/resourceGroups/no-such-group/", 1)
			op, err = r.Cloud.Disks().Create(r.ctx, spec)
			r.fails(provisioner.NotFound, op, err)
		}},
		{"a disk copied from a disk names its source", func(r *run) {
			from := r.disk(nil)
			copied := r.disk(func(s *provisioner.DiskSpec) { s.SourceID = from })
			d, err := r.Cloud.Disks().Get(r.ctx, copied)
			if err != nil || !strings.EqualFold(d.SourceID, from) {
				r.Fatalf("%+v, %v", d, err)
			}
		}},
		{"Get of a missing disk is NotFound, Delete of it a success", func(r *run) {
			id := r.id("disks")
			_, err := r.Cloud.Disks().Get(r.ctx, id)
			r.refused(provisioner.NotFound, nil, err)
			op, err := r.Cloud.Disks().Delete(r.ctx, id)
			r.done(op, err)
		}},
		{"a deleted disk is gone from Get and List", func(r *run) {
			id, other := r.disk(nil), r.disk(nil)
			op, err := r.Cloud.Disks().Delete(r.ctx, otherCase(id))
			r.done(op, err)
			_, err = r.Cloud.Disks().Get(r.ctx, id)
			r.refused(provisioner.NotFound, nil, err)
			all, err := r.Cloud.Disks().List(r.ctx, r.Scope)
			if err != nil {
				r.Fatal(err)
			}
			has := func(id string) bool {
				return slices.ContainsFunc(all, func(d provisioner.Disk) bool { return strings.EqualFold(d.ID, id) })
			}
			if has(id) || !has(other) {
				r.Fatalf("list has the deleted %v, the other %v", has(id), has(other))
			}
		}},
		{"Update changes what it names and nothing else", updateChangesWhatItNames},
		{"Update refuses what cannot be", func(r *run) {
			op, err := r.Cloud.Disks().Update(r.ctx, r.id("disks"), provisioner.DiskChange{SizeBytes: 20 * GiB})
			r.fails(provisioner.NotFound, op, err)
			op, err = r.Cloud.Disks().Update(r.ctx, r.disk(nil),
				provisioner.DiskChange{To: provisioner.DiskSettings{SKUName: "Golden_LRS"}})
			r.fails(provisioner.InvalidArgument, op, err)
		}},
		{"a shared disk that is attached cannot grow, and can when it is not", func(r *run) {
			vm, id, size := r.NewVM(r.T, r.SmallSize, ""), r.sharedDisk(2), 32*GiB
			op, err := r.attach(vm, id, true)
			r.done(op, err)
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: size})
			r.fails(provisioner.FailedPrecondition, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
			r.done(op, err)
			op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: size})
			r.done(op, err)
		}},
		{"an attached disk cannot be deleted", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			if d, err := r.Cloud.Disks().Get(r.ctx, id); err != nil || len(d.AttachedTo) != 1 ||
				!strings.EqualFold(d.AttachedTo[0], vm) {
				r.Fatalf("%+v, %v", d, err)
			}
			op, err = r.Cloud.Disks().Delete(r.ctx, id)
			r.fails(provisioner.FailedPrecondition, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
			r.done(op, err)
			op, err = r.Cloud.Disks().Delete(r.ctx, id)
			r.done(op, err)
		}},
		{"a token that cannot be read is InvalidArgument", func(r *run) {
			for _, token := range []string{"", "nonsense", "{}", `{"v":1}`} {
				op, err := r.Cloud.Disks().Resume(r.ctx, token)
				r.refused(provisioner.InvalidArgument, op, err)
				op, err = r.Cloud.Attachments().Resume(r.ctx, token)
				r.refused(provisioner.InvalidArgument, op, err)
			}
		}},
	}
}

func updateChangesWhatItNames(r *run) {
	id := r.disk(nil)
	get := func() provisioner.Disk {
		d, err := r.Cloud.Disks().Get(r.ctx, id)
		if err != nil {
			r.Fatal(err)
		}
		return d
	}
	before := get()
	grown, smaller := 20*GiB, 5*GiB
	op, err := r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{SizeBytes: grown})
	r.done(op, err)
	if d := get(); d.SizeBytes != grown || d.SKUName != before.SKUName || !maps.Equal(d.Tags, before.Tags) {
		r.Fatalf("after growing: %+v", d)
	}
	for _, size := range []int64{grown, smaller} {
		op, err = r.Cloud.Disks().Update(r.ctx, otherCase(id), provisioner.DiskChange{SizeBytes: size})
		r.done(op, err)
	}
	if d := get(); d.SizeBytes != grown {
		r.Fatalf("it shrank: %+v", d)
	}
	sku := "StandardSSD_LRS"
	op, err = r.Cloud.Disks().Update(r.ctx, id, provisioner.DiskChange{To: provisioner.DiskSettings{
		SKUName: sku,
		Tags:    map[string]string{"a": "b"},
	}})
	r.done(op, err)
	if d := get(); d.SKUName != sku || d.Tags["a"] != "b" || d.SizeBytes != grown || d.UniqueID != before.UniqueID {
		r.Fatalf("after another SKU and tags: %+v", d)
	}
}
