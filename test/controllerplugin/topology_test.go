package controllerplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

const (
	ownKey = "topology." + controlplane.DriverName + "/zone"
	region = controlplane.Location
)

// in is a topology with the driver's own key.
func in(value string) *csi.Topology { return &csi.Topology{Segments: map[string]string{ownKey: value}} }

// wellKnown is a topology with the key that Kubernetes gives zones.
func wellKnown(value string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{corev1.LabelTopologyZone: value}}
}

func both(value string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{ownKey: value, corev1.LabelTopologyZone: value}}
}

// accessibleFrom are the values of the driver's key in a volume's topology.
func accessibleFrom(v *csi.Volume) []string {
	var values []string
	for _, t := range v.GetAccessibleTopology() {
		for key, value := range t.GetSegments() {
			if key == ownKey {
				values = append(values, value)
			} else {
				values = append(values, key+"="+value)
			}
		}
	}
	return values
}

func TestCreateVolumePutsTheDiskWhereItMayBe(t *testing.T) {
	type topologies = []*csi.Topology
	everywhere := []string{region + "-1", region + "-2", region + "-3", region + "-4", ""}
	for i, test := range []struct {
		name                 string
		preferred, requisite topologies
		parameters           map[string]string
		zone                 string
		accessible           []string
		code                 codes.Code
		says                 []string
	}{
		{name: "preferred comes before requisite", preferred: topologies{in(region + "-3"), in(region + "-1")},
			requisite: topologies{in(region + "-1"), in(region + "-3")}, zone: "3", accessible: []string{region + "-3"}},
		{name: "the node that the scheduler selected, with strict topology", preferred: topologies{both(region + "-2")},
			requisite: topologies{both(region + "-2")}, zone: "2", accessible: []string{region + "-2"}},
		{name: "Immediate: the first of all zones that the provisioner prefers",
			preferred: topologies{in(region + "-2"), in(region + "-3"), in(region + "-1")},
			requisite: topologies{in(region + "-1"), in(region + "-2"), in(region + "-3")}, zone: "2",
			accessible: []string{region + "-2"}},
		{name: "allowedTopologies with the well-known key", requisite: topologies{wellKnown(region + "-2")}, zone: "2",
			accessible: []string{region + "-2"}},
		{name: "the driver's key decides where both are given",
			requisite:  topologies{{Segments: map[string]string{ownKey: "", corev1.LabelTopologyZone: "0"}}},
			accessible: []string{""}},
		{name: "a fault domain in the well-known key is no zone", requisite: topologies{wellKnown("0")},
			accessible: []string{""}},
		{name: "nodes outside of the zones", requisite: topologies{in("")}, accessible: []string{""}},
		{name: "a preferred place outside of the zones", preferred: topologies{in("")},
			requisite: topologies{in(region + "-1"), in("")}, accessible: []string{""}},
		{name: "no requirement", accessible: []string{""}},
		{name: "keys of others say nothing",
			requisite: topologies{{Segments: map[string]string{"topology.example.com/rack": "7"}}}, accessible: []string{""}},
		{name: "a region in capitals", requisite: topologies{in("EastUS-1")}, zone: "1", accessible: []string{region + "-1"}},
		{name: "a ZRS disk is in no zone and can be used in all", preferred: topologies{in(region + "-2")},
			parameters: map[string]string{"skuName": "Premium_ZRS"}, accessible: everywhere},
		{name: "a ZRS disk without a requirement", parameters: map[string]string{"skuName": "StandardSSD_ZRS"},
			accessible: everywhere},
		{name: "the location of the class picks among the places", requisite: topologies{in("westeurope-1"), in(region + "-2")},
			parameters: map[string]string{"location": region}, zone: "2", accessible: []string{region + "-2"}},
		{name: "the location of the class counts outside of the zones", requisite: topologies{in("")},
			parameters: map[string]string{"location": "westus"}, accessible: []string{""}},
		{name: "a zone without the SKU is left out", preferred: topologies{in(region + "-1"), in(region + "-3")},
			parameters: map[string]string{"skuName": "PremiumV2_LRS"}, zone: "3", accessible: []string{region + "-3"}},
		{name: "no place with the SKU is left", requisite: topologies{in(region + "-1")},
			parameters: map[string]string{"skuName": "PremiumV2_LRS"}, code: codes.ResourceExhausted,
			says: []string{"PremiumV2_LRS", region + "-1"}},
		{name: "Azure decides about Premium v2 outside of the zones", requisite: topologies{in("")},
			parameters: map[string]string{"skuName": "PremiumV2_LRS"}, accessible: []string{""}},
		{name: "Premium v2 is in a zone if one is allowed", preferred: topologies{in("")},
			requisite: topologies{in(""), in(region + "-3")}, parameters: map[string]string{"skuName": "PremiumV2_LRS"},
			zone: "3", accessible: []string{region + "-3"}},
		{name: "Premium v2 without a requested zone is created where nodes are",
			parameters: map[string]string{"skuName": "PremiumV2_LRS"}, zone: "2", accessible: []string{region + "-2"}},
		{name: "a SKU that the region does not have", requisite: topologies{in(region + "-1"), in(region + "-2")},
			parameters: map[string]string{"skuName": "UltraSSD_LRS"}, code: codes.InvalidArgument,
			says: []string{"skuName", "UltraSSD_LRS", region}},
		{name: "a SKU that the region does not have, without a requirement",
			parameters: map[string]string{"skuName": "UltraSSD_LRS"}, code: codes.InvalidArgument, says: []string{"skuName"}},
		{name: "the location of the class is in no place", requisite: topologies{in(region + "-1")},
			parameters: map[string]string{"location": "westus"}, code: codes.InvalidArgument, says: []string{"westus"}},
		{name: "a value that is no zone", requisite: topologies{in("somewhere")}, code: codes.InvalidArgument,
			says: []string{ownKey, "somewhere"}},
		{name: "a zone without a number", requisite: topologies{wellKnown(region + "-")}, code: codes.InvalidArgument,
			says: []string{corev1.LabelTopologyZone}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				p.AddNode("to-2", "2", size)
				p.Cloud.Withdraw("PremiumV2_LRS", "1")
				p.Cloud.Withdraw("UltraSSD_LRS", "1", "2", "3")
				name := fmt.Sprintf("to-%d", i)
				request := controlplane.CreateRequest(name, test.parameters)
				request.AccessibilityRequirements = nil
				if test.preferred != nil || test.requisite != nil {
					request.AccessibilityRequirements = &csi.TopologyRequirement{Preferred: test.preferred,
						Requisite: test.requisite}
				}
				response, err := p.CSI.CreateVolume(t.Context(), request)
				expectCode(t, err, test.code)
				if err != nil {
					for _, words := range test.says {
						if !strings.Contains(err.Error(), words) {
							t.Errorf("%q does not name %q", err, words)
						}
					}
					return
				}
				if v := p.Volume(name); v.Spec.Disk.Zone != test.zone ||
					!slices.Equal(accessibleFrom(response.GetVolume()), test.accessible) {
					t.Errorf("zone %q, accessible from %q; want zone %q, %q", v.Spec.Disk.Zone,
						accessibleFrom(response.GetVolume()),
						test.zone, test.accessible)
				}
				again, err := p.CSI.CreateVolume(t.Context(), request)
				must(t, err)
				if again.String() != response.String() {
					t.Errorf("the same call again: %s, before: %s", again, response)
				}
			})
		})
	}
}

func TestAnotherNameOfTheDriverHasATopologyKeyOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.Create("vol", nil)
		other, err := csicontroller.New(csicontroller.Options{
			Client:         p.Client,
			Reader:         p.Client,
			Watch:          cluster.NewWatch(),
			Disks:          p.Cloud.Disks(),
			SKUs:           p.Cloud.SKUs(),
			Clock:          clock.RealClock{},
			Namespace:      p.Namespace,
			DriverName:     "disk.example.com",
			SubscriptionID: controlplane.Subscription,
			ResourceGroup:  controlplane.Group,
			Location:       region,
			WaitTimeout:    time.Minute,
		})
		must(t, err)
		request := controlplane.CreateRequest("vol", nil)
		request.AccessibilityRequirements.Requisite = []*csi.Topology{
			{Segments: map[string]string{"topology.disk.example.com/zone": region + "-1"}},
		}
		response, err := other.CreateVolume(t.Context(), request)
		must(t, err)
		if got := response.GetVolume().GetAccessibleTopology()[0].GetSegments()["topology.disk.example.com/zone"]; got != region+
			"-1" {
			t.Errorf("%s", response)
		}
		request.AccessibilityRequirements.Requisite[0].Segments["topology.disk.example.com/zone"] = region + "-2"
		_, err = other.CreateVolume(t.Context(), request)
		expectCode(t, err, codes.AlreadyExists)
	})
}

func TestWithoutAWordOfTheOffersAzureDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		noOffers(p)
		request := controlplane.CreateRequest("vol", nil)
		response, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		if got := accessibleFrom(response.GetVolume()); !slices.Equal(got, []string{region + "-1"}) {
			t.Errorf("accessible from %v", got)
		}
	})
}
