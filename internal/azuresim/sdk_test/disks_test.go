package sdk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

const (
	premiumV2 = armcompute.DiskStorageAccountTypesPremiumV2LRS
	ultra     = armcompute.DiskStorageAccountTypesUltraSSDLRS
	standard  = armcompute.DiskStorageAccountTypesStandardLRS
	ssd       = armcompute.DiskStorageAccountTypesStandardSSDLRS
)

func with(change func(*armcompute.DiskProperties)) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) { change(d.Properties) }
}

func TestSomeRegionsHavePremiumV2InNoZone(t *testing.T) {
	s := start(t)
	regional := func(d *armcompute.Disk) { d.Location = to.Ptr("germanywestcentral") }
	if d := s.disk("a", sku(premiumV2), regional); len(d.Zones) > 0 {
		t.Errorf("zones are %v, want none", d.Zones)
	}
	p, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "b",
		diskParams(sku(armcompute.DiskStorageAccountTypesUltraSSDLRS), regional), nil)
	expectCode(t, failure(t, p, err), 400, "InvalidParameter")
}

func TestDiskRules(t *testing.T) {
	s := start(t)
	type changes = []func(*armcompute.Disk)
	tier := func(name string) func(*armcompute.Disk) {
		return with(func(p *armcompute.DiskProperties) { p.Tier = &name })
	}
	bursting := with(func(p *armcompute.DiskProperties) { p.BurstingEnabled = to.Ptr(true) })
	tag := func(name, value string) func(*armcompute.Disk) {
		return func(d *armcompute.Disk) { d.Tags = map[string]*string{name: &value} }
	}
	tags := func(n int) func(*armcompute.Disk) {
		return func(d *armcompute.Disk) {
			d.Tags = map[string]*string{}
			for i := range n {
				d.Tags[fmt.Sprint("t", i)] = to.Ptr("v")
			}
		}
	}
	iops := func(n int64) func(*armcompute.Disk) {
		return with(func(p *armcompute.DiskProperties) { p.DiskIOPSReadWrite = &n })
	}
	for name, tc := range map[string]struct {
		changes changes
		code    string // empty: accepted
	}{
		"three shares at 512 GiB":               {changes{sizeGB(512), shares(3)}, ""},
		"four shares at 512 GiB":                {changes{sizeGB(512), shares(4)}, "InvalidParameter"},
		"five shares at 1 TiB":                  {changes{sizeGB(1024), shares(5)}, ""},
		"ten shares at 8 TiB":                   {changes{sizeGB(8192), shares(10)}, ""},
		"eleven shares at 8 TiB":                {changes{sizeGB(8192), shares(11)}, "InvalidParameter"},
		"shares of a standard SSD":              {changes{sku(ssd), sizeGB(64), shares(3)}, ""},
		"shares of a hard disk":                 {changes{sku(standard), shares(2)}, "InvalidParameter"},
		"fifteen shares of Premium v2":          {changes{sku(premiumV2), zone("1"), shares(15)}, ""},
		"no shares at all":                      {changes{shares(0)}, "InvalidParameter"},
		"size zero":                             {changes{sizeGB(0)}, "InvalidParameter"},
		"the largest premium disk":              {changes{sizeGB(32767)}, ""},
		"one more than the largest":             {changes{sizeGB(32768)}, "InvalidParameter"},
		"the largest ultra disk":                {changes{sku(ultra), zone("1"), sizeGB(65536), iops(100000)}, ""},
		"the smallest ultra disk":               {changes{sku(ultra), zone("1"), sizeGB(4), iops(4000)}, ""},
		"an ultra disk of 3 GiB":                {changes{sku(ultra), zone("1"), sizeGB(3)}, "InvalidParameter"},
		"IOPS of an ultra disk beyond its size": {changes{sku(ultra), zone("1"), sizeGB(4), iops(4001)}, "InvalidParameter"},
		"two zones": {changes{func(d *armcompute.Disk) {
			d.Zones = []*string{to.Ptr("1"),
				to.Ptr("2")}
		}}, "InvalidAvailabilityZone"},
		"a zone for a zone-redundant disk": {changes{sku(armcompute.DiskStorageAccountTypesPremiumZRS), zone("1")},
			"InvalidParameter"},
		"Premium v2 without a zone":             {changes{sku(premiumV2)}, "InvalidParameter"},
		"IOPS of Premium v2 within bounds":      {changes{sku(premiumV2), zone("1"), iops(8000)}, ""},
		"IOPS of Premium v2 beyond 500 per GiB": {changes{sku(premiumV2), zone("1"), iops(8001)}, "InvalidParameter"},
		"a higher tier":                         {changes{sizeGB(128), tier("P30")}, ""},
		"a lower tier":                          {changes{sizeGB(128), tier("P6")}, "InvalidParameter"},
		"a tier for a standard SSD":             {changes{sku(ssd), tier("E20")}, "InvalidParameter"},
		"bursting above 512 GiB":                {changes{sizeGB(1024), bursting}, ""},
		"bursting at 512 GiB":                   {changes{sizeGB(512), bursting}, "InvalidParameter"},
		"bursting of a shared disk":             {changes{sizeGB(1024), shares(2), bursting}, "InvalidParameter"},
		"a tag value of 256 ideographs":         {changes{tag("n", strings.Repeat("\u6f22", 256))}, ""},
		"a tag value of 257 characters":         {changes{tag("n", strings.Repeat("v", 257))}, "InvalidTagValueLength"},
		"a tag value of 129 emoji":              {changes{tag("n", strings.Repeat("\U0001f600", 129))}, "InvalidTagValueLength"},
		"a tag name of 513 characters":          {changes{tag(strings.Repeat("n", 513), "v")}, "InvalidTagNameLength"},
		"a tag name with a slash":               {changes{tag("a/b", "v")}, "InvalidTagNameCharacters"},
		"50 tags":                               {changes{tags(50)}, ""},
		"51 tags":                               {changes{tags(51)}, "TooManyTags"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "d", diskParams(tc.changes...), nil)
			if tc.code != "" {
				expectCode(t, failure(t, p, err), 400, tc.code)
				return
			}
			finish(t, p, err)
			del, err := s.disks.BeginDelete(t.Context(), group, "d", nil)
			finish(t, del, err)
		})
	}
}

func TestDiskGrowsButNeverShrinks(t *testing.T) {
	s := start(t)
	s.disk("a")
	grow := func(n int32) func(*armcompute.DiskUpdate) {
		return of(func(p *armcompute.DiskUpdateProperties) { p.DiskSizeGB = &n })
	}
	d, err := s.patch("a", grow(64))
	if err != nil || *d.Properties.DiskSizeGB != 64 || *d.Properties.DiskSizeBytes != 64<<30 || *d.Properties.Tier != "P6" {
		t.Errorf("grown disk: %+v, %v", d.Properties, err)
	}
	_, err = s.patch("a", grow(32))
	if re := responseError(t, err); !strings.Contains(re.Error(), "cannot be resized down") {
		t.Errorf("got %v, want that the disk cannot be resized down", re)
	}
	_, err = s.patch("nowhere", grow(32))
	expectCode(t, responseError(t, err), 404, "ResourceNotFound")
}

func TestListsComeInPages(t *testing.T) {
	s := start(t, func(o *server.Options) {
		o.PageSize = 3
		o.ResourceGroups = []string{group, "other"}
	})
	for i := range 7 {
		s.disk(fmt.Sprintf("d%d", i))
	}
	p, err := s.disks.BeginCreateOrUpdate(t.Context(), "other", "elsewhere", diskParams(), nil)
	finish(t, p, err)

	here, n := pages(t, s.disks.NewListByResourceGroupPager(group, nil),
		func(p armcompute.DisksClientListByResourceGroupResponse) []*armcompute.Disk { return p.Value })
	names := map[string]bool{}
	for _, d := range here {
		names[*d.Name] = true
	}
	if n != 3 || len(names) != 7 || names["elsewhere"] {
		t.Errorf("%d pages with %v", n, names)
	}
	all, _ := pages(t, s.disks.NewListPager(nil),
		func(p armcompute.DisksClientListResponse) []*armcompute.Disk { return p.Value })
	if len(all) != 8 {
		t.Errorf("subscription has %d disks, want 8", len(all))
	}
}

func TestWritesToADiskAtWorkConflict(t *testing.T) {
	s := start(t)
	s.hold("disk.create", "a")
	first, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "a", diskParams(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.disks.BeginCreateOrUpdate(t.Context(), group, "a", diskParams(), nil)
	expectCode(t, responseError(t, err), 409, "Conflict")
	s.vm("node", "Standard_D4s_v5")
	_, err = s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "Conflict")
	finish(t, first, nil)
}

func TestUnknownResourceGroupAndSubscription(t *testing.T) {
	s := start(t)
	_, err := s.disks.BeginCreateOrUpdate(t.Context(), "nowhere", "a", diskParams(), nil)
	expectCode(t, responseError(t, err), 404, "ResourceGroupNotFound")
	f, err := armcompute.NewClientFactory("11111111-0000-0000-0000-000000000000", simtest.Simulator{}.Credential(),
		clientOptions(s.url, nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.NewDisksClient().Get(t.Context(), group, "a", nil)
	expectCode(t, responseError(t, err), 404, "SubscriptionNotFound")
}
