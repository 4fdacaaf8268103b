package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
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

func TestOnePatchChangesManyThings(t *testing.T) {
	s := start(t)
	s.disk("a", sku(premiumV2), zone("1"), shares(2))
	d, err := s.patch("a", func(u *armcompute.DiskUpdate) {
		u.Tags = map[string]*string{"a": to.Ptr("b")}
		u.Properties = &armcompute.DiskUpdateProperties{
			DiskSizeGB: to.Ptr[int32](64), DiskIOPSReadWrite: to.Ptr[int64](20000), DiskMBpsReadWrite: to.Ptr[int64](500),
			DiskIOPSReadOnly: to.Ptr[int64](1000), DiskMBpsReadOnly: to.Ptr[int64](50),
			NetworkAccessPolicy: to.Ptr(armcompute.NetworkAccessPolicyDenyAll), PublicNetworkAccess: to.Ptr(armcompute.PublicNetworkAccessDisabled),
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p := d.Properties
	if *p.DiskSizeGB != 64 || *p.DiskIOPSReadWrite != 20000 || *p.DiskMBpsReadWrite != 500 || *p.DiskIOPSReadOnly != 1000 || *p.DiskMBpsReadOnly != 50 ||
		*p.NetworkAccessPolicy != "DenyAll" || *p.PublicNetworkAccess != "Disabled" || *d.Tags["a"] != "b" {
		t.Fatalf("%+v", p)
	}
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
		p.NetworkAccessPolicy, p.DiskAccessID = private, to.Ptr("/x")
	})); err != nil {
		t.Fatal(err)
	}
	d, err := s.patch("a", of(func(p *armcompute.DiskUpdateProperties) {
		p.NetworkAccessPolicy, p.DiskAccessID = to.Ptr(armcompute.NetworkAccessPolicyDenyAll), azcore.NullValue[*string]()
	}))
	if err != nil || d.Properties.DiskAccessID != nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
}

func TestTierOfADisk(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("shared", shares(2))
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a", "shared")
	tier := func(name string) func(*armcompute.DiskUpdate) {
		return of(func(p *armcompute.DiskUpdateProperties) { p.Tier = &name })
	}
	if d, err := s.patch("a", tier("P30")); err != nil || *d.Properties.Tier != "P30" {
		t.Fatalf("in use: %v", err)
	}
	_, err := s.patch("shared", tier("P30"))
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	s.detach("node", "shared")
	if _, err := s.patch("shared", tier("P30")); err != nil {
		t.Fatal(err)
	}
	// A disk that becomes another kind does not keep it.
	s.detach("node", "a")
	if d, err := s.patch("a", toSKU(ssd)); err != nil || *d.Properties.Tier != "E3" {
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
	if d, err := s.patch("a", bursting(true)); err != nil || !*d.Properties.BurstingEnabled || d.Properties.BurstingEnabledTime == nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
	_, err = s.patch("a", bursting(false)) // 12 hours have not passed
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	if d, err := s.patch("a", toSKU(ssd)); err != nil || d.Properties.BurstingEnabled != nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
}

func TestConversionOfADisk(t *testing.T) {
	s := start(t)
	for _, name := range []string{"a", "b", "c"} {
		s.disk(name, zone("1"))
	}
	s.disk("shared", zone("1"), shares(2))
	s.disk("u", zone("1"), sku(ultra))
	s.disk("v2", zone("1"), sku(premiumV2))
	s.vm("node", "Standard_D8s_v5", vmZone("1"))
	for name, target := range map[string]armcompute.DiskStorageAccountTypes{"a": ultra, "u": ssd, "v2": ssd, "b": armcompute.DiskStorageAccountTypesPremiumZRS} {
		_, err := s.patch(name, toSKU(target))
		if err == nil {
			t.Fatalf("%s became %s", name, target)
		}
		expectCode(t, responseError(t, err), 400, "PropertyChangeNotAllowed")
	}
	r := attachments("a", "b", "shared")
	r.DataDisksToAttach[0].Caching = to.Ptr(armcompute.CachingTypesReadOnly)
	p, err := s.begin("node", r)
	finish(t, p, err)
	for name, target := range map[string]armcompute.DiskStorageAccountTypes{"a": premiumV2, "b": ssd, "shared": premiumV2} {
		_, err := s.patch(name, toSKU(target))
		if err == nil {
			t.Fatalf("%s became %s in use", name, target)
		}
		expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
	}
	// Under a VM that does not cache it a disk becomes a Premium v2 one, in the background.
	d, err := s.patch("b", toSKU(premiumV2))
	if err != nil || *d.SKU.Name != premiumV2 || *d.Properties.DiskIOPSReadWrite != 3000 || d.Properties.CompletionPercent == nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
	s.eventually("converted", func() bool { return *s.getDisk("b").Properties.CompletionPercent == 100 })
	if d, err := s.patch("c", toSKU(ssd)); err != nil || *d.SKU.Name != ssd || d.Properties.CompletionPercent != nil {
		t.Fatalf("%+v, %v", d.Properties, err)
	}
}
