package volumeparams_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const sizeBytes = 1024 * volumeparams.GiB

func TestClassesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class map[string]string
		says  []string
	}{
		"misspelt": {map[string]string{"diskIOPSReadWrit": "5000"}, []string{"not known", "diskIOPSReadWrite"}},
		"of a StorageClass only": {map[string]string{"fsType": "xfs", "maxShares": "2", "zoned": "true"},
			[]string{"fsType", "maxShares", "zoned", "cannot be changed", "skuName"}},
		"a setting of the device": {map[string]string{"device-setting/queue/nr_requests": "8"}, []string{"cannot be changed"}},
		"given twice": {map[string]string{"skuName": "Premium_LRS", "storageAccountType": "Standard_LRS"},
			[]string{"given twice"}},
		"no number":             {map[string]string{"diskIOPSReadWrite": "many"}, []string{"diskIOPSReadWrite", "many"}},
		"a tag without a value": {map[string]string{"tags": "lonely"}, []string{"tags", "lonely"}},
		"a tag that marks the driver's disks": {map[string]string{"tags": "disk.csi.azure.com-volume-uid=mine"},
			[]string{"disk.csi.azure.com-volume-uid"}},
		"a tag of the driver's that is removed": {map[string]string{"removeTags": "team,K8S-Azure-Created-By"},
			[]string{"removeTags", "K8S-Azure-Created-By", "the driver sets itself"}},
		"a tag that is set and removed": {map[string]string{"tags": "team=db", "removeTags": "Team"},
			[]string{"removeTags", "Team", "tags does not set"}},
		"a tag that cannot be, removed": {map[string]string{"removeTags": "a=b"}, []string{"removeTags", "a=b", "names of tags"}},
		"the tag of the write accelerator": {map[string]string{"tags": "WriteAcceleratorEnabled=true"},
			[]string{"WriteAcceleratorEnabled"}},
		"IOPS, and IOPS for each GiB": {map[string]string{
			"diskIOPSReadWrite": "5000",
			"iopsPerGB":         "5",
		}, []string{"iopsPerGB", `"5"`, "diskIOPSReadWrite"}},
		"a tag with a label": {map[string]string{"tags": "team=${pvc.labels.team}"},
			[]string{"team=${pvc.labels.team}", "StorageClass only"}},
		"several faults are told all at once": {map[string]string{"tier": "Q1", "enableBursting": "maybe"},
			[]string{"tier", "Q1", "enableBursting", "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := volumeparams.ParseChange(test.class)
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatalf("%v, want InvalidArgument", err)
			}
			for _, words := range test.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not name %q", err, words)
				}
			}
		})
	}
}

func TestWhatADiskCanBecome(t *testing.T) {
	t.Parallel()
	n := int64(3000)
	premium := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
		CachingMode:  "ReadOnly",
		DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS", NetworkAccessPolicy: "DenyAll"},
	}}
	shared := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
		CachingMode:  "None",
		MaxShares:    3,
		DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"},
	}}
	v2 := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName:           "PremiumV2_LRS",
		DiskIOPSReadWrite: &n,
	}}}
	many := int64(20000)
	fast := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
		IOPSPerGiB:   20,
		DiskSettings: apiv1.DiskSettings{SKUName: "PremiumV2_LRS", DiskIOPSReadWrite: &many},
	}}
	tiered := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName: "Premium_LRS",
		Tier:    "P50",
	}}}
	bursting := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName:         "Premium_LRS",
		BurstingEnabled: true,
	}}}
	private := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName:             "Premium_LRS",
		NetworkAccessPolicy: "AllowPrivate",
		DiskAccessID:        "/subscriptions/x",
	}}}
	tagged := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName: "Premium_LRS",
		Tags:    map[string]string{"a": "1", "b": "1"},
	}}}
	untagged := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{
		SKUName:     "Premium_LRS",
		RemovedTags: []string{"gone", "other"},
	}}}
	for name, test := range map[string]struct {
		disk  volumeparams.Parameters
		class map[string]string
		says  string // "" for yes
		check func(volumeparams.Parameters) bool
	}{
		"another SKU": {premium, map[string]string{"skuName": "StandardSSD_LRS"}, "",
			func(p volumeparams.Parameters) bool {
				return p.SKUName == "StandardSSD_LRS" && p.CachingMode == "ReadOnly"
			}},
		"Premium v2, which is not cached": {premium,
			map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "4000"}, "",
			func(p volumeparams.Parameters) bool { return p.CachingMode == "None" && *p.DiskIOPSReadWrite == 4000 }},
		"Ultra":                        {premium, map[string]string{"skuName": "UltraSSD_LRS"}, "UltraSSD_LRS", nil},
		"zone-redundant":               {premium, map[string]string{"skuName": "Premium_ZRS"}, "redundancy", nil},
		"Premium v2 no more":           {v2, map[string]string{"skuName": "Premium_LRS"}, "converted back", nil},
		"shared, and of a SKU without": {shared, map[string]string{"skuName": "Standard_LRS"}, "maxShares", nil},
		"shared and bursting":          {shared, map[string]string{"enableBursting": "true"}, "maxShares", nil},
		"another SKU, where its tier is lost": {tiered, map[string]string{"skuName": "StandardSSD_LRS"}, "",
			func(p volumeparams.Parameters) bool { return p.Tier == "" }},
		"a higher tier": {premium, map[string]string{"tier": "p40"}, "",
			func(p volumeparams.Parameters) bool { return p.Tier == "P40" }},
		"a lower tier": {premium, map[string]string{"tier": "P20"}, "P30", nil},
		"of more IOPS": {v2, map[string]string{"diskIOPSReadWrite": "20000"}, "",
			func(p volumeparams.Parameters) bool { return *p.DiskIOPSReadWrite == 20000 }},
		"of more IOPS than its size has": {v2, map[string]string{"diskIOPSReadWrite": "80001"}, "3000 to 80000", nil},
		"Premium v2 while it bursts":     {bursting, map[string]string{"skuName": "PremiumV2_LRS"}, "enableBursting", nil},
		"Premium v2, and to burst no more": {bursting,
			map[string]string{"skuName": "PremiumV2_LRS", "enableBursting": "false"}, "",
			func(p volumeparams.Parameters) bool { return !p.BurstingEnabled }},
		"of more IOPS for readers": {
			volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{MaxShares: 2,
				DiskSettings: apiv1.DiskSettings{SKUName: "PremiumV2_LRS"}}},
			map[string]string{"diskIOPSReadOnly": "4000", "diskMBpsReadOnly": "150"}, "",
			func(p volumeparams.Parameters) bool { return *p.DiskIOPSReadOnly == 4000 && *p.DiskMBpsReadOnly == 150 }},
		"of IOPS for each GiB": {v2, map[string]string{"iopsPerGB": "10"}, "",
			func(p volumeparams.Parameters) bool {
				return *p.DiskIOPSReadWrite == 10240 && p.IOPSPerGiB == 10 && *v2.DiskIOPSReadWrite == 3000
			}},
		"of IOPS for each GiB, and that are fewer than before": {fast, map[string]string{"iopsPerGB": "4"}, "",
			func(p volumeparams.Parameters) bool { return *p.DiskIOPSReadWrite == 4096 && p.IOPSPerGiB == 4 }},
		"of IOPS, which are for each GiB no more": {fast, map[string]string{"diskIOPSReadWrite": "5000"}, "",
			func(p volumeparams.Parameters) bool { return *p.DiskIOPSReadWrite == 5000 && p.IOPSPerGiB == 0 }},
		"of IOPS for each GiB, and of no such SKU": {premium, map[string]string{"iopsPerGB": "10"}, "PremiumV2_LRS", nil},
		"Premium v2 of IOPS for each GiB": {premium, map[string]string{"skuName": "PremiumV2_LRS", "iopsPerGB": "10"}, "",
			func(p volumeparams.Parameters) bool { return *p.DiskIOPSReadWrite == 10240 }},
		"cached otherwise": {premium, map[string]string{"cachingMode": "ReadWrite"}, "",
			func(p volumeparams.Parameters) bool { return p.ModifiedCachingMode == "ReadWrite" }},
		"shared and cached": {shared, map[string]string{"cachingMode": "ReadOnly"},
			`cachingMode: value "ReadOnly" is not allowed; allowed: None`, nil},
		"shared, and uncached as before": {shared, map[string]string{"cachingMode": "None"}, "", nil},
		"Premium v2 and cached": {
			v2, map[string]string{"cachingMode": "ReadOnly"}, "None with skuName PremiumV2_LRS", nil},
		"to become Premium v2 and cached": {premium, map[string]string{"skuName": "PremiumV2_LRS", "cachingMode": "ReadOnly"},
			"None with skuName", nil},
		"cached with the write accelerator": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
			WriteAcceleratorEnabled: true,
			DiskSettings:            apiv1.DiskSettings{SKUName: "Premium_LRS"},
		}}, map[string]string{"cachingMode": "ReadWrite"}, "None or ReadOnly with writeAcceleratorEnabled", nil},
		"of IOPS for readers, and not shared": {v2, map[string]string{"diskIOPSReadOnly": "4000"}, "maxShares", nil},
		"private without an access": {
			premium, map[string]string{"networkAccessPolicy": "AllowPrivate"}, "diskAccessID", nil},
		"private": {premium, map[string]string{"networkAccessPolicy": "AllowPrivate", "diskAccessID": "/subscriptions/y"},
			"", func(p volumeparams.Parameters) bool { return p.DiskAccessID == "/subscriptions/y" }},
		"closed, which takes the access away": {private, map[string]string{"networkAccessPolicy": "DenyAll"}, "",
			func(p volumeparams.Parameters) bool { return p.DiskAccessID == "" }},
		"what it is already": {v2, map[string]string{"skuName": "PremiumV2_LRS"}, "", nil},
		"other, though its tier is below now": {volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
			DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS", Tier: "P10"},
		}}, map[string]string{"publicNetworkAccess": "Enabled"}, "",
			func(p volumeparams.Parameters) bool { return p.PublicNetworkAccess == "Enabled" }},
		"tagged, with the claim's name in them": {
			volumeparams.Parameters{ClaimName: "data",
				DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS",
					Tags: map[string]string{"a": "1", "b": "1"}}}}, map[string]string{"tags": "b=2,c=${pvc.metadata.name}"},
			"",
			func(p volumeparams.Parameters) bool {
				return p.Tags["a"] == "1" && p.Tags["b"] == "2" && p.Tags["c"] == "data"
			}},
		"without some of its tags, in whatever case": {tagged, map[string]string{
			"removeTags":        "A; never",
			"tagValueDelimiter": ";",
		}, "", func(p volumeparams.Parameters) bool {
			return len(p.Tags) == 1 && p.Tags["b"] == "1" && slices.Equal(p.RemovedTags, []string{"A", "never"}) &&
				tagged.Tags["a"] == "1"
		}},
		"with a tag that was removed before": {untagged, map[string]string{"tags": "Gone=2"}, "",
			func(p volumeparams.Parameters) bool {
				return p.Tags["Gone"] == "2" && slices.Equal(p.RemovedTags, []string{"other"}) && len(untagged.RemovedTags) == 2
			}},
		"another SKU, and what was removed remains so": {untagged, map[string]string{"skuName": "StandardSSD_LRS"}, "",
			func(p volumeparams.Parameters) bool { return slices.Equal(p.RemovedTags, []string{"gone", "other"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change, err := volumeparams.ParseChange(test.class)
			if err != nil {
				t.Fatal(err)
			}
			got, err := test.disk.With(change, sizeBytes)
			switch {
			case test.says == "" && err != nil:
				t.Fatal(err)
			case test.says != "" && (!errors.Is(err, provisioner.InvalidArgument) || !strings.Contains(err.Error(), test.says)):
				t.Fatalf("%v, want an InvalidArgument that names %q", err, test.says)
			case test.check != nil && !test.check(got):
				t.Fatalf("%+v", got)
			}
		})
	}
}

func TestClassIsLaidOverAnother(t *testing.T) {
	t.Parallel()
	p, err := volumeparams.ParseWith(
		map[string]string{"storageaccounttype": "Premium_LRS", "fsType": "xfs", "tags": "a=1;b=1", "tagValueDelimiter": ";"},
		map[string]string{"skuName": "StandardSSD_LRS", "tags": "b=2,c=3", "removeTags": "A"})
	if err != nil || p.SKUName != "StandardSSD_LRS" || p.FSType != "xfs" || p.Tags["a"] != "" || p.Tags["b"] != "2" ||
		p.Tags["c"] != "3" {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, class := range map[string]map[string]string{
		"what a disk has for life": {"fsType": "ext4"}, "what does not go together": {"diskIOPSReadWrite": "5000"},
	} {
		if _, err := volumeparams.ParseWith(map[string]string{"skuName": "Premium_LRS"}, class); !errors.Is(err,
			provisioner.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Azure caches no disk of 4096 GiB or more. A StorageClass that asks for a caching is also for
// smaller disks, and a class for this disk is not.
func TestALargeDiskDoesNotGetACaching(t *testing.T) {
	t.Parallel()
	change, err := volumeparams.ParseChange(map[string]string{"cachingMode": "ReadOnly"})
	if err != nil {
		t.Fatal(err)
	}
	p := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}}}
	if _, err := p.With(change, 4095*volumeparams.GiB); err != nil {
		t.Errorf("4095 GiB: %v", err)
	}
	if _, err := p.With(change, 4096*volumeparams.GiB); !errors.Is(err, provisioner.InvalidArgument) ||
		!strings.Contains(err.Error(), "None from 4096 GiB on") {
		t.Errorf("4096 GiB: got %v, want a refusal that names what is allowed", err)
	}
}

func TestTheIOPSOfAClassReplaceThoseOfTheStorageClass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class, attributes map[string]string
		iops, perGB       int64
	}{
		"IOPS over IOPS for each GiB": {map[string]string{"IopsPerGB": "10"}, map[string]string{"diskIOPSReadWrite": "4000"},
			4000, 0},
		"IOPS for each GiB over IOPS": {map[string]string{"DiskIOPSReadWrite": "4000"}, map[string]string{"iopsPerGB": "10"},
			10240, 10},
	} {
		test.class["skuName"] = "PremiumV2_LRS"
		p, err := volumeparams.ParseWith(test.class, test.attributes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p.SetDefaultPerformance(sizeBytes)
		if *p.DiskIOPSReadWrite != test.iops || p.IOPSPerGiB != test.perGB {
			t.Errorf("%s: got %d IOPS and %d for each GiB, want %d and %d", name, *p.DiskIOPSReadWrite, p.IOPSPerGiB, test.iops,
				test.perGB)
		}
	}
}

func TestEveryKeyOfAChangeIsOneOfAStorageClass(t *testing.T) {
	t.Parallel()
	keys := volumeparams.MutableKeys()
	if len(keys) < 12 {
		t.Fatalf("%d keys", len(keys))
	}
	for _, k := range keys {
		if !volumeparams.Keys().Known(k.Name) && k.Name != "removeTags" || k.Effect == "" || k.Allowed == "" {
			t.Errorf("%+v", k)
		}
	}
}
