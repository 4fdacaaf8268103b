package conformance

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func snapshotTests() []test {
	return slices.Concat(plainSnapshotTests(), copyTests(), provisionedSnapshotTests())
}

func plainSnapshotTests() []test {
	return []test{
		{"a snapshot reads back and a disk can be made from it", func(r *run) {
			source := r.disk(nil)
			spec := provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    source,
				Location:    r.Location,
				Incremental: true,
				Tags:        map[string]string{"a": "b"},
			}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			r.eventually("the snapshot is ready", func() bool {
				s, err := r.Cloud.Snapshots().Get(r.ctx, otherCase(spec.ID))
				if err != nil {
					r.Fatal(err)
				}
				return s.Ready && s.Cut && s.Incremental && s.CompletionPercent == 100 && s.CopyFailure == "" &&
					strings.EqualFold(s.SourceID, source) && s.SizeBytes == 10*GiB && !s.Created.IsZero() && s.Tags["a"] == "b"
			})
			restored := r.disk(func(d *provisioner.DiskSpec) { d.SourceID = spec.ID })
			if d, err := r.Cloud.Disks().Get(r.ctx, restored); err != nil || !strings.EqualFold(d.SourceID, spec.ID) {
				r.Fatalf("%+v, %v", d, err)
			}
			all, err := r.Cloud.Snapshots().List(r.ctx, r.Scope)
			if err != nil || !slices.ContainsFunc(all,
				func(s provisioner.Snapshot) bool { return strings.EqualFold(s.ID, spec.ID) }) {
				r.Fatalf("not in the list: %v", err)
			}
		}},
		{"a snapshot of another source already exists", func(r *run) {
			spec := provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    r.disk(nil),
				Location:    r.Location,
				Incremental: true,
			}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			spec.SourceID = r.disk(nil)
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.refused(provisioner.AlreadyExists, op, err)
		}},
		{"a missing source is NotFound", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:       r.id("snapshots"),
				SourceID: r.id("disks"),
				Location: r.Location,
			})
			r.fails(provisioner.NotFound, op, err)
		}},
		{"a deleted snapshot is gone, and deleting it again a success", func(r *run) {
			spec := provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    r.disk(nil),
				Location:    r.Location,
				Incremental: true,
			}
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
			spec := provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    source,
				Location:    r.Location,
				Incremental: true,
			}
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
		{"a snapshot of a disk is in the disk's region", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    r.disk(nil),
				Location:    r.OtherLocation,
				Incremental: true,
			})
			r.fails(provisioner.InvalidArgument, op, err)
		}},
		{"access policies are taken", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:                  r.id("snapshots"),
				SourceID:            r.disk(nil),
				Location:            r.Location,
				NetworkAccessPolicy: "DenyAll",
				PublicNetworkAccess: "Disabled",
				DataAccessAuthMode:  "AzureActiveDirectory",
			})
			r.done(op, err)
		}},
	}
}

// snapshot makes a snapshot and waits until its content is fixed.
func (r *run) snapshot(sourceID string, change func(*provisioner.SnapshotSpec)) string {
	r.Helper()
	spec := provisioner.SnapshotSpec{
		ID:          r.id("snapshots"),
		SourceID:    sourceID,
		Location:    r.Location,
		Incremental: true,
	}
	if change != nil {
		change(&spec)
	}
	op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
	r.done(op, err)
	return spec.ID
}

func copyTests() []test {
	return []test{
		{"a snapshot is copied to another region in the background", func(r *run) {
			local := r.snapshot(r.disk(nil), nil)
			target := r.snapshot(local, func(s *provisioner.SnapshotSpec) { s.Location = r.OtherLocation })
			percent := 0.0
			r.eventually("the copy is complete", func() bool {
				s, err := r.Cloud.Snapshots().Get(r.ctx, target)
				switch {
				case err != nil:
					r.Fatal(err)
				case s.CompletionPercent < percent || s.CompletionPercent > 100:
					r.Fatalf("%v %% after %v %%", s.CompletionPercent, percent)
				case s.Ready != (s.CompletionPercent == 100) || !s.Cut:
					r.Fatalf("%+v", s)
				case !strings.EqualFold(s.SourceID, local) || !strings.EqualFold(s.Location, r.OtherLocation):
					r.Fatalf("source and location: %+v", s)
				}
				percent = s.CompletionPercent
				return s.Ready
			})
			op, err := r.Cloud.Snapshots().Delete(r.ctx, local)
			r.done(op, err)
			restored := r.disk(func(d *provisioner.DiskSpec) { d.SourceID, d.Location = target, r.OtherLocation })
			if d, err := r.Cloud.Disks().Get(r.ctx, restored); err != nil || !d.Ready ||
				!strings.EqualFold(d.Location, r.OtherLocation) {
				r.Fatalf("%+v, %v", d, err)
			}
		}},
		{"a copy of a copy's other source already exists", func(r *run) {
			disk := r.disk(nil)
			first, second := r.snapshot(disk, nil), r.snapshot(disk, nil)
			spec := provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    first,
				Location:    r.OtherLocation,
				Incremental: true,
			}
			op, err := r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.done(op, err)
			spec.SourceID = second
			op, err = r.Cloud.Snapshots().Create(r.ctx, spec)
			r.refused(provisioner.AlreadyExists, op, err)
		}},
		{"a full snapshot cannot be copied", func(r *run) {
			full := r.snapshot(r.disk(nil), func(s *provisioner.SnapshotSpec) { s.Incremental = false })
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:       r.id("snapshots"),
				SourceID: full,
				Location: r.OtherLocation,
			})
			r.fails(provisioner.InvalidArgument, op, err)
		}},
		{"a copy of a missing snapshot is NotFound", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:          r.id("snapshots"),
				SourceID:    r.id("snapshots"),
				Location:    r.OtherLocation,
				Incremental: true,
			})
			r.fails(provisioner.NotFound, op, err)
		}},
	}
}

func (r *run) ultraDisk() string {
	r.Helper()
	return r.disk(func(d *provisioner.DiskSpec) { d.SKUName, d.Zone = "UltraSSD_LRS", "1" })
}

func provisionedSnapshotTests() []test {
	return []test{
		{"a snapshot of an Ultra disk, and a disk made from it, are ready when they are complete", func(r *run) {
			id := r.snapshot(r.ultraDisk(), nil)
			r.eventually("the snapshot is complete", func() bool {
				s, err := r.Cloud.Snapshots().Get(r.ctx, id)
				if err != nil || s.Ready != (s.CompletionPercent == 100) {
					r.Fatalf("%+v, %v", s, err)
				}
				return s.Ready
			})
			restored := r.disk(func(d *provisioner.DiskSpec) { d.SKUName, d.Zone, d.SourceID = "UltraSSD_LRS", "1", id })
			r.eventually("the disk is complete", func() bool {
				d, err := r.Cloud.Disks().Get(r.ctx, restored)
				if err != nil || d.Ready != (d.CompletionPercent == 100) {
					r.Fatalf("%+v, %v", d, err)
				}
				return d.Ready
			})
		}},
		{"with instant access a snapshot of an Ultra disk is ready at once", func(r *run) {
			id := r.snapshot(r.ultraDisk(), func(s *provisioner.SnapshotSpec) { s.InstantAccessMinutes = 60 })
			if s, err := r.Cloud.Snapshots().Get(r.ctx, id); err != nil || !s.Ready {
				r.Fatalf("%+v, %v", s, err)
			}
			r.disk(func(d *provisioner.DiskSpec) { d.SKUName, d.Zone, d.SourceID = "UltraSSD_LRS", "1", id })
		}},
		{"instant access to a snapshot of a Premium disk is InvalidArgument", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:                   r.id("snapshots"),
				SourceID:             r.disk(nil),
				Location:             r.Location,
				Incremental:          true,
				InstantAccessMinutes: 60,
			})
			r.fails(provisioner.InvalidArgument, op, err)
		}},
		{"a full snapshot of an Ultra disk is InvalidArgument", func(r *run) {
			op, err := r.Cloud.Snapshots().Create(r.ctx, provisioner.SnapshotSpec{
				ID:       r.id("snapshots"),
				SourceID: r.ultraDisk(),
				Location: r.Location,
			})
			r.fails(provisioner.InvalidArgument, op, err)
		}},
	}
}
