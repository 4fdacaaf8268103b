package sdk_test

import (
	"strings"
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

func TestSnapshotIsTakenAndRestored(t *testing.T) {
	s := start(t)
	d := s.disk("a", sizeGB(32))
	sn := s.snapshot("s", *d.ID, armcompute.DiskCreateOptionCopy)
	p := sn.Properties
	if *p.DiskSizeGB != 32 || !*p.Incremental || p.IncrementalSnapshotFamilyID == nil || *p.CreationData.SourceUniqueID != *d.Properties.UniqueID || *p.SnapshotAccessState != "Available" {
		t.Errorf("snapshot is %+v", p)
	}
	again := s.snapshot("s2", *d.ID, armcompute.DiskCreateOptionCopy)
	if *again.Properties.IncrementalSnapshotFamilyID != *p.IncrementalSnapshotFamilyID {
		t.Error("two incremental snapshots of one disk are of different families")
	}
	from := func(id string) func(*armcompute.Disk) {
		return func(d *armcompute.Disk) {
			d.Properties.DiskSizeGB = nil
			d.Properties.CreationData = &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: &id}
		}
	}
	if got := s.disk("restored", from(*sn.ID)); *got.Properties.DiskSizeGB != 32 {
		t.Errorf("restored disk has %d GiB, want %d", *got.Properties.DiskSizeGB, 32)
	}
	if got := s.disk("clone", from(*d.ID)); *got.Properties.CreationData.SourceResourceID != *d.ID {
		t.Errorf("clone is %+v", got.Properties.CreationData)
	}
	_, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "small", diskParams(from(*sn.ID), sizeGB(16)), nil)
	expectCode(t, responseError(t, err), 400, "InvalidParameter")
	_, err = s.disks.BeginCreateOrUpdate(t.Context(), group, "orphan", diskParams(from(diskID("nowhere"))), nil)
	expectCode(t, responseError(t, err), 404, "ResourceNotFound")

	n := 0
	for pager := s.snapshots.NewListByResourceGroupPager(group, nil); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Value)
	}
	if n != 2 {
		t.Errorf("%d snapshots are listed, want %d", n, 2)
	}
	del, err := s.snapshots.BeginDelete(t.Context(), group, "s", nil)
	finish(t, del, err)
	_, err = s.snapshots.Get(t.Context(), group, "s", nil)
	expectCode(t, responseError(t, err), 404, "ResourceNotFound")
}

func TestCopyStartFillsUpInTheBackground(t *testing.T) {
	s := start(t)
	d := s.disk("a")
	first := s.snapshot("s", *d.ID, armcompute.DiskCreateOptionCopy)
	sn := s.snapshot("copy", *first.ID, armcompute.DiskCreateOptionCopyStart)
	if sn.Properties.CompletionPercent == nil || *sn.Properties.CompletionPercent >= 100 || *sn.Properties.SnapshotAccessState != "Pending" {
		t.Errorf("copy is at %v, %v", sn.Properties.CompletionPercent, *sn.Properties.SnapshotAccessState)
	}
	restore := func(d *armcompute.Disk) {
		d.Properties.DiskSizeGB = nil
		d.Properties.CreationData = &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: sn.ID}
	}
	_, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "early", diskParams(restore), nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	s.eventually("the copy is complete", func() bool {
		got, err := s.snapshots.Get(t.Context(), group, "copy", nil)
		return err == nil && *got.Properties.CompletionPercent == 100
	})
	s.disk("late", restore)

	_, err = s.snapshots.BeginCreateOrUpdate(t.Context(), group, "wrong", snapshotOf(*d.ID, armcompute.DiskCreateOptionCopyStart), nil)
	expectCode(t, responseError(t, err), 400, "BadRequest")
}

func TestAccessIsGrantedAndRevoked(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	read := armcompute.GrantAccessData{Access: to.Ptr(armcompute.AccessLevelRead), DurationInSeconds: to.Ptr[int32](3600)}
	p, err := s.disks.BeginGrantAccess(t.Context(), group, "a", read, nil)
	if got := finish(t, p, err); got.AccessSAS == nil || !strings.HasPrefix(*got.AccessSAS, "https://") {
		t.Errorf("access is %+v", got)
	}
	if st := *s.getDisk("a").Properties.DiskState; st != armcompute.DiskStateActiveSAS {
		t.Errorf("disk is %s, want %s", st, armcompute.DiskStateActiveSAS)
	}
	_, err = s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	_, err = s.disks.BeginDelete(t.Context(), group, "a", nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	end, err := s.disks.BeginRevokeAccess(t.Context(), group, "a", nil)
	finish(t, end, err)
	s.attach("node", "a")
	_, err = s.disks.BeginGrantAccess(t.Context(), group, "a", read, nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
}

func TestUploadedDiskIsReadyAfterItsAccessEnds(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	d := s.disk("a", func(d *armcompute.Disk) {
		d.Properties.DiskSizeGB = nil
		d.Properties.CreationData = &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionUpload), UploadSizeBytes: to.Ptr[int64](4<<30 + 512)}
	})
	if *d.Properties.DiskState != armcompute.DiskStateReadyToUpload || *d.Properties.DiskSizeGB != 5 {
		t.Errorf("disk is %+v", d.Properties)
	}
	_, err := s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	p, err := s.disks.BeginGrantAccess(t.Context(), group, "a", armcompute.GrantAccessData{Access: to.Ptr(armcompute.AccessLevelWrite), DurationInSeconds: to.Ptr[int32](60)}, nil)
	finish(t, p, err)
	if st := *s.getDisk("a").Properties.DiskState; st != armcompute.DiskStateActiveUpload {
		t.Errorf("disk is %s, want %s", st, armcompute.DiskStateActiveUpload)
	}
	end, err := s.disks.BeginRevokeAccess(t.Context(), group, "a", nil)
	finish(t, end, err)
	s.attach("node", "a")
}
