package sku

import (
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// TestWhatAListSaysOfOtherRegionsDoesNotCount reads the zones in which a disk SKU is offered in
// eastus.
func TestWhatAListSaysOfOtherRegionsDoesNotCount(t *testing.T) {
	restriction := func(of armcompute.ResourceSKURestrictionsType, locations,
		zones []string) *armcompute.ResourceSKURestrictions {
		return &armcompute.ResourceSKURestrictions{
			Type: &of, RestrictionInfo: &armcompute.ResourceSKURestrictionInfo{
				Locations: to.SliceOfPtrs(locations...),
				Zones:     to.SliceOfPtrs(zones...),
			},
		}
	}
	location, zone := armcompute.ResourceSKURestrictionsTypeLocation, armcompute.ResourceSKURestrictionsTypeZone
	for name, test := range map[string]struct {
		of           []string
		restrictions []*armcompute.ResourceSKURestrictions
		want         []string // nil: not offered
	}{
		"without restrictions": {[]string{"eastus"}, nil, []string{"1", "2"}},
		"in another spelling":  {[]string{"East US"}, nil, []string{"1", "2"}},
		"of another region":    {[]string{"westus"}, nil, nil},
		"restricted": {[]string{"eastus"},
			[]*armcompute.ResourceSKURestrictions{restriction(location, []string{"eastus"}, nil)}, nil},
		"restricted, without a region": {[]string{"eastus"}, []*armcompute.ResourceSKURestrictions{{Type: &location}},
			nil},
		"restricted in another region": {[]string{"eastus"},
			[]*armcompute.ResourceSKURestrictions{restriction(location, []string{"westus"}, nil)}, []string{"1", "2"}},
		"restricted in a zone": {[]string{"eastus"},
			[]*armcompute.ResourceSKURestrictions{restriction(zone, []string{"eastus"}, []string{"1"})}, []string{"2"}},
		"restricted in a zone of another region": {[]string{"eastus"},
			[]*armcompute.ResourceSKURestrictions{restriction(zone, []string{"westus"}, []string{"1"})}, []string{"1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := offers{sizes: map[string]provisioner.VMLimits{}, tiers: map[string][]tier{}}
			all.add(&armcompute.ResourceSKU{
				Name:         to.Ptr("Premium_LRS"),
				ResourceType: to.Ptr("disks"),
				Locations:    to.SliceOfPtrs(test.of...),
				Restrictions: test.restrictions,
				LocationInfo: []*armcompute.ResourceSKULocationInfo{{Location: &test.of[0], Zones: to.SliceOfPtrs("1", "2")}},
			}, "eastus")
			var got []string
			for _, offer := range all.tiers["premium_lrs"] {
				got = append(got, offer.zones...)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got zones %v, want %v", got, test.want)
			}
		})
	}
}
