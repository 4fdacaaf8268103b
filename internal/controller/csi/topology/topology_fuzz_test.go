package topology_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
)

func FuzzTopology(f *testing.F) {
	const own = "topology.disk.csi.azure.com/zone"
	for _, seed := range [][3]string{
		{own, "eastus-1", "eastus-2"}, {corev1.LabelTopologyZone, "EastUS-3", ""}, {own, "", "0"},
		{corev1.LabelTopologyZone, "1", "eastus"}, {"x", "y", "z"},
		{own, "-", "eastus-"}, {own, "-1", "us-gov-west-1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	driver := topology.KeyOf("disk.csi.azure.com")
	f.Fuzz(func(t *testing.T, key, first, second string) {
		requirement := &csi.TopologyRequirement{
			Preferred: []*csi.Topology{{Segments: map[string]string{key: first}}},
			Requisite: []*csi.Topology{{Segments: map[string]string{key: second}}, {}, nil},
		}
		places, err := driver.Places(requirement)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		for _, p := range places {
			if p.Zone != "" && p.Location == "" {
				t.Fatalf("got a zone without a region: %+v", p)
			}
			// A disk in that place satisfies the requirement, and is accessible from there.
			disk := apiv1.DiskParameters{
				Location:     p.Location,
				Zone:         p.Zone,
				DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"},
			}
			if !driver.Fits(disk, requirement) {
				t.Fatalf("a disk in %+v does not fit %v", p, requirement)
			}
			for _, accessible := range driver.Accessible(disk) {
				again, ok, err := driver.Of(accessible)
				if err != nil || !ok || again.Zone != p.Zone {
					t.Fatalf("%+v reads back as %+v, %v, %v", p, again, ok, err)
				}
			}
		}
	})
}
