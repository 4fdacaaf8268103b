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
