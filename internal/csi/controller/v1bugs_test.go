package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// In V1 the attribute of one volume became the delay of every later attach of the driver. Here it delays nothing, not even its own.
func TestV1BugAttachDiskInitialDelayIsOfAllVolumes(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("ad-a", "1", vmSize)
	first := p.Create("first", map[string]string{"attachDiskInitialDelay": "600000"})
	second := p.Create("second", nil)
	began := time.Now()
	must(t, publishWith(t, p, first, "ad-a", controlplane.Mounted(), map[string]string{"attachDiskInitialDelay": "600000"}))
	must(t, publishWith(t, p, second, "ad-a", controlplane.Mounted(), nil))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the attaches took %s", took)
	}
}

// In V1 the guard against deleting a disk that is on its way to a VM never fired, and Azure deletes such a disk.
func TestV1BugADiskThatIsBeingAttachedIsDeleted(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("da-a", "1", vmSize)
	handle := p.Create("vol", nil)
	release := p.Cloud.HoldAll(fake.AttachmentsAttach)
	must(t, p.Publish(t.Context(), handle, "da-a")) // accepted, and not done
	_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	expectCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), "da-a") {
		t.Errorf("%q does not name the node", err)
	}
	if n := p.Cloud.CallCount(fake.DisksDelete); n != 0 || len(p.Cloud.State().Disks) != 1 {
		t.Fatalf("Azure was asked to delete the disk %d times", n)
	}
	release()
	must(t, p.Unpublish(t.Context(), handle, "da-a"))
	_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	must(t, err)
}

// In V1 an Ultra disk and a shared disk were attached with the default caching, which Azure refuses.
func TestV1BugUltraAndSharedDisksAreCached(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("uc-a", "1", vmSize)
	for name, parameters := range map[string]map[string]string{
		"ultra": {"skuName": "UltraSSD_LRS"}, "premium-v2": {"skuName": "PremiumV2_LRS"}, "shared": {"skuName": "Premium_LRS", "maxShares": "2", "maxMountReplicaCount": "0"},
	} {
		response, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest(name, parameters))
		must(t, err)
		if mode := response.GetVolume().GetVolumeContext()["cachingMode"]; mode != "None" {
			t.Errorf("%s: the volume context says %s", name, mode)
		}
		handle := response.GetVolume().GetVolumeId()
		must(t, publishWith(t, p, handle, "uc-a", controlplane.Mounted(), response.GetVolume().GetVolumeContext()))
		if request, ok := p.Cloud.AttachedAs(controlplane.VMID("uc-a"), handle); !ok || request.CachingMode != "None" {
			t.Errorf("%s: attached as %+v", name, request)
		}
	}
}

// In V1 whatever kept the driver from reading a disk made a volume that exists NotFound.
func TestV1BugADiskThatCannotBeReadIsNotFound(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	disk := v1Disk("unread")
	p.Cloud.AddDisk(disk)
	for kind, want := range map[provisioner.Kind]codes.Code{
		provisioner.Unavailable: codes.Unavailable, provisioner.RateLimited: codes.Unavailable, provisioner.Unauthorized: codes.PermissionDenied,
	} {
		remove := p.Cloud.Inject(fake.Fault{Method: fake.DisksGet, Err: provisioner.Errorf(kind, "Azure says no")})
		_, err := p.CSI.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: disk.ID, VolumeCapabilities: []*csi.VolumeCapability{controlplane.Mounted()},
		})
		expectCode(t, err, want)
		_, err = p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: disk.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30}})
		expectCode(t, err, want)
		_, err = p.CSI.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: disk.ID, MutableParameters: map[string]string{"tags": "a=b"}})
		expectCode(t, err, want)
		// V1 answered a deletion with success or Internal here.
		_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: disk.ID})
		expectCode(t, err, want)
		remove()
	}
	if len(p.Cloud.State().Disks) != 1 {
		t.Error("the disk is gone")
	}
}
