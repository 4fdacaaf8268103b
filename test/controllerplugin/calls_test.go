package controllerplugin

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func TestCreateVolumeIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		first, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", replicated))
		must(t, err)
		again, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", replicated))
		must(t, err)
		if first.String() != again.String() {
			t.Fatalf("%s\n%s", first, again)
		}
		larger := controlplane.CreateRequest("vol", replicated)
		larger.CapacityRange.RequiredBytes *= 2
		_, err = p.CSI.CreateVolume(t.Context(), larger)
		expectCode(t, err, codes.AlreadyExists)
		other := maps.Clone(replicated)
		other["skuName"] = "StandardSSD_LRS"
		_, err = p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", other))
		expectCode(t, err, codes.AlreadyExists)
		volume := first.GetVolume()
		if zone := volume.GetAccessibleTopology()[0].GetSegments()["topology.disk.csi.azure.com/zone"]; zone != "eastus-1" {
			t.Fatalf("zone %q", zone)
		}
		if c := volume.GetVolumeContext(); c["maxShares"] != "2" || c["cachingMode"] != "None" || c["requestedsizegib"] != "10" ||
			c["fsType"] != "ext4" {
			t.Fatalf("volume context %v", c)
		}
		if n := p.Cloud.CallCount(fake.DisksCreate); n != 1 {
			t.Fatalf("%d disks were asked for", n)
		}
	})
}

func TestVolumeThatAzureRefusesIsNotLeftOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.Cloud.FailNext(fake.DisksCreate, 1, provisioner.Errorf(provisioner.InsufficientCapacity, "the quota is used up"))
		_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
		expectCode(t, err, codes.ResourceExhausted)
		if !strings.Contains(err.Error(), "quota is used up") || p.Volume("vol") != nil {
			t.Fatal(err)
		}
		p.Cloud.FailNext(fake.DisksCreate, 2, provisioner.Errorf(provisioner.Unavailable, "try again"))
		p.Create("vol", nil)
	})
}

func TestAnUnrelatedDiskIsNeitherAdoptedNorDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           controlplane.DiskID("vol"),
			Location:     "eastus",
			Zone:         "1",
			SizeBytes:    10 << 30,
			MaxShares:    1,
			Ready:        true,
			DiskSettings: provisioner.DiskSettings{SKUName: "StandardSSD_LRS"},
		})
		_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
		expectCode(t, err, codes.AlreadyExists)
		if p.Volume("vol") != nil || len(p.Cloud.State().Disks) != 1 {
			t.Fatal("the disk was taken or deleted")
		}
	})
}

func TestDiskOfV1ThatWasNeverPublishedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		handle := controlplane.DiskID("pvc-v1")
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           handle,
			Location:     "eastus",
			Zone:         "1",
			SizeBytes:    10 << 30,
			MaxShares:    1,
			Ready:        true,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		must(t, err)
		if len(p.Cloud.State().Disks) != 0 || p.Volume("pvc-v1") != nil {
			t.Fatal("something is left over")
		}
	})
}
