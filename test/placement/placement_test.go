// Package placement asks the whole driver, over azuresim, where disks can be had and how many a node takes.
package placement

import (
	"os"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

const gib = int64(1) << 30

type driver struct {
	*testing.T
	csi.ControllerClient
}

func in(zone string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{stack.TopologyKey: zone}}
}

func (d driver) capacity(zone string, parameters map[string]string) *csi.GetCapacityResponse {
	d.Helper()
	got, err := d.GetCapacity(d.Context(), &csi.GetCapacityRequest{AccessibleTopology: in(zone), Parameters: parameters})
	if err != nil {
		d.Fatal(err)
	}
	return got
}

func (d driver) create(name string, parameters map[string]string, zones ...string) (*csi.Volume, error) {
	requirement := &csi.TopologyRequirement{}
	for _, zone := range zones {
		requirement.Preferred = append(requirement.Preferred, in(zone))
	}
	requirement.Requisite = requirement.Preferred
	got, err := d.CreateVolume(d.Context(), &csi.CreateVolumeRequest{
		Name: name, Parameters: parameters, CapacityRange: &csi.CapacityRange{RequiredBytes: 10 * gib},
		VolumeCapabilities: []*csi.VolumeCapability{stack.MountCapability("ext4")}, AccessibilityRequirements: requirement,
	})
	return got.GetVolume(), err
}

func TestCapacityTopologyAndLimitsOverAzuresim(t *testing.T) {
	s := stack.Start(t, stack.Options{Nodes: 1, Controllers: 1, AzureFlags: []string{"--quota", "PremiumDiskCount=1,UltraSSDDiskSizeInGB=64"}})
	conn, err := stack.Connect(s.ControllerSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := driver{t, csi.NewControllerClient(conn)}
	sku := func(name string) map[string]string { return map[string]string{"skuName": name} }

	t.Run("the node takes what Azure lists for its size", func(t *testing.T) {
		nodes, err := stack.Connect(s.Nodes[0].Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer nodes.Close()
		info, err := csi.NewNodeClient(nodes).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		if err != nil || info.GetMaxVolumesPerNode() != 8 || info.GetAccessibleTopology().GetSegments()[stack.TopologyKey] != s.Zone {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("the quota is what is left", func(t *testing.T) {
		d := driver{t, d.ControllerClient}
		if got := d.capacity(s.Zone, sku("Premium_LRS")); got.GetAvailableCapacity() != 32767*gib || got.GetMaximumVolumeSize().GetValue() != 32767*gib {
			t.Errorf("one disk: %v", got)
		}
		if got := d.capacity(s.Zone, sku("UltraSSD_LRS")); got.GetAvailableCapacity() != 64*gib || got.GetMaximumVolumeSize().GetValue() != 64*gib {
			t.Errorf("64 GiB: %v", got)
		}
		if got := d.capacity(s.Zone, sku("StandardSSD_LRS")); got.GetAvailableCapacity() < 1000*32767*gib {
			t.Errorf("Azure's own limit: %v", got)
		}
		first, err := d.create("first", sku("Premium_LRS"), s.Zone)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.create("second", sku("Premium_LRS"), s.Zone)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second disk: %v", err)
		}
		if got := d.capacity(s.Zone, sku("Premium_LRS")); got.GetAvailableCapacity() != 0 || got.GetMaximumVolumeSize().GetValue() != 0 {
			t.Errorf("after the refusal: %v", got)
		}
		list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetVolume().GetVolumeId() != first.GetVolumeId() {
			t.Errorf("%v, %v", list, err)
		}
	})
	t.Run("a zone without the SKU has no capacity and gets no disk", func(t *testing.T) {
		d := driver{t, d.ControllerClient}
		elsewhere := map[string]string{"skuName": "PremiumV2_LRS", "location": "southeastasia"}
		if got := d.capacity("southeastasia-3", elsewhere); got.GetAvailableCapacity() != 0 {
			t.Errorf("zone 3: %v", got)
		}
		if got := d.capacity("southeastasia-2", elsewhere); got.GetAvailableCapacity() == 0 || got.GetMaximumVolumeSize().GetValue() != 65536*gib {
			t.Errorf("zone 2: %v", got)
		}
		v, err := d.create("skips", elsewhere, "southeastasia-3", "southeastasia-2")
		if err != nil || v.GetAccessibleTopology()[0].GetSegments()[stack.TopologyKey] != "southeastasia-2" {
			t.Errorf("%v, %v", v, err)
		}
		if _, err := d.create("strict", elsewhere, "southeastasia-3"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("with the one zone only: %v", err)
		}
		if got := d.capacity("", sku("PremiumV2_LRS")); got.GetAvailableCapacity() != 0 {
			t.Errorf("outside of the zones: %v", got)
		}
	})
	t.Run("a ZRS disk is for every zone", func(t *testing.T) {
		d := driver{t, d.ControllerClient}
		v, err := d.create("zrs", sku("Premium_ZRS"), s.Zone)
		if err != nil {
			t.Fatal(err)
		}
		var zones []string
		for _, topology := range v.GetAccessibleTopology() {
			zones = append(zones, topology.GetSegments()[stack.TopologyKey])
		}
		if !slices.Equal(zones, []string{"eastus-1", "eastus-2", "eastus-3", "eastus-4", ""}) {
			t.Errorf("%q", zones)
		}
	})
}
