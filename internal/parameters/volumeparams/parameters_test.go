package volumeparams_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestFaultsNameParameterValueAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw  map[string]string
		says []string
	}{
		"an unknown parameter, with the nearest one": {map[string]string{"cacheingMode": "None"},
			[]string{"cacheingMode", "None", "cachingMode"}},
		"a value that is not allowed": {map[string]string{"skuName": "Premium"}, []string{"skuName", "Premium", "Premium_LRS"}},
		"a value in another case, as in V1": {map[string]string{"cachingmode": "readonly"},
			[]string{"cachingmode", "readonly", "ReadOnly"}},
		"IOPS, and IOPS for each GiB": {map[string]string{
			"skuName":           "PremiumV2_LRS",
			"diskIOPSReadWrite": "5000",
			"iopsPerGB":         "5",
		}, []string{"iopsPerGB", `"5"`, "not with diskIOPSReadWrite (5000)"}},
		"IOPS for each GiB of a SKU that has none": {map[string]string{"iopsPerGB": "5"},
			[]string{"iopsPerGB", "UltraSSD_LRS or PremiumV2_LRS"}},
		"too many IOPS for each GiB": {map[string]string{"skuName": "UltraSSD_LRS", "iopsPerGB": "1001"},
			[]string{"iopsPerGB", "1001", "1 to 1000"}},
		"a label in the name of the disk": {map[string]string{"diskName": "x-${pvc.labels.team}"},
			[]string{"diskName", "${pvc.labels.team}", "can change"}},
		"a number out of range": {map[string]string{"maxShares": "16"}, []string{"maxShares", "16", "1 to 15"}},
		"no number at all":      {map[string]string{"maxShares": "two"}, []string{"maxShares", "two"}},
		"more replicas than shares allow": {map[string]string{"maxShares": "2", "maxMountReplicaCount": "2"},
			[]string{"maxMountReplicaCount", "2", "0 to 1"}},
		"replicas of a disk that is not shared": {map[string]string{"maxMountReplicaCount": "1"},
			[]string{"maxMountReplicaCount", "1", "0 to 0"}},
		"caching of a shared disk": {map[string]string{"maxShares": "2", "cachingMode": "ReadOnly"},
			[]string{"cachingMode", "ReadOnly", "None"}},
		"caching of an Ultra disk": {map[string]string{"skuName": "UltraSSD_LRS", "cachingMode": "ReadOnly"},
			[]string{"cachingMode", "ReadOnly", "None"}},
		"IOPS of a disk that has them fixed": {map[string]string{"diskIOPSReadWrite": "500"},
			[]string{"diskIOPSReadWrite", "500", "UltraSSD_LRS"}},
		"one parameter under two names": {
			map[string]string{"skuName": "Premium_LRS", "storageAccountType": "Standard_LRS"},
			[]string{"skuName", "Premium_LRS", "Standard_LRS"}},
		"a disk access without the policy": {map[string]string{"diskAccessID": "/subscriptions/x"},
			[]string{"diskAccessID", "AllowPrivate"}},
		"the policy without a disk access": {map[string]string{"networkAccessPolicy": "AllowPrivate"},
			[]string{"diskAccessID", "AllowPrivate"}},
		"an encryption type without a set": {map[string]string{"diskEncryptionType": "EncryptionAtRestWithPlatformKey"},
			[]string{"diskEncryptionType", "diskEncryptionSetID"}},
		"bursting of a shared disk": {
			map[string]string{"skuName": "Premium_LRS", "maxShares": "2", "enableBursting": "true"},
			[]string{"enableBursting", "maxShares"}},
		"a tag without a value":               {map[string]string{"tags": "a=b,c"}, []string{"tags", `"c"`}},
		"a tag whose key Azure refuses":       {map[string]string{"tags": "a/b=c"}, []string{"tags", "a/b=c"}},
		"a tag with a value that is too long": {map[string]string{"tags": "a=" + strings.Repeat("x", 257)}, []string{"tags"}},
		"more tags than Azure takes":          {map[string]string{"tags": manyTags(49)}, []string{"tags", "51", "48"}},
		"read-only IOPS of a disk of one VM": {map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadOnly": "500"},
			[]string{"diskIOPSReadOnly", "500", "maxShares"}},
		"read-only throughput of another SKU": {map[string]string{"maxShares": "2", "diskMBpsReadOnly": "50"},
			[]string{"diskMBpsReadOnly", "50", "PremiumV2_LRS"}},
		"a sector size of another SKU": {map[string]string{"logicalSectorSize": "512"},
			[]string{"logicalSectorSize", "512", "UltraSSD_LRS"}},
		"a sector size that there is not": {map[string]string{"skuName": "UltraSSD_LRS", "logicalSectorSize": "1024"},
			[]string{"logicalSectorSize", "1024", "512, 4096"}},
		"a tier of another SKU": {map[string]string{"skuName": "StandardSSD_LRS", "tier": "P30"},
			[]string{"tier", "P30", "Premium_LRS"}},
		"a tier that there is not": {map[string]string{"skuName": "Premium_LRS", "tier": "P5"}, []string{"tier", "P5"}},
		"bursting of another SKU":  {map[string]string{"enableBursting": "true"}, []string{"enableBursting", "Premium_LRS"}},
		"a switch that is neither on nor off": {map[string]string{"skuName": "Premium_LRS", "enableBursting": "yes"},
			[]string{"enableBursting", "yes", "true, false"}},
		"the write accelerator of another SKU": {map[string]string{"writeAcceleratorEnabled": "true"},
			[]string{"writeAcceleratorEnabled", "Premium_LRS"}},
		"the write accelerator with write caching": {
			map[string]string{"skuName": "Premium_LRS", "writeAcceleratorEnabled": "true",
				"cachingMode": "ReadWrite"}, []string{"cachingMode", "ReadWrite", "writeAcceleratorEnabled"}},
		"the write accelerator of a shared disk": {
			map[string]string{"skuName": "Premium_LRS", "writeAcceleratorEnabled": "true",
				"maxShares": "2"}, []string{"writeAcceleratorEnabled", "maxShares"}},
		"performance plus where it does not exist": {
			map[string]string{"skuName": "PremiumV2_LRS", "enablePerformancePlus": "true"},
			[]string{"enablePerformancePlus", "PremiumV2_LRS"}},
		"a block that Linux does not mount": {map[string]string{"blockSize": "8192"},
			[]string{"blockSize", "8192", "1024, 2048, 4096"}},
		"an inode of an odd size": {map[string]string{"inodeSize": "300"}, []string{"inodeSize", "300", "256, 512"}},
		"an inode for less than a block": {map[string]string{"bytesPerInode": "512"},
			[]string{"bytesPerInode", "512", "1024 to 67108864"}},
		"no inodes": {map[string]string{"numberOfInodes": "0"}, []string{"numberOfInodes", "from 1"}},
		"an action that Azure does not have": {map[string]string{"actionOnDiskDelay": "Restart"},
			[]string{"actionOnDiskDelay", "Restart", "AutomaticReattach"}},
		"a filesystem of Windows": {map[string]string{"fsType": "ntfs"}, []string{"fsType", "ntfs", "ext4"}},
		"an encryption set that is no resource": {map[string]string{"diskEncryptionSetID": "set"},
			[]string{"diskEncryptionSetID", "set", "/subscriptions/"}},
		"a resource group with a path": {map[string]string{"resourceGroup": "a/b"}, []string{"resourceGroup", "a/b"}},
		"a region that is none":        {map[string]string{"location": "east-us"}, []string{"location", "east-us"}},
		"a delay that is no number": {map[string]string{"attachDiskInitialDelay": "soon"},
			[]string{"attachDiskInitialDelay", "soon"}},
		"an unknown performance profile": {map[string]string{"perfProfile": "fast"},
			[]string{"perfProfile", "fast", "none, basic, advanced"}},
		"the advanced profile without settings": {map[string]string{"perfProfile": "advanced"},
			[]string{"perfProfile", "device-setting/"}},
		"a device setting that leads out": {map[string]string{"perfProfile": "advanced", "device-setting/../x": "1"},
			[]string{"device-setting/../x"}},
		"a device setting without a value": {
			map[string]string{"perfProfile": "advanced", "device-setting/queue/scheduler": ""},
			[]string{"device-setting/queue/scheduler", "one line"}},
		"one parameter in two cases": {map[string]string{"cachingMode": "None", "CACHINGMODE": "ReadOnly"},
			[]string{"cachingMode", "None", "ReadOnly"}},
		"all faults at once": {map[string]string{"skuName": "x", "maxShares": "0"}, []string{"skuName", "maxShares"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := volumeparams.Parse(test.raw)
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

func manyTags(n int) string {
	pairs := make([]string, 0, n)
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("t%d=v", i))
	}
	return strings.Join(pairs, ",")
}

func TestEveryParameterOfV1IsKnown(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"SKUNAME": "Premium_LRS", "kind": "anything", "fsType": "XFS", "cachingMode": "ReadOnly", "location": "East US",
		"resourceGroup": "g", "subscriptionID": "00000000-0000-0000-0000-000000000001",
		"LogicalSectorSize": "", "tags": "a=b", "tagValueDelimiter": ";", "diskName": "d",
		"diskEncryptionSetID":     "/subscriptions/x",
		"writeAcceleratorEnabled": "True", "maxShares": "1", "perfProfile": "Basic", "device-setting/queue/scheduler": "none",
		"networkAccessPolicy": "DenyAll",
		"publicNetworkAccess": "Disabled", "enableBursting": "True", "enablePerformancePlus": "T",
		"attachDiskInitialDelay": "1000", "userAgent": "x",
		"enableAsyncAttach": "whatever", "zoned": "", "csi.storage.k8s.io/pvc/name": "n",
		"csi.storage.k8s.io/pvc/namespace": "ns", "csi.storage.k8s.io/pv/name": "pv",
	} {
		raw := map[string]string{"skuName": "Premium_LRS", key: value}
		if key == "SKUNAME" {
			raw = map[string]string{key: value}
		}
		if key == "LogicalSectorSize" {
			raw = map[string]string{"skuName": "UltraSSD_LRS", key: "512", "DiskIOPSReadWrite": "500", "DiskMBpsReadWrite": "100"}
		}
		if _, err := volumeparams.Parse(raw); err != nil {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
}

func TestWhatV1Tolerates(t *testing.T) {
	t.Parallel()
	p, err := volumeparams.Parse(map[string]string{
		"diskIOPSReadWrite": "", "cachingMode": "", "tagValueDelimiter": "", "tags": "a=b=c,,d=", "perfProfile": "Basic",
		"storageAccountType":     "Premium_LRS",
		"attachDiskInitialDelay": "-1", "enablePerformancePlus": "1", "device-setting/queue/scheduler": "none",
		"diskEncryptionSetID": "/SUBSCRIPTIONS/x",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.DiskIOPSReadWrite != nil || p.Tags["a"] != "b=c" || p.Tags["d"] != "" || p.Tuning.Profile != "basic" ||
		p.SKU() != "Premium_LRS" || !p.PerformancePlusEnabled {
		t.Errorf("%+v", p)
	}
	if got := p.Disk(sizeBytes).DiskEncryptionType; got != "EncryptionAtRestWithCustomerKey" {
		t.Errorf("got encryption type %q, want that of a customer's key", got)
	}
	if want := []string{"attachDiskInitialDelay", "device-setting/queue/scheduler"}; !slices.Equal(p.WithoutEffect, want) {
		t.Errorf("without effect: %v, want %v", p.WithoutEffect, want)
	}
}

func TestTheWriteAcceleratorIsKeptInTheTagOfV1(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]map[string]string{
		"by the parameter": {"skuName": "Premium_LRS", "writeAcceleratorEnabled": "True"},
		"by the tag":       {"skuName": "Premium_LRS", "tags": "WriteAcceleratorEnabled=true"},
	} {
		p, err := volumeparams.Parse(raw)
		if err != nil || !p.WriteAcceleratorEnabled || !volumeparams.WriteAccelerator(p.Tags) {
			t.Errorf("%s: %v, %+v", name, err, p.Tags)
		}
	}
	p, err := volumeparams.Parse(map[string]string{
		"skuName":                 "Premium_LRS",
		"writeAcceleratorEnabled": "false",
		"tags":                    "writeacceleratorenabled=no",
	})
	if err != nil || p.WriteAcceleratorEnabled {
		t.Errorf("%v, %+v", err, p)
	}
}

func TestAVolumeAttributesClassGoesOverTheStorageClass(t *testing.T) {
	t.Parallel()
	merged := volumeparams.Overlay(
		map[string]string{"storageAccountType": "Premium_LRS", "DISKIOPSREADWRITE": "500", "fsType": "xfs"},
		map[string]string{"skuname": "UltraSSD_LRS", "diskIOPSReadWrite": "900", "DiskMBpsReadWrite": "90"})
	p, err := volumeparams.Parse(merged)
	if err != nil || p.SKU() != "UltraSSD_LRS" || *p.DiskIOPSReadWrite != 900 || *p.DiskMBpsReadWrite != 90 || p.FSType != "xfs" {
		t.Fatalf("%v: %v", merged, err)
	}
}

func TestEveryParameterIsDocumented(t *testing.T) {
	t.Parallel()
	for _, doc := range volumeparams.Keys() {
		if doc.Effect == "" || doc.Allowed == "" {
			t.Errorf("%+v", doc)
		}
		if effective := doc.Set != nil; effective == strings.HasPrefix(doc.Effect, "none") {
			t.Errorf("%s: effective is %v, and the effect is %q", doc.Name, effective, doc.Effect)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	p, err := volumeparams.Parse(map[string]string{
		"location":                         "East US",
		"tags":                             "team=${pvc.metadata.namespace}",
		"csi.storage.k8s.io/pvc/namespace": "shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.SKU() != volumeparams.StandardSSDLRS || p.Caching(1<<30) != "ReadOnly" || p.Caching(4096<<30) != "None" ||
		p.Location != "eastus" || p.Tags["team"] != "shop" {
		t.Fatalf("%+v", p)
	}
	shared := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
		MaxShares:    3,
		DiskSettings: apiv1.DiskSettings{SKUName: volumeparams.PremiumLRS},
	}}
	for name, disk := range map[string]apiv1.DiskParameters{
		"shared": shared.DiskParameters, "shared, whatever was asked for": {MaxShares: 2, CachingMode: "ReadOnly"},
		"Premium v2": {DiskSettings: apiv1.DiskSettings{SKUName: volumeparams.PremiumV2LRS}},
	} {
		uncached := volumeparams.Parameters{DiskParameters: disk}
		if mode := uncached.Caching(1 << 30); mode != "None" {
			t.Errorf("%s: caching %s", name, mode)
		}
	}
	for multi, want := range map[bool]int32{false: 2, true: 0} {
		if got, err := shared.Replicas(multi); err != nil || got != want {
			t.Fatalf("%d replicas, want %d: %v", got, want, err)
		}
	}
}

func TestMaxSharesDependOnSKUAndSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sku  string
		gib  int64
		want int32
	}{
		{volumeparams.PremiumLRS, 512, 3}, {volumeparams.PremiumLRS, 513, 5}, {volumeparams.PremiumZRS, 4096, 5},
		{volumeparams.StandardSSDLRS, 4097, 10},
		{volumeparams.UltraSSDLRS, 4, 15}, {volumeparams.PremiumV2LRS, 1, 15}, {volumeparams.StandardLRS, 1024, 1},
	} {
		p := volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
			MaxShares:    test.want,
			DiskSettings: apiv1.DiskSettings{SKUName: test.sku},
		}}
		if err := p.CheckSize(test.gib << 30); err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		p.MaxShares++
		if err := p.CheckSize(test.gib << 30); !errors.Is(err, provisioner.InvalidArgument) {
			t.Errorf("%+v: one more is allowed: %v", test, err)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	const gib = volumeparams.GiB
	for name, test := range map[string]struct {
		p               volumeparams.Parameters
		required, limit int64
		want            int64
		kind            provisioner.Kind
		outOfRange      bool
	}{
		"nothing asked for is the least":   {want: gib},
		"a byte more is a GiB more":        {required: 10*gib + 1, want: 11 * gib},
		"rounding must not pass the limit": {required: 10*gib + 1, limit: 10*gib + 2, outOfRange: true},
		"the least is above the limit":     {limit: gib - 1, outOfRange: true},
		"more than any disk has":           {required: 32768 * gib, outOfRange: true},
		"which an Ultra disk has": {
			p: volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
				DiskSettings: apiv1.DiskSettings{SKUName: volumeparams.UltraSSDLRS},
			}},
			required: 32768 * gib,
			want:     32768 * gib,
		},
		"the limit below what is required": {required: 2 * gib, limit: gib, kind: provisioner.InvalidArgument},
		"performance plus starts at 513 GiB": {
			p: volumeparams.Parameters{DiskParameters: apiv1.DiskParameters{
				ImmutableDiskSettings: apiv1.ImmutableDiskSettings{PerformancePlusEnabled: true},
			}},
			required: gib,
			want:     513 * gib,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.p.Size(test.required, test.limit)
			var out *paramtable.OutOfRangeError
			if got != test.want || provisioner.KindOf(err) != test.kind || errors.As(err, &out) != test.outOfRange {
				t.Fatalf("size %d, error %v", got, err)
			}
		})
	}
}

func TestDiskNamesAreWhatAzureTakesAndStayDifferent(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?$`)
	p := volumeparams.Parameters{}
	if got := p.NameDisk("pvc-1"); got != "pvc-1" {
		t.Fatalf("a good name became %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		nameA, nameB := p.NameDisk(a), p.NameDisk(b)
		if !valid.MatchString(nameA) {
			t.Fatalf("%q became %q", a, nameA)
		}
		if (a == b) != (nameA == nameB) {
			t.Fatalf("%q and %q became %q and %q", a, b, nameA, nameB)
		}
	})
}

func TestAMultiNodeVolumeHasNoReplicas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw     map[string]string
		refused bool
	}{
		"it has shares": {raw: map[string]string{"maxShares": "3"}},
		"it wants none": {raw: map[string]string{"maxShares": "3", "maxMountReplicaCount": "0"}},
		"it wants one":  {raw: map[string]string{"maxShares": "3", "maxMountReplicaCount": "1"}, refused: true},
	} {
		p, err := volumeparams.Parse(test.raw)
		if err != nil {
			t.Fatal(err)
		}
		n, err := p.Replicas(true)
		if n != 0 || errors.Is(err, provisioner.InvalidArgument) != test.refused {
			t.Errorf("%s: got %d replicas, %v; want none, refused: %t", name, n, err, test.refused)
		}
	}
}
