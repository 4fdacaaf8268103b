package volumeparams_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
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
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for name, test := range map[string]struct {
		source     string
		class      map[string]string
		parameter  string
		last, next string
		gib        int64
	}{
		"characters of a tag's name":        {tagLimits, nil, "tags", strings.Repeat("n", 512) + "=v", strings.Repeat("n", 513) + "=v", 4},
		"ideographs of a tag's name":        {tagLimits, nil, "tags", strings.Repeat(ideograph, 512) + "=v", strings.Repeat(ideograph, 513) + "=v", 4},
		"characters of a tag's value":       {tagLimits, nil, "tags", "n=" + strings.Repeat("v", 256), "n=" + strings.Repeat("v", 257), 4},
		"ideographs of a tag's value":       {tagLimits, nil, "tags", "n=" + strings.Repeat(ideograph, 256), "n=" + strings.Repeat(ideograph, 257), 4},
		"emoji of a tag's value":            {tagLimits, nil, "tags", "n=" + strings.Repeat(emoji, 128), "n=" + strings.Repeat(emoji, 129), 4},
		"other characters in a tag's value": {tagLimits, nil, "tags", `n=<>%&?\/=`, `n<=v`, 4},
		"tags beside the driver's two":      {tagLimits, nil, "tags", manyTags(48), manyTags(49), 4},
		"a resource group":                  {names, nil, "resourceGroup", strings.Repeat("g", 90), strings.Repeat("g", 91), 4},
		"ideographs of a resource group":    {names, nil, "resourceGroup", strings.Repeat(ideograph, 90), strings.Repeat(ideograph, 91), 4},

		"shares of a small Premium SSD":  {shared, map[string]string{"skuName": "Premium_LRS"}, "maxShares", "3", "4", 512},
		"shares of a medium Premium SSD": {shared, map[string]string{"skuName": "Premium_LRS"}, "maxShares", "5", "6", 4096},
		"shares of a large Premium SSD":  {shared, map[string]string{"skuName": "Premium_LRS"}, "maxShares", "10", "11", 4097},
		"shares of a small Standard SSD": {shared, map[string]string{"skuName": "StandardSSD_LRS"}, "maxShares", "3", "4", 4},
		"shares of a Premium SSD v2":     {shared, map[string]string{"skuName": "PremiumV2_LRS"}, "maxShares", "15", "16", 4},
		"shares of an Ultra Disk":        {shared, map[string]string{"skuName": "UltraSSD_LRS"}, "maxShares", "15", "16", 4},
		"shares of a hard disk":          {shared, map[string]string{"skuName": "Standard_LRS"}, "maxShares", "1", "2", 4},

		"IOPS of a small Premium SSD v2":        {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskIOPSReadWrite", "3000", "3001", 6},
		"IOPS of a Premium SSD v2 by its size":  {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskIOPSReadWrite", "5000", "5001", 10},
		"most IOPS of a Premium SSD v2":         {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskIOPSReadWrite", "80000", "80001", 65536},
		"fewest IOPS of a Premium SSD v2":       {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskIOPSReadWrite", "3000", "2999", 10},
		"throughput of a Premium SSD v2":        {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskMBpsReadWrite", "750", "751", 10},
		"most throughput of a Premium SSD v2":   {diskTypes, map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "80000"}, "diskMBpsReadWrite", "2000", "2001", 160},
		"fewest throughput of a Premium SSD v2": {diskTypes, map[string]string{"skuName": "PremiumV2_LRS"}, "diskMBpsReadWrite", "125", "124", 10},
		"IOPS of an Ultra Disk by its size":     {diskTypes, map[string]string{"skuName": "UltraSSD_LRS"}, "diskIOPSReadWrite", "4000", "4001", 4},
		"most IOPS of an Ultra Disk":            {diskTypes, map[string]string{"skuName": "UltraSSD_LRS"}, "diskIOPSReadWrite", "400000", "400001", 65536},
		"fewest IOPS of an Ultra Disk":          {diskTypes, map[string]string{"skuName": "UltraSSD_LRS"}, "diskIOPSReadWrite", "100", "99", 1024},
		"most throughput of an Ultra Disk":      {diskTypes, map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "100000"}, "diskMBpsReadWrite", "10000", "10001", 1024},
		"least throughput of an Ultra Disk":     {diskTypes, map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "4000"}, "diskMBpsReadWrite", "1", "0", 4},
		"bursting":                              {bursting, map[string]string{"skuName": "Premium_LRS"}, "enableBursting", "false", "true", 512},
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
			if err := check(test.next); !errors.Is(err, provisioner.InvalidArgument) || !strings.Contains(err.Error(), test.parameter) {
				t.Errorf("the next value: got %v, want InvalidArgument that names %s", err, test.parameter)
			}
		})
	}
	for sku, largest := range map[string]int64{"Premium_LRS": 32767, "Premium_ZRS": 32767, "StandardSSD_LRS": 32767, "Standard_LRS": 32767, "PremiumV2_LRS": 65536, "UltraSSD_LRS": 65536} {
		p, err := volumeparams.Parse(map[string]string{"skuName": sku})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Size(largest*volumeparams.GiB, 0); err != nil {
			t.Errorf("%s of %s GiB (%s): got %v, want no error", sku, number(largest), diskTypes, err)
		}
		if _, err := p.Size((largest+1)*volumeparams.GiB, 0); err == nil {
			t.Errorf("%s of %s GiB: got no error, want one", sku, number(largest+1))
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
	if _, err := volumeparams.Parse(map[string]string{"tags": "Disk.csi.azure.com-volume-uid=mine"}); !errors.Is(err, provisioner.InvalidArgument) {
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
	for raw, allowed := range map[string]bool{"skuName": true, "tags": false} {
		change, err := volumeparams.ParseChange(map[string]string{raw: map[string]string{"skuName": "StandardSSD_LRS", "tags": "a=b"}[raw]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.With(change, volumeparams.GiB); (err == nil) != allowed {
			t.Errorf("a change of %s of a disk with 50 tags: got %v, want an error: %t", raw, err, !allowed)
		}
	}
}
