package volumeparams_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func FuzzParse(f *testing.F) {
	for _, seed := range [][4]string{
		{"tags", "a=b", "tagValueDelimiter", ";"}, {"skuName", "UltraSSD_LRS", "diskIOPSReadWrite", "500"},
		{"STORAGEACCOUNTTYPE", "Premium_LRS", "tier", "p30"},
		{"perfProfile", "advanced", "device-setting/queue/scheduler", "none"}, {"maxShares", "3", "maxMountReplicaCount", "2"},
		{"diskName", "${pvc.metadata.name}", "csi.storage.k8s.io/pvc/name", "${pv.metadata.name}"},
		{"cacheingMode", "None", "", ""},
		{"tagValueDelimiter", "", "tags", "a=b,c"}, {"location", "East US", "resourceGroup", "g"},
		{"diskIOPSReadWrite", "-9223372036854775809", "logicalSectorSize", "512"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], int64(10<<30))
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, size int64) {
		p, err := volumeparams.Parse(map[string]string{k1: v1, k2: v2})
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		checkParsed(t, p, size)
	})
}

// checkParsed holds what must be true of parameters that were taken, whatever they are.
func checkParsed(t *testing.T, p volumeparams.Parameters, size int64) {
	t.Helper()
	for name := range p.Tags {
		if name == "" || strings.ContainsAny(name, `<>%&?\/`) {
			t.Fatalf("tag %q", name)
		}
	}
	for _, setting := range p.Tuning.Settings {
		if !volumeparams.CheckSettingPath(setting.Path) {
			t.Fatalf("device setting %q", setting.Path)
		}
	}
	if name := p.NameDisk("pvc-1"); name == "" || len(name) > 80 {
		t.Fatalf("disk name %q", name)
	}
	got, err := p.Size(size, 0)
	var out *paramtable.OutOfRangeError
	if err != nil {
		if !errors.As(err, &out) && !errors.Is(err, provisioner.InvalidArgument) {
			t.Fatal(err)
		}
		return
	}
	if got < size || got%volumeparams.GiB != 0 {
		t.Fatalf("size %d for %d", got, size)
	}
	p.SetDefaultPerformance(got)
	if err := p.CheckSize(got); err != nil && !errors.Is(err, provisioner.InvalidArgument) {
		t.Fatal(err)
	}
	if able := p.Performance(got); able.IOPS <= 0 || able.MBps <= 0 {
		t.Fatalf("performance %+v", able)
	}
	if p.Shares() > 1 && p.Caching(got) != volumeparams.CachingNone {
		t.Fatal("a shared disk is cached")
	}
}

func FuzzParseAttributes(f *testing.F) {
	for _, seed := range [][4]string{
		{"cachingMode", "ReadWrite", "kind", "Managed"}, {"PARTITION", "1", "fsType", "XFS"},
		{"perfProfile", "basic", "maxMountReplicaCount", "1"},
		{"device-setting/../../etc/passwd", "x", "perfProfile", "advanced"}, {"requestedsizegib", "10", "partition", "p1"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		a, err := volumeparams.ParseAttributes(map[string]string{k1: v1, k2: v2}, false)
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		if a.Partition < 0 || a.Partition > 128 || a.MaxMountReplicaCount != nil && *a.MaxMountReplicaCount < 0 {
			t.Fatalf("%+v", a)
		}
	})
}

func FuzzTags(f *testing.F) {
	f.Add("a=b,c=d", ",", "shop")
	f.Add("team=${pvc.metadata.namespace};x=1=2", ";", "<>%&")
	f.Add("=", "", "")
	f.Fuzz(func(t *testing.T, tags, delimiter, namespace string) {
		p, err := volumeparams.Parse(map[string]string{
			"tags":                             tags,
			"tagValueDelimiter":                delimiter,
			"csi.storage.k8s.io/pvc/namespace": namespace,
		})
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		if len(p.Tags) > 49 {
			t.Fatalf("%d tags", len(p.Tags))
		}
		for name, value := range p.Tags {
			given := name == volumeparams.TagClaimNamespace
			if len(name) > 512 || len(value) > 256 && !given {
				t.Fatalf("tag %q=%q", name, value)
			}
		}
	})
}

func FuzzParseChange(f *testing.F) {
	for _, seed := range [][4]string{
		{"skuName", "PremiumV2_LRS", "diskIOPSReadWrite", "4000"}, {"tier", "P50", "tags", "a=b"}, {"fsType", "xfs", "", ""},
		{"enableBursting", "1", "networkAccessPolicy", "AllowPrivate"},
		{"tags", "disk.csi.azure.com-volume-uid=x", "tagValueDelimiter", ";"},
		{"SKUNAME", "UltraSSD_LRS", "storageAccountType", "Premium_LRS"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], int64(64))
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, gib int64) {
		raw := map[string]string{k1: v1, k2: v2}
		change, err := volumeparams.ParseChange(raw)
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		before, err := volumeparams.Parse(map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
		if err != nil {
			t.Fatal(err)
		}
		size := (min(max(gib, 1), 32767)) * volumeparams.GiB
		after, err := before.With(change, size)
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		if after.MaxShares != before.MaxShares || after.SKUName == volumeparams.UltraSSDLRS {
			t.Fatalf("%v made %+v", raw, after)
		}
		// Asked for again, it changes nothing more.
		again, err := after.With(change, size)
		if err != nil || again.SKUName != after.SKUName || len(again.Tags) != len(after.Tags) {
			t.Fatalf("a second time %v made %+v: %v", raw, again, err)
		}
	})
}
