package snapshotparams_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const subscription = "00000000-0000-0000-0000-000000000001"

// An unknown parameter was INTERNAL in V1, which the snapshotter tries again for ever.
func TestFaultsNameParameterValueAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw  map[string]string
		says []string
	}{
		"an unknown parameter, with the nearest one": {map[string]string{"incrementall": "true"},
			[]string{"incrementall", "incremental"}},
		"a region that cannot be": {map[string]string{"location": "west/us"}, []string{"location", "west/us"}},
		"neither true nor false":  {map[string]string{"incremental": "no"}, []string{"incremental", "no", "true, false"}},
		"instant access that is too short": {map[string]string{"instantAccessDurationMinutes": "59"},
			[]string{"instantAccessDurationMinutes", "59", "60 to 300"}},
		"instant access that is too long": {map[string]string{"instantAccessDurationMinutes": "301"},
			[]string{"301", "60 to 300"}},
		"an authentication mode in another case": {map[string]string{"dataAccessAuthMode": "none"},
			[]string{"dataAccessAuthMode", "none", "None"}},
		"a policy that Azure does not have": {map[string]string{"networkAccessPolicy": "Allow"},
			[]string{"networkAccessPolicy", "DenyAll"}},
		"a policy without its disk access": {map[string]string{"networkAccessPolicy": "AllowPrivate"},
			[]string{"diskAccessID", "AllowPrivate"}},
		"a disk access without its policy": {map[string]string{"diskAccessID": "/subscriptions/x"},
			[]string{"diskAccessID", "AllowPrivate"}},
		"a tag without a value": {map[string]string{"tags": "a"}, []string{"tags", `"a"`}},
		"one parameter twice": {map[string]string{"location": "eastus", "LOCATION": "westus"},
			[]string{"location", "eastus", "westus"}},
		"all faults at once": {map[string]string{"incremental": "x", "publicNetworkAccess": "y"},
			[]string{"incremental", "publicNetworkAccess"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := snapshotparams.Parse(test.raw)
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

func TestEveryParameterOfV1IsKnown(t *testing.T) {
	t.Parallel()
	p, err := snapshotparams.Parse(map[string]string{
		"RESOURCEGROUP": "rg", "Incremental": "False", "location": "West US 2", "subscriptionID": subscription,
		"tags":              "a=b=c;d=e,f",
		"tagValueDelimiter": ";",
		"userAgent":         "me", "dataAccessAuthMode": "AzureActiveDirectory", "networkAccessPolicy": "DenyAll",
		"publicNetworkAccess": "Disabled", "instantAccessDurationMinutes": "60",
		"csi.storage.k8s.io/volumesnapshot/name": "nightly", "csi.storage.k8s.io/volumesnapshot/namespace": "shop",
		"csi.storage.k8s.io/volumesnapshotcontent/name": "content",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.ResourceGroup != "rg" || p.Incremental || p.Location != "westus2" || p.SubscriptionID != subscription ||
		p.DataAccessAuthMode != "AzureActiveDirectory" ||
		p.NetworkAccessPolicy != "DenyAll" || p.PublicNetworkAccess != "Disabled" || p.InstantAccessMinutes != 60 ||
		len(p.WithoutEffect) != 2 {
		t.Errorf("parameters are %+v", p)
	}
	want := map[string]string{
		"a": "b=c", "d": "e,f", "k8s-azure-created-by": "kubernetes-azure-dd",
		"kubernetes.io-created-for-snapshot-name": "nightly", "kubernetes.io-created-for-snapshot-namespace": "shop",
	}
	if !maps.Equal(p.Tags, want) {
		t.Errorf("tags are %v, want %v", p.Tags, want)
	}
}

func TestWhatTheSourceAllows(t *testing.T) {
	t.Parallel()
	premium, ultra := provisioner.Disk{
		Location:     "eastus",
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}, provisioner.Disk{Location: "East US", DiskSettings: provisioner.DiskSettings{SKUName: "UltraSSD_LRS"}}
	for name, test := range map[string]struct {
		raw    map[string]string
		source provisioner.Disk
		says   string // "" if it is allowed
	}{
		"a full snapshot":                  {map[string]string{"incremental": "false"}, premium, ""},
		"a full snapshot of an Ultra disk": {map[string]string{"incremental": "false"}, ultra, "UltraSSD_LRS"},
		"a full snapshot in another region": {
			map[string]string{"incremental": "false", "location": "westus"}, premium, "westus"},
		"an incremental snapshot in another region": {map[string]string{"location": "westus"}, premium, ""},
		"the disk's own region in another spelling": {map[string]string{"location": "East US", "incremental": "false"},
			premium, ""},
		"instant access to a snapshot of an Ultra disk": {
			map[string]string{"instantAccessDurationMinutes": "300", "location": "eastus"}, ultra, ""},
		"instant access to a snapshot of a Premium disk": {map[string]string{"instantAccessDurationMinutes": "60"}, premium,
			"Premium_LRS"},
		"instant access to a snapshot in another region": {
			map[string]string{"instantAccessDurationMinutes": "60", "location": "westus"}, ultra, "westus"},
		"a full snapshot as 0 and in another region": {map[string]string{"incremental": "0", "location": "westus"}, premium,
			"westus"},
		"nothing at all": {nil, premium, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := snapshotparams.Parse(test.raw)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Check(test.source)
			if test.says == "" && err != nil || test.says != "" &&
				(!errors.Is(err, provisioner.InvalidArgument) || !strings.Contains(err.Error(), test.says)) {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tags", "a=b", "tagValueDelimiter", ";")
	f.Add("instantAccessDurationMinutes", "60", "incremental", "false")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		if _, err := snapshotparams.Parse(map[string]string{
			k1: v1,
			k2: v2,
		}); err != nil && !errors.Is(err, provisioner.InvalidArgument) {
			t.Fatal(err)
		}
	})
}

func TestASnapshotHasRoomForTheTagsThatTheDriverAdds(t *testing.T) {
	t.Parallel()
	pairs := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("t%d=v", i))
		}
		return strings.Join(all, ",")
	}
	for n, allowed := range map[int]bool{
		44: true,
		45: false,
	} { // with k8s-azure-created-by and one that every snapshot gets: 46, and 47
		p, err := snapshotparams.Parse(map[string]string{"tags": pairs(n)})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AddTags(map[string]string{"T0": "other", "cluster": "blue"}); (err == nil) != allowed {
			t.Errorf("%d tags: got %v, want an error: %t", n, err, !allowed)
		}
	}
}
