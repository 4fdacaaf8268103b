package volumeparams_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// TestLimitsAreAzures checks that the last value that Azure's documentation allows is allowed, and
// that the next one is refused.
func TestLimitsAreAzures(t *testing.T) {
	t.Parallel()
	const (
		page      = "https://learn.microsoft.com/azure/"
		tagLimits = page + "azure-resource-manager/management/tag-resources"
		names     = page + "azure-resource-manager/management/resource-name-rules"
		diskTypes = page + "virtual-machines/disks-types"
		shared    = page + "virtual-machines/disks-shared"
		bursting  = page + "virtual-machines/disk-bursting"
	)
	const (
		ideograph = "\u6f22"     // one character, three bytes
		emoji     = "\U0001f600" // two code units of UTF-16, four bytes
	)
	repeat := strings.Repeat
	sku := func(name string, more ...string) map[string]string {
		class := map[string]string{"skuName": name}
		for i := 0; i+1 < len(more); i += 2 {
			class[more[i]] = more[i+1]
		}
		return class
	}
	for name, test := range map[string]struct {
		source     string
		class      map[string]string
		parameter  string
		last, next string
		gib        int64
	}{
		"characters of a tag's name": {tagLimits, nil, "tags", repeat("n", 512) + "=v", repeat("n", 513) + "=v", 4},
		"ideographs of a tag's name": {tagLimits, nil, "tags", repeat(ideograph, 512) + "=v",
			repeat(ideograph, 513) + "=v", 4},
		"characters of a tag's value": {tagLimits, nil, "tags", "n=" + repeat("v", 256), "n=" + repeat("v", 257), 4},
		"ideographs of a tag's value": {tagLimits, nil, "tags", "n=" + repeat(ideograph, 256),
			"n=" + repeat(ideograph, 257), 4},
		"emoji of a tag's value":            {tagLimits, nil, "tags", "n=" + repeat(emoji, 128), "n=" + repeat(emoji, 129), 4},
		"other characters in a tag's value": {tagLimits, nil, "tags", `n=<>%&?\/=`, `n<=v`, 4},
		"tags beside the driver's two":      {tagLimits, nil, "tags", manyTags(48), manyTags(49), 4},
		"a resource group":                  {names, nil, "resourceGroup", repeat("g", 90), repeat("g", 91), 4},
		"ideographs of a resource group":    {names, nil, "resourceGroup", repeat(ideograph, 90), repeat(ideograph, 91), 4},

		"shares of a small Premium SSD":  {shared, sku("Premium_LRS"), "maxShares", "3", "4", 512},
		"shares of a medium Premium SSD": {shared, sku("Premium_LRS"), "maxShares", "5", "6", 4096},
		"shares of a large Premium SSD":  {shared, sku("Premium_LRS"), "maxShares", "10", "11", 4097},
		"shares of a small Standard SSD": {shared, sku("StandardSSD_LRS"), "maxShares", "3", "4", 4},
		"shares of a Premium SSD v2":     {shared, sku("PremiumV2_LRS"), "maxShares", "15", "16", 4},
		"shares of an Ultra Disk":        {shared, sku("UltraSSD_LRS"), "maxShares", "15", "16", 4},
		"shares of a hard disk":          {shared, sku("Standard_LRS"), "maxShares", "1", "2", 4},

		"IOPS of a small Premium SSD v2":       {diskTypes, sku("PremiumV2_LRS"), "diskIOPSReadWrite", "3000", "3001", 6},
		"IOPS of a Premium SSD v2 by its size": {diskTypes, sku("PremiumV2_LRS"), "diskIOPSReadWrite", "5000", "5001", 10},
		"most IOPS of a Premium SSD v2":        {diskTypes, sku("PremiumV2_LRS"), "diskIOPSReadWrite", "80000", "80001", 65536},
		"fewest IOPS of a Premium SSD v2":      {diskTypes, sku("PremiumV2_LRS"), "diskIOPSReadWrite", "3000", "2999", 10},
		"throughput of a Premium SSD v2":       {diskTypes, sku("PremiumV2_LRS"), "diskMBpsReadWrite", "750", "751", 10},
		"most throughput of a Premium SSD v2": {diskTypes, sku("PremiumV2_LRS", "diskIOPSReadWrite", "80000"),
			"diskMBpsReadWrite", "2000", "2001", 160},
		"fewest throughput of a Premium SSD v2": {diskTypes, sku("PremiumV2_LRS"), "diskMBpsReadWrite", "125", "124", 10},
		"IOPS of an Ultra Disk by its size":     {diskTypes, sku("UltraSSD_LRS"), "diskIOPSReadWrite", "4000", "4001", 4},
		"most IOPS of an Ultra Disk":            {diskTypes, sku("UltraSSD_LRS"), "diskIOPSReadWrite", "400000", "400001", 65536},
		"fewest IOPS of an Ultra Disk":          {diskTypes, sku("UltraSSD_LRS"), "diskIOPSReadWrite", "100", "99", 1024},
		"most throughput of an Ultra Disk": {diskTypes, sku("UltraSSD_LRS", "diskIOPSReadWrite", "100000"),
			"diskMBpsReadWrite", "10000", "10001", 1024},
		"least throughput of an Ultra Disk": {diskTypes, sku("UltraSSD_LRS", "diskIOPSReadWrite", "4000"),
			"diskMBpsReadWrite", "1", "0", 4},
		"bursting": {bursting, sku("Premium_LRS"), "enableBursting", "false", "true", 512},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(value string) error {
				raw := maps.Clone(test.class)
				if raw == nil {
					raw = map[string]string{}
				}
				raw[test.parameter] = value
				p, err := volumeparams.Parse(raw)
				if err == nil {
					err = p.CheckSize(test.gib * volumeparams.GiB)
				}
				return err
			}
			if err := check(test.last); err != nil {
				t.Errorf("the last value that %s allows: got %v, want no error", test.source, err)
			}
			if err := check(test.next); !errors.Is(err, provisioner.InvalidArgument) ||
				!strings.Contains(err.Error(), test.parameter) {
				t.Errorf("the next value: got %v, want InvalidArgument that names %s", err, test.parameter)
			}
		})
	}
}

func TestTheLargestDisksAreAzures(t *testing.T) {
	t.Parallel()
	const small, large = 32767, 65536 // https://learn.microsoft.com/azure/virtual-machines/disks-types
	for sku, largest := range map[string]int64{
		"Premium_LRS": small, "Premium_ZRS": small, "StandardSSD_LRS": small, "Standard_LRS": small, "PremiumV2_LRS": large,
		"UltraSSD_LRS": large,
	} {
		p, err := volumeparams.Parse(map[string]string{"skuName": sku})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Size(largest*volumeparams.GiB, 0); err != nil {
			t.Errorf("%s of %d GiB: got %v, want no error", sku, largest, err)
		}
		if _, err := p.Size((largest+1)*volumeparams.GiB, 0); err == nil {
			t.Errorf("%s of %d GiB: got no error, want one", sku, largest+1)
		}
	}
}

func TestNamesOfTagsThatDifferInCaseAreOneTag(t *testing.T) {
	t.Parallel()
	p, err := volumeparams.Parse(map[string]string{"tags": "Owner=a,owner=b,K8s-Azure-Created-By=me", "skuName": "Premium_LRS"})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"Owner": "b", "k8s-azure-created-by": "me"}; !maps.Equal(p.Tags, want) {
		t.Errorf("tags of a StorageClass: got %v, want %v", p.Tags, want)
	}
	change, err := volumeparams.ParseChange(map[string]string{"tags": "OWNER=c"})
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.With(change, volumeparams.GiB)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"Owner": "c", "k8s-azure-created-by": "me"}; !maps.Equal(after.Tags, want) {
		t.Errorf("tags after a change: got %v, want %v", after.Tags, want)
	}
	_, err = volumeparams.Parse(map[string]string{"tags": "Disk.csi.azure.com-volume-uid=mine"})
	if !errors.Is(err, provisioner.InvalidArgument) {
		t.Errorf("a tag by which the driver recognises its disks: got %v, want InvalidArgument", err)
	}
}

// A disk that others gave more tags than the driver allows can still be changed otherwise.
func TestAChangeThatAddsNoTagDoesNotCountThem(t *testing.T) {
	t.Parallel()
	var p volumeparams.Parameters
	p.SKUName, p.Tags = "Premium_LRS", map[string]string{}
	for i := range 50 {
		p.Tags["t"+strconv.Itoa(i)] = "v"
	}
	for name, value := range map[string]string{"skuName": "StandardSSD_LRS", "tags": "a=b"} {
		change, err := volumeparams.ParseChange(map[string]string{name: value})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.With(change, volumeparams.GiB); (err == nil) != (name != "tags") {
			t.Errorf("a change of %s of a disk with 50 tags: got %v, want an error: %t", name, err, name == "tags")
		}
	}
}
