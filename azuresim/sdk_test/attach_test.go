package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

func TestDiskIsCreatedAttachedDetachedAndDeleted(t *testing.T) {
	s := start(t)
	d := s.disk("data")
	if *d.Properties.DiskState != armcompute.DiskStateUnattached || *d.Properties.ProvisioningState != "Succeeded" || *d.Properties.DiskSizeBytes != 16<<30 {
		t.Errorf("fresh disk: %+v", d.Properties)
	}
	vm := s.vm("node", "Standard_D4s_v5")
	if *vm.Properties.ProvisioningState != "Succeeded" || *vm.Properties.OSProfile.ComputerName != "host" {
		t.Errorf("fresh VM: %+v", vm.Properties)
	}

	profile := s.attach("node", "data")
	if len(profile.DataDisks) != 1 || *profile.DataDisks[0].Lun != 0 || *profile.DataDisks[0].ManagedDisk.ID != diskID("data") {
		t.Errorf("after attach: %+v", profile.DataDisks)
	}
	d = s.getDisk("data")
	if *d.Properties.DiskState != armcompute.DiskStateAttached || d.ManagedBy == nil || *d.ManagedBy != *vm.ID {
		t.Errorf("attached disk: state %v, managedBy %v", *d.Properties.DiskState, d.ManagedBy)
	}

	if profile = s.detach("node", "data"); len(profile.DataDisks) != 0 {
		t.Errorf("after detach: %+v, want len(profile.DataDisks) = %v", profile.DataDisks, 0)
	}
	if d = s.getDisk("data"); *d.Properties.DiskState != armcompute.DiskStateUnattached || d.ManagedBy != nil {
		t.Errorf("detached disk: state %v, managedBy %v, want %v, nil", *d.Properties.DiskState, d.ManagedBy, armcompute.DiskStateUnattached)
	}

	p, err := s.disks.BeginDelete(t.Context(), group, "data", nil)
	finish(t, p, err)
	_, err = s.disks.Get(t.Context(), group, "data", nil)
	expectCode(t, responseError(t, err), 404, "ResourceNotFound")
	p, err = s.disks.BeginDelete(t.Context(), group, "data", nil)
	finish(t, p, err)
}

func TestAttachAndDetachInOneCall(t *testing.T) {
	s := start(t)
	s.disk("old")
	s.disk("new")
	s.vm("node", "Standard_D2s_v5")
	s.attach("node", "old")
	r := attachments("new")
	r.DataDisksToAttach[0].Lun = to.Ptr[int32](7)
	r.DataDisksToAttach[0].Caching = to.Ptr(armcompute.CachingTypesReadOnly)
	r.DataDisksToDetach = detachments("old").DataDisksToDetach
	p, err := s.begin("node", r)
	got := finish(t, p, err).DataDisks
	if len(got) != 1 || *got[0].Lun != 7 || *got[0].Caching != armcompute.CachingTypesReadOnly {
		t.Errorf("got %+v", got)
	}
}
