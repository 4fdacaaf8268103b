package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func FuzzTopology(f *testing.F) {
	const own = "topology.disk.csi.azure.com/zone"
	for _, seed := range [][3]string{
		{own, "eastus-1", "eastus-2"}, {corev1.LabelTopologyZone, "EastUS-3", ""}, {own, "", "0"}, {corev1.LabelTopologyZone, "1", "eastus"}, {"x", "y", "z"},
		{own, "-", "eastus-"}, {own, "-1", "us-gov-west-1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	s := &Server{Options: Options{DriverName: "disk.csi.azure.com", Location: "eastus"}}
	f.Fuzz(func(t *testing.T, key, first, second string) {
		requirement := &csi.TopologyRequirement{
			Preferred: []*csi.Topology{{Segments: map[string]string{key: first}}}, Requisite: []*csi.Topology{{Segments: map[string]string{key: second}}, {}, nil},
		}
		places, err := s.places(requirement)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		for _, p := range places {
			if p.zone != "" && p.location == "" {
				t.Fatalf("a zone of no region: %+v", p)
			}
			// A disk that was put there satisfies the requirement, and says so.
			disk := apiv1.DiskParameters{SKUName: "Premium_LRS", Location: p.location, Zone: p.zone}
			if !s.fits(disk, requirement) {
				t.Fatalf("a disk in %+v does not fit %v", p, requirement)
			}
			for _, topology := range s.accessible(disk) {
				again, ok, err := s.placeOf(topology)
				if err != nil || !ok || again.zone != p.zone {
					t.Fatalf("%+v reads back as %+v, %v, %v", p, again, ok, err)
				}
			}
		}
	})
}
