package volumeparams_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestUltraDisksHaveTheDefaultsOfV1(t *testing.T) {
	t.Parallel()
	for gib, want := range map[int64]volumeparams.Performance{
		4: {IOPS: 500, MBps: 100}, 500: {IOPS: 500, MBps: 100}, 1024: {IOPS: 1024, MBps: 100}, 16384: {IOPS: 16384, MBps: 100},
		// V1 asks for 128 and 256 MB/s here, which is a little below 4 KiB for each IOPS.
		32768: {IOPS: 32768, MBps: 132}, 65536: {IOPS: 65536, MBps: 263},
	} {
		p, err := volumeparams.Parse(map[string]string{"skuName": "UltraSSD_LRS"})
		if err != nil {
			t.Fatal(err)
		}
		p.SetDefaultPerformance(gib << 30)
		if got := (volumeparams.Performance{IOPS: *p.DiskIOPSReadWrite, MBps: *p.DiskMBpsReadWrite}); got != want {
			t.Errorf("%d GiB: %+v, want %+v", gib, got, want)
		}
		if err := p.CheckSize(gib << 30); err != nil {
			t.Errorf("%d GiB: the default is refused: %v", gib, err)
		}
	}
	for name, raw := range map[string]map[string]string{
		"the other SKU":   {"skuName": "PremiumV2_LRS"},
		"with IOPS given": {"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "2000"},
		"MBps given":      {"skuName": "UltraSSD_LRS", "diskMBpsReadWrite": "50"},
	} {
		p, err := volumeparams.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(p.DiskIOPSReadWrite == nil, p.DiskMBpsReadWrite == nil)
		p.SetDefaultPerformance(64 << 30)
		if after := fmt.Sprint(p.DiskIOPSReadWrite == nil, p.DiskMBpsReadWrite == nil); after != before {
			t.Errorf("%s: something was filled in", name)
		}
	}
}

// Sources of the limits: https://learn.microsoft.com/azure/virtual-machines/disks-types, Ultra Disk
// IOPS and Premium SSD v2 IOPS.
func TestIOPSForEachGiBAreWithinTheLimitsAndGrow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sku, perGB string
		from, to   int64 // GiB
		want       [2]int64
	}{
		"Ultra":                           {"UltraSSD_LRS", "50", 100, 200, [2]int64{5000, 10000}},
		"Ultra below its least":           {"UltraSSD_LRS", "1", 4, 200, [2]int64{100, 200}},
		"Ultra above its most":            {"UltraSSD_LRS", "1000", 300, 401, [2]int64{300000, 400000}},
		"Ultra by default":                {"UltraSSD_LRS", "", 500, 600, [2]int64{500, 600}},
		"Premium v2":                      {"PremiumV2_LRS", "50", 100, 200, [2]int64{5000, 10000}},
		"Premium v2 below its least":      {"PremiumV2_LRS", "5", 10, 1000, [2]int64{3000, 5000}},
		"Premium v2 above its most":       {"PremiumV2_LRS", "600", 10, 200, [2]int64{5000, 80000}},
		"Premium v2, which does not grow": {"PremiumV2_LRS", "50", 100, 100, [2]int64{5000, 5000}},
	} {
		p, err := volumeparams.Parse(map[string]string{"skuName": test.sku, "iopsPerGB": test.perGB})
		if err != nil {
			t.Fatal(err)
		}
		p.SetDefaultPerformance(test.from << 30)
		created := *p.DiskIOPSReadWrite
		if err := p.CheckSize(test.from << 30); err != nil {
			t.Errorf("%s: refused when created: %v", name, err)
		}
		p.RaiseIOPS(test.to << 30)
		if got := [2]int64{created, *p.DiskIOPSReadWrite}; got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
		if err := p.CheckSize(test.to << 30); err != nil {
			t.Errorf("%s: refused when grown: %v", name, err)
		}
	}
	// The most throughput depends on the IOPS.
	class := map[string]string{"skuName": "UltraSSD_LRS", "iopsPerGB": "50", "diskMBpsReadWrite": "1250"}
	if p, err := volumeparams.Parse(class); err != nil || p.CheckSize(100<<30) != nil || p.CheckSize(90<<30) == nil {
		t.Errorf("%v: got %v, want a class for disks from 100 GiB on", class, err)
	}
	more := int64(9000)
	p := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
		IOPSPerGiB:   10,
		DiskSettings: apiv1.DiskSettings{SKUName: "PremiumV2_LRS", DiskIOPSReadWrite: &more},
	}}
	if p.RaiseIOPS(400 << 30); *p.DiskIOPSReadWrite != 9000 {
		t.Errorf("got %d IOPS, want 9000: a growth lowers none", *p.DiskIOPSReadWrite)
	}
}

func TestPerformanceGoesWithTheSize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw  map[string]string
		gib  int64
		says []string // nothing for what is allowed
	}{
		"Ultra within its range": {
			map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "1200", "diskMBpsReadWrite": "300"}, 4,
			nil},
		"Ultra with more IOPS than its size gives": {
			map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "4001"}, 4,
			[]string{"diskIOPSReadWrite", "4001", "100 to 4000", "4 GiB"}},
		"Ultra with fewer IOPS than any has": {map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "99"},
			1024, []string{"diskIOPSReadWrite", "99", "100 to"}},
		"Ultra with more throughput than its IOPS": {
			map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "1000", "diskMBpsReadWrite": "257"}, 64,
			[]string{"diskMBpsReadWrite", "257", "1 to 256", "1000 IOPS"}},
		"Premium v2 within its range": {
			map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "5000", "diskMBpsReadWrite": "600"}, 10,
			nil},
		"Premium v2 below its least": {map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "2999"}, 10,
			[]string{"diskIOPSReadWrite", "2999", "3000 to 5000"}},
		"Premium v2 with too much throughput": {
			map[string]string{"skuName": "PremiumV2_LRS", "diskMBpsReadWrite": "751"}, 10,
			[]string{"diskMBpsReadWrite", "751", "125 to 750"}},
		"a tier above the size's": {map[string]string{"skuName": "Premium_LRS", "tier": "p50"}, 128, nil},
		"the tier of the size":    {map[string]string{"skuName": "Premium_ZRS", "tier": "P10"}, 128, nil},
		"a tier below the size's": {map[string]string{"skuName": "Premium_LRS", "tier": "P6"}, 128,
			[]string{"tier", "P6", "P10"}},
		"a tier for large disks on a small one": {map[string]string{"skuName": "Premium_LRS", "tier": "P60"}, 4096,
			[]string{"tier", "P60", "4096 GiB"}},
		"a tier for large disks on a large one": {map[string]string{"skuName": "Premium_LRS", "tier": "P80"}, 4097, nil},
		"bursting of a disk that is too small": {map[string]string{"skuName": "Premium_LRS", "enableBursting": "true"},
			512, []string{"enableBursting", "512 GiB"}},
		"bursting of a large disk": {map[string]string{"skuName": "Premium_LRS", "enableBursting": "TRUE"}, 513, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := volumeparams.Parse(test.raw)
			if err != nil {
				t.Fatal(err)
			}
			err = p.CheckSize(test.gib << 30)
			if len(test.says) == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatalf("error %v", err)
			}
			for _, text := range test.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not name %q", err, text)
				}
			}
		})
	}
}

func TestPerformanceOfADisk(t *testing.T) {
	t.Parallel()
	iops, mbps := int64(9000), int64(700)
	for name, test := range map[string]struct {
		p    volumeparams.Parameters
		gib  int64
		want volumeparams.Performance
	}{
		"Premium by its size": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}}}, 1024, volumeparams.Performance{
			IOPS: 5000,
			MBps: 200,
		}},
		"Premium between two sizes": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_ZRS"}}}, 1025, volumeparams.Performance{
			IOPS: 7500,
			MBps: 250,
		}},
		"Premium by its tier": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
			SKUName: "Premium_LRS",
			Tier:    "P30",
		}}}, 4, volumeparams.Performance{IOPS: 5000, MBps: 200}},
		"a tier that the size outgrew": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
			DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS", Tier: "P30"},
		}}, 16384, volumeparams.Performance{IOPS: 18000, MBps: 750}},
		"Standard SSD": {volumeparams.Parameters{}, 10, volumeparams.Performance{IOPS: 500, MBps: 100}},
		"Standard HDD": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Standard_LRS"}}}, 8192, volumeparams.Performance{
			IOPS: 1300,
			MBps: 300,
		}},
		"Premium v2 without a word": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "PremiumV2_LRS"}}}, 100, volumeparams.Performance{
			IOPS: 3000,
			MBps: 125,
		}},
		"Ultra without a word": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "UltraSSD_LRS"}}}, 100, volumeparams.Performance{
			IOPS: 500,
			MBps: 100,
		}},
		"Ultra as provisioned": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
			SKUName:           "UltraSSD_LRS",
			DiskIOPSReadWrite: &iops,
			DiskMBpsReadWrite: &mbps,
		}}}, 100, volumeparams.Performance{IOPS: iops, MBps: mbps}},
		"the largest there is and more": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}}}, 40000, volumeparams.Performance{
			IOPS: 20000,
			MBps: 900,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.p.Performance(test.gib << 30); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
