package azure

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The specification of Azure's API has no null for the properties of a disk.
func TestNoChangeOfADiskSendsANull(t *testing.T) {
	t.Parallel()
	private := provisioner.DiskSettings{
		SKUName:             "Premium_LRS",
		Tier:                "P30",
		NetworkAccessPolicy: "AllowPrivate",
		PublicNetworkAccess: "Disabled",
		DiskAccessID:        "/access",
		BurstingEnabled:     true,
		Tags:                map[string]string{"a": "1"},
	}
	is := provisioner.Disk{SizeBytes: gib, DiskSettings: private}
	for name, to := range map[string]provisioner.DiskSettings{
		"another policy":   {NetworkAccessPolicy: "DenyAll"},
		"nothing":          {},
		"no disk access":   {SKUName: "Premium_LRS", NetworkAccessPolicy: "AllowAll", PublicNetworkAccess: "Enabled"},
		"tags and nothing": {Tags: map[string]string{}},
	} {
		body, changed := changeOf(is, provisioner.DiskChange{From: private, To: to})
		sent, err := json.Marshal(body)
		if err != nil || !changed || strings.Contains(string(sent), "null") {
			t.Errorf("%s: got %s, changed %t, error %v; want a change without null", name, sent, changed, err)
		}
	}
}
