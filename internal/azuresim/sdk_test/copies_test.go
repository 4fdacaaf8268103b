package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

func snapshotOf(source string, option armcompute.DiskCreateOption) armcompute.Snapshot {
	return armcompute.Snapshot{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.SnapshotProperties{
			Incremental: to.Ptr(true), CreationData: &armcompute.CreationData{CreateOption: &option, SourceResourceID: &source},
		},
	}
}

func (s *simulator) snapshot(name, source string, option armcompute.DiskCreateOption) armcompute.Snapshot {
	s.t.Helper()
	p, err := s.snapshots.BeginCreateOrUpdate(s.t.Context(), group, name, snapshotOf(source, option), nil)
	return finish(s.t, p, err).Snapshot
}

// slowCopies makes background copies outlast the test.
func (s *simulator) slowCopies() {
	s.t.Helper()
	if status := s.adminCall("PUT", "/admin/latency", map[string]any{"steps": map[string]any{"backgroundCopy": map[string]any{
		"min": "1h",
		"max": "1h",
	}}}, nil); status != 204 {
		s.t.Fatalf("latency refused: %d, want %d", status, 204)
	}
}

func anUltraDisk(d *armcompute.Disk) {
	d.SKU.Name, d.Zones = to.Ptr(armcompute.DiskStorageAccountTypesUltraSSDLRS), []*string{to.Ptr("1")}
}

func copyOf(source string) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) {
		d.Properties.DiskSizeGB = nil
		d.Properties.CreationData = &armcompute.CreationData{
			CreateOption:     to.Ptr(armcompute.DiskCreateOptionCopy),
			SourceResourceID: &source,
		}
	}
}

func TestInstantAccessSnapshotIsUsableAtOnceAndCannotBeCopiedYet(t *testing.T) {
	s := start(t)
	d := s.disk("a", anUltraDisk)
	s.slowCopies()
	body := snapshotOf(*d.ID, armcompute.DiskCreateOptionCopy)
	body.Properties.CreationData.InstantAccessDurationMinutes = to.Ptr[int64](60)
	p, err := s.snapshots.BeginCreateOrUpdate(t.Context(), group, "s", body, nil)
	sn := finish(t, p, err).Snapshot
	if got := sn.Properties; *got.SnapshotAccessState != armcompute.SnapshotAccessStateInstantAccess ||
		*got.CreationData.InstantAccessDurationMinutes != 60 || *got.CompletionPercent >= 100 {
		t.Errorf("snapshot is %s with %d minutes at %v", *got.SnapshotAccessState, *got.CreationData.InstantAccessDurationMinutes,
			*got.CompletionPercent)
	}
	// The disk is there at once and is filled afterwards; it cannot be attached before.
	made := s.disk("b", anUltraDisk, copyOf(*sn.ID))
	if got := made.Properties.CompletionPercent; got == nil || *got >= 100 {
		t.Errorf("disk is at %v", got)
	}
	elsewhere := snapshotOf(*sn.ID, armcompute.DiskCreateOptionCopyStart)
	elsewhere.Location = to.Ptr("westus2")
	_, err = s.snapshots.BeginCreateOrUpdate(t.Context(), group, "copy", elsewhere, nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
}

func TestInstantAccessIsForProvisionedDisksForOneToFiveHours(t *testing.T) {
	s := start(t)
	premium, fast := s.disk("a"), s.disk("b", anUltraDisk)
	for _, c := range []struct {
		source  string
		minutes int64
	}{{*premium.ID, 60}, {*fast.ID, 59}, {*fast.ID, 301}} {
		body := snapshotOf(c.source, armcompute.DiskCreateOptionCopy)
		body.Properties.CreationData.InstantAccessDurationMinutes = &c.minutes
		_, err := s.snapshots.BeginCreateOrUpdate(t.Context(), group, "s", body, nil)
		expectCode(t, responseError(t, err), 400, "InvalidParameter")
	}
}

func TestSnapshotIsCopiedToAnotherRegion(t *testing.T) {
	s := start(t)
	local := s.snapshot("local", *s.disk("a").ID, armcompute.DiskCreateOptionCopy)
	body := snapshotOf(*local.ID, armcompute.DiskCreateOptionCopyStart)
	body.Location = to.Ptr("westus2")
	p, err := s.snapshots.BeginCreateOrUpdate(t.Context(), group, "copy", body, nil)
	sn := finish(t, p, err).Snapshot
	if *sn.Location != "westus2" || *sn.Properties.CreationData.CreateOption != armcompute.DiskCreateOptionCopyStart {
		t.Errorf("copy is in %s, made by %s, want %s, %s", *sn.Location, *sn.Properties.CreationData.CreateOption, "westus2",
			armcompute.DiskCreateOptionCopyStart)
	}
	percent := float32(0)
	s.eventually("the copy is complete", func() bool {
		got, err := s.snapshots.Get(t.Context(), group, "copy", nil)
		if err != nil || *got.Properties.CompletionPercent < percent {
			t.Fatalf("after %v %%: %+v, %v", percent, got.Properties, err)
		}
		percent = *got.Properties.CompletionPercent
		return percent == 100
	})
	del, err := s.snapshots.BeginDelete(t.Context(), group, "local", nil)
	finish(t, del, err)

	s.slowCopies()
	again := s.snapshot("local2", *s.disk("b").ID, armcompute.DiskCreateOptionCopy)
	body = snapshotOf(*again.ID, armcompute.DiskCreateOptionCopyStart)
	body.Location = to.Ptr("westus2")
	p, err = s.snapshots.BeginCreateOrUpdate(t.Context(), group, "copy2", body, nil)
	finish(t, p, err)
	_, err = s.snapshots.BeginDelete(t.Context(), group, "local2", nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
}
