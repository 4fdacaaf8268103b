package sdk_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

// usage returns what the usages list says of a counter.
func (s *simulator) usage(location, name string) (current int32, limit int64) {
	s.t.Helper()
	all, _ := pages(s.t, s.factory.NewUsageClient().NewListPager(location, nil),
		func(p armcompute.UsageClientListResponse) []*armcompute.Usage { return p.Value })
	for _, u := range all {
		if *u.Name.Value == name {
			return *u.CurrentValue, *u.Limit
		}
	}
	s.t.Fatalf("there is no counter %s in %s", name, location)
	return 0, 0
}

func TestUsagesCountTheDisksOfALocation(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("b", sku(armcompute.DiskStorageAccountTypesUltraSSDLRS), zone("1"), sizeGB(100))
	s.disk("c", func(d *armcompute.Disk) { d.Location = to.Ptr("westeurope") })
	p, err := s.snapshots.BeginCreateOrUpdate(t.Context(), group, "s", armcompute.Snapshot{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.SnapshotProperties{CreationData: &armcompute.CreationData{
			CreateOption:     to.Ptr(armcompute.DiskCreateOptionCopy),
			SourceResourceID: to.Ptr(diskID("a")),
		}},
	}, nil)
	finish(t, p, err)
	for name, want := range map[string]int32{
		"PremiumDiskCount":     1,
		"UltraSSDDiskCount":    1,
		"UltraSSDDiskSizeInGB": 100,
		"StandardDiskCount":    0,
		"virtualMachines":      0,

		"StandardSnapshotCount": 1,
		"PremiumSnapshotCount":  0,
		"ZRSSnapshotCount":      0,
		"availabilitySets":      0,
	} {
		if current, limit := s.usage("East US", name); current != want || limit < 1000 {
			t.Errorf("%s: %d of %d, want %d", name, current, limit, want)
		}
	}
	del, err := s.disks.BeginDelete(t.Context(), group, "a", nil)
	finish(t, del, err)
	if current, _ := s.usage("eastus", "PremiumDiskCount"); current != 0 {
		t.Errorf("%d disks after the deletion, want %d", current, 0)
	}
	_, err = s.factory.NewUsageClient().NewListPager("atlantis", nil).NextPage(t.Context())
	expectCode(t, responseError(t, err), 400, "LocationNotAvailableForResourceType")
}

func TestTheQuotaIsKept(t *testing.T) {
	s := start(t, func(o *server.Options) { o.Quotas = []string{"PremiumDiskCount=1", "UltraSSDDiskSizeInGB=100"} })
	refused := func(name string, change ...func(*armcompute.Disk)) string {
		t.Helper()
		p, err := s.disks.BeginCreateOrUpdate(t.Context(), group, name, diskParams(change...), nil)
		re := failure(t, p, err)
		expectCode(t, re, 409, "OperationNotAllowed")
		return re.Error()
	}
	s.disk("a")
	if text := refused("b"); !strings.Contains(text, "exceeding approved PremiumDiskCount quota") ||
		!strings.Contains(text, "Current Limit: 1, Current Usage: 1, Additional Required: 1") {
		t.Error(text)
	}
	s.disk("a", sizeGB(32)) // growing it takes no further disk
	s.disk("c", sku(armcompute.DiskStorageAccountTypesUltraSSDLRS), zone("1"), sizeGB(60))
	refused("d", sku(armcompute.DiskStorageAccountTypesUltraSSDLRS), zone("1"), sizeGB(41))
	grow, err := s.disks.BeginUpdate(t.Context(), group, "c",
		armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{DiskSizeGB: to.Ptr[int32](101)}}, nil)
	expectCode(t, failure(t, grow, err), 409, "OperationNotAllowed")
	other := s.disk("e", sku(ssd))
	convert, err := s.disks.BeginUpdate(t.Context(), group, *other.Name,
		armcompute.DiskUpdate{SKU: &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesPremiumLRS)}}, nil)
	expectCode(t, failure(t, convert, err), 409, "OperationNotAllowed")

	if status := s.adminCall("PUT", "/admin/quotas/PremiumDiskCount", map[string]int{"limit": 2}, nil); status != 204 {
		t.Errorf("the admin API answered %d, want %d", status, 204)
	}
	s.disk("b")
	s.adminCall("PUT", "/admin/quotas/PremiumDiskCount", map[string]any{"limit": nil}, nil)
	if current, limit := s.usage("eastus", "PremiumDiskCount"); current != 2 || limit != 50000 {
		t.Errorf("%d of %d, want %d, %d", current, limit, 2, 50000)
	}
	if status := s.adminCall("PUT", "/admin/quotas/Golden", map[string]int{"limit": 2}, nil); status != 404 {
		t.Errorf("a counter that does not exist: the admin API answered %d, want %d", status, 404)
	}
}

func TestAZoneMayLackASKU(t *testing.T) {
	s := start(t)
	in := func(location string) func(*armcompute.Disk) {
		return func(d *armcompute.Disk) { d.Location = &location }
	}
	s.disk("there", sku(premiumV2), in("southeastasia"), zone("2"))
	p, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "not-there",
		diskParams(sku(premiumV2), in("southeastasia"), zone("3")), nil)
	expectCode(t, failure(t, p, err), 409, "SkuNotAvailable")
	filter := "location eq 'southeastasia'"
	page, err := s.factory.NewResourceSKUsClient().NewListPager(
		&armcompute.ResourceSKUsClientListOptions{Filter: &filter}).NextPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range page.Value {
		if *entry.ResourceType == "disks" && *entry.Name == "PremiumV2_LRS" && len(entry.LocationInfo[0].Zones) != 2 {
			t.Errorf("the SKU list names %d zones", len(entry.LocationInfo[0].Zones))
		}
	}
}
