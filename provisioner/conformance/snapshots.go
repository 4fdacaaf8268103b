package conformance

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func snapshotTests() []test {
	return []test{
		{"a snapshot reads back and a disk can be made from it", func(r *run) {
			source := r.disk(nil)
			spec := provisioner.SnapshotSpec{ID: r.id("snapshots"), SourceID: source, Location: r.Location, Incremental: true, Tags: map[string]string{"a": "b"}}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			r.eventually("the snapshot is ready", func() bool {
				s, err := r.Cloud.Snapshots().Get(r.ctx, otherCase(spec.ID))
				if err != nil {
					r.Fatal(err)
				}
				return s.Ready && strings.EqualFold(s.SourceID, source) && s.SizeBytes == 10*GiB && !s.Created.IsZero() && s.Tags["a"] == "b"
			})
			restored := r.disk(func(d *provisioner.DiskSpec) { d.SourceID = spec.ID })
			if d, err := r.Cloud.Disks().Get(r.ctx, restored); err != nil || !strings.EqualFold(d.SourceID, spec.ID) {
				r.Fatalf("%+v, %v", d, err)
			}
			all, err := r.Cloud.Snapshots().List(r.ctx, r.Scope)
			if err != nil || !slices.ContainsFunc(all, func(s provisioner.Snapshot) bool { return strings.EqualFold(s.ID, spec.ID) }) {
				r.Fatalf("not in the list: %v", err)
			}
		}},
		{"a snapshot of another source already exists", func(r *run) {
			spec := provisioner.SnapshotSpec{ID: r.id("snapshots"), SourceID: r.disk(nil), Location: r.Location, Incremental: true}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			spec.SourceID = r.disk(nil)
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.refused(provisioner.AlreadyExists, op, err)
		}},
		{"a missing source is NotFound", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{ID: r.id("snapshots"), SourceID: r.id("disks"), Location: r.Location})
			r.fails(provisioner.NotFound, op, err)
		}},
		{"a deleted snapshot is gone, and deleting it again a success", func(r *run) {
			spec := provisioner.SnapshotSpec{ID: r.id("snapshots"), SourceID: r.disk(nil), Location: r.Location, Incremental: true}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			for range 2 {
				op, err = r.Cloud.Snapshots().Delete(r.ctx, spec.ID)
				r.done(op, err)
			}
			_, err = r.Cloud.Snapshots().Get(r.ctx, spec.ID)
			r.refused(provisioner.NotFound, nil, err)
		}},
		{"a creation in flight is joined by the next call of any process", func(r *run) {
			source := r.disk(nil)
			release := r.Slow(r.T, CreateSnapshot)
			defer release()
			spec := provisioner.SnapshotSpec{ID: r.id("snapshots"), SourceID: source, Location: r.Location, Incremental: true}
			first, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			if err != nil {
				r.Fatal(err)
			}
			second, err := r.Reopen().Snapshots().Create(r.ctx, spec)
			if err != nil {
				r.Fatal(err)
			}
			release()
			r.done(first, nil)
			r.done(second, nil)
		}},
	}
}
