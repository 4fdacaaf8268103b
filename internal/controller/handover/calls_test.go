package handover_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func TestCreateVolumeRefusesWhatCannotBe(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	for name, test := range map[string]struct {
		parameters map[string]string
		change     func(*csi.CreateVolumeRequest)
		code       codes.Code
		says       []string
	}{
		"an unknown parameter":           {parameters: map[string]string{"skuNam": "x"}, code: codes.InvalidArgument, says: []string{"skuNam", "skuName"}},
		"more shares than the size has":  {parameters: map[string]string{"skuName": "Premium_LRS", "maxShares": "4"}, code: codes.InvalidArgument, says: []string{"maxShares", `"4"`, "1 to 3"}},
		"shares of a Standard HDD":       {parameters: map[string]string{"skuName": "Standard_LRS", "maxShares": "2"}, code: codes.InvalidArgument, says: []string{"maxShares", "Standard_LRS"}},
		"more replicas than shares":      {parameters: map[string]string{"maxShares": "2", "maxMountReplicaCount": "2"}, code: codes.InvalidArgument, says: []string{"maxMountReplicaCount", "0 to 1"}},
		"no name":                        {change: func(r *csi.CreateVolumeRequest) { r.Name = "" }, code: codes.InvalidArgument},
		"no capability":                  {change: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, code: codes.InvalidArgument},
		"too large":                      {change: func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 100 << 40 }, code: codes.OutOfRange},
		"a limit below what is required": {change: func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 << 30 }, code: codes.InvalidArgument},
		"several nodes without shares": {change: func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
		}, code: codes.InvalidArgument, says: []string{"maxShares"}},
		"several nodes with replicas": {parameters: map[string]string{"maxShares": "2", "maxMountReplicaCount": "1"},
			change: func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
			}, code: codes.InvalidArgument, says: []string{"maxMountReplicaCount"}},
		"a filesystem on several nodes": {parameters: map[string]string{"maxShares": "2"}, change: func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, code: codes.InvalidArgument, says: []string{"block"}},
		"a location out of reach": {parameters: map[string]string{"location": "westus"}, code: codes.InvalidArgument, says: []string{"location", "westus", "eastus"}},
	} {
		t.Run(name, func(t *testing.T) {
			request := controlplane.CreateRequest("bad", test.parameters)
			if test.change != nil {
				test.change(request)
			}
			_, err := p.CSI.CreateVolume(t.Context(), request)
			expectCode(t, err, test.code)
			for _, words := range test.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not name %q", err, words)
				}
			}
		})
	}
	if p.Volume("bad") != nil || len(p.Cloud.State().Disks) != 0 {
		t.Fatal("something was created")
	}
}

func TestCreateVolumeIsIdempotent(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
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
	if c := volume.GetVolumeContext(); c["maxShares"] != "2" || c["cachingMode"] != "None" || c["requestedsizegib"] != "10" || c["fsType"] != "ext4" {
		t.Fatalf("volume context %v", c)
	}
	if n := p.Cloud.CallCount(fake.DisksCreate); n != 1 {
		t.Fatalf("%d disks were asked for", n)
	}
}

func TestVolumeThatAzureRefusesIsNotLeftOver(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.Cloud.FailNext(fake.DisksCreate, 1, provisioner.Errorf(provisioner.InsufficientCapacity, "the quota is used up"))
	_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
	expectCode(t, err, codes.ResourceExhausted)
	if !strings.Contains(err.Error(), "quota is used up") || p.Volume("vol") != nil {
		t.Fatal(err)
	}
	p.Cloud.FailNext(fake.DisksCreate, 2, provisioner.Errorf(provisioner.Unavailable, "try again"))
	p.Create("vol", nil)
}

func TestAForeignDiskIsNeitherAdoptedNorDeleted(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.Cloud.AddDisk(provisioner.Disk{ID: controlplane.DiskID("vol"), Location: "eastus", Zone: "1", SKUName: "StandardSSD_LRS", SizeBytes: 10 << 30, MaxShares: 1, Ready: true})
	_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
	expectCode(t, err, codes.AlreadyExists)
	if p.Volume("vol") != nil || len(p.Cloud.State().Disks) != 1 {
		t.Fatal("the disk was taken or deleted")
	}
}

func TestDiskOfAHandMadeVolumeIsAdopted(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("ad-a", "1", size)
	p.AddNode("ad-b", "1", size)
	handle := controlplane.DiskID("By_Hand")
	expectCode(t, p.Publish(t.Context(), handle, "ad-a"), codes.NotFound)
	p.Cloud.AddDisk(provisioner.Disk{ID: handle, Location: "eastus", Zone: "1", SKUName: "Premium_LRS", SizeBytes: 10 << 30, MaxShares: 2, Ready: true})
	name := "By_Hand"
	stageOn(t, p, handle, name, "ad-a")
	awaitReplica(t, p, name, "ad-b")
	if v := p.Volume(name); v.Spec.Origin != apiv1.OriginAdopted || v.Spec.MaxMountReplicaCount != 1 || v.Status.SizeBytes != 10<<30 {
		t.Fatalf("%+v", v)
	}
	p.Unstage(name, "ad-a")
	must(t, p.Unpublish(t.Context(), handle, "ad-a"))
	_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	must(t, err)
	if len(p.Cloud.State().Disks) != 0 {
		t.Fatal("the disk is left over")
	}
}

func TestDiskOfV1ThatWasNeverPublishedIsDeleted(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	handle := controlplane.DiskID("pvc-v1")
	p.Cloud.AddDisk(provisioner.Disk{ID: handle, Location: "eastus", Zone: "1", SKUName: "Premium_LRS", SizeBytes: 10 << 30, MaxShares: 1, Ready: true})
	_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	must(t, err)
	if len(p.Cloud.State().Disks) != 0 || p.Volume("pvc-v1") != nil {
		t.Fatal("something is left over")
	}
}

func TestWhatIsNotThere(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("nt-a", "1", size)
	handle := p.Create("vol", nil)
	missing := controlplane.DiskID("missing")
	expectCode(t, p.Publish(t.Context(), missing, "nt-a"), codes.NotFound)
	expectCode(t, p.Publish(t.Context(), "nonsense", "nt-a"), codes.NotFound)
	expectCode(t, p.Publish(t.Context(), handle, "nowhere"), codes.NotFound)
	must(t, p.Unpublish(t.Context(), missing, "nt-a"))
	must(t, p.Unpublish(t.Context(), "nonsense", "nt-a"))
	must(t, p.Unpublish(t.Context(), handle, "nowhere"))
	for _, id := range []string{missing, "nonsense"} {
		_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
		must(t, err)
		_, err = p.CSI.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{controlplane.Mounted()}})
		expectCode(t, err, codes.NotFound)
	}
	if v := p.Volume("vol"); v.Status.Primary != nil {
		t.Fatalf("claim %+v", v.Status.Primary)
	}
	response, err := p.CSI.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: handle, VolumeCapabilities: []*csi.VolumeCapability{controlplane.Shared()}})
	must(t, err)
	if response.GetConfirmed() != nil || response.GetMessage() == "" {
		t.Fatal(response)
	}
}

func TestBusyVolumeIsAborted(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	release := p.Cloud.HoldAll(fake.DisksCreate)
	first := make(chan error, 1)
	go func() {
		_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
		first <- err
	}()
	p.Eventually("the first call is at work", func() string {
		if v := p.Volume("vol"); v == nil || v.Status.State != apiv1.VolumeCreating {
			return "not yet"
		}
		return ""
	})
	_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("vol", nil))
	expectCode(t, err, codes.Aborted)
	release()
	must(t, <-first)
}

func TestFailuresOfAttachReachTheCaller(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fa-a", "2", size) // the disk is in zone 1
	handle := p.Create("vol", nil)
	err := p.Publish(t.Context(), handle, "fa-a")
	expectCode(t, err, codes.InvalidArgument)
	if !strings.Contains(status.Convert(err).Message(), "zone") {
		t.Fatal(err)
	}
	must(t, p.Unpublish(t.Context(), handle, "fa-a"))
	_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	must(t, err)
}
