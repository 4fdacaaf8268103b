package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// patch changes a disk and waits.
func (s *simulator) patch(name string, change func(*armcompute.DiskUpdate)) (armcompute.Disk, error) {
	u := armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{}}
	change(&u)
	p, err := s.disks.BeginUpdate(s.t.Context(), group, name, u, nil)
	if err != nil {
		return armcompute.Disk{}, err
	}
	return finish(s.t, p, nil).Disk, nil
}

func toSKU(name armcompute.DiskStorageAccountTypes) func(*armcompute.DiskUpdate) {
	return func(u *armcompute.DiskUpdate) { u.SKU = &armcompute.DiskSKU{Name: &name} }
}

func of(change func(*armcompute.DiskUpdateProperties)) func(*armcompute.DiskUpdate) {
	return func(u *armcompute.DiskUpdate) { change(u.Properties) }
}

func TestNetworkAccessOfADisk(t *testing.T) {
	s := start(t)
	s.disk("a")
	private := to.Ptr(armcompute.NetworkAccessPolicyAllowPrivate)
	for name, change := range map[string]func(*armcompute.DiskUpdateProperties){
		"private access without an endpoint": func(p *armcompute.DiskUpdateProperties) { p.NetworkAccessPolicy = private },
		"a disk access that is not used":     func(p *armcompute.DiskUpdateProperties) { p.DiskAccessID = to.Ptr("/x") },
		"a policy that does not exist": func(p *armcompute.DiskUpdateProperties) {
			p.NetworkAccessPolicy = to.Ptr(armcompute.NetworkAccessPolicy("Friends"))
		},
	} {
		_, err := s.patch("a", of(change))
		if err == nil {
			t.Fatalf("%s: taken", name)
		}
		expectCode(t, responseError(t, err), 400, "InvalidParameter")
	}
	if _, err := s.patch("a", of(func(p *armcompute.DiskUpdateProperties) {
		p.NetworkAccessPolicy, p.DiskAccessID = private, to.Ptr(s.linked("diskAccesses", "x"))
	})); err != nil {
		t.Fatal(err)
	}
	d, err := s.patch("a", of(func(p *armcompute.DiskUpdateProperties) {
		p.NetworkAccessPolicy = to.Ptr(armcompute.NetworkAccessPolicyDenyAll)
	}))
	if err != nil || d.Properties.DiskAccessID != nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
}

func TestBurstingOfADisk(t *testing.T) {
	s := start(t)
	s.disk("a", sizeGB(1024))
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	bursting := func(on bool) func(*armcompute.DiskUpdate) {
		return of(func(p *armcompute.DiskUpdateProperties) { p.BurstingEnabled = &on })
	}
	_, err := s.patch("a", bursting(true))
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	s.detach("node", "a")
	if d, err := s.patch("a", bursting(true)); err != nil || !*d.Properties.BurstingEnabled ||
		d.Properties.BurstingEnabledTime == nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
	_, err = s.patch("a", bursting(false)) // 12 hours have not passed
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	if d, err := s.patch("a", toSKU(ssd)); err != nil || d.Properties.BurstingEnabled != nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
}
