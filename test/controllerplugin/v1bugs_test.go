package controllerplugin

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// In V1 the attribute of one volume became the delay of every later attach of the driver. Here it
// delays nothing, not even its own.
func TestV1BugAttachDiskInitialDelayIsOfAllVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("ad-a", "1", size)
		first := p.Create("first", map[string]string{"attachDiskInitialDelay": "600000"})
		second := p.Create("second", nil)
		began := time.Now()
		must(t, p.PublishWith(t.Context(), first, "ad-a", controlplane.Mounted(),
			map[string]string{"attachDiskInitialDelay": "600000"}))
		must(t, p.PublishWith(t.Context(), second, "ad-a", controlplane.Mounted(), nil))
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the attaches took %s", took)
		}
	})
}

// In V1 an Ultra disk and a shared disk were attached with the default caching, which Azure
// refuses.
func TestV1BugUltraAndSharedDisksAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("uc-a", "1", size)
		for name, parameters := range map[string]map[string]string{
			"ultra": {"skuName": "UltraSSD_LRS"}, "premium-v2": {"skuName": "PremiumV2_LRS"}, "shared": {
				"skuName":              "Premium_LRS",
				"maxShares":            "2",
				"maxMountReplicaCount": "0",
			},
		} {
			response, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest(name, parameters))
			must(t, err)
			if mode := response.GetVolume().GetVolumeContext()["cachingMode"]; mode != "None" {
				t.Errorf("%s: the volume context says %s", name, mode)
			}
			handle := response.GetVolume().GetVolumeId()
			must(t, p.PublishWith(t.Context(), handle, "uc-a", controlplane.Mounted(), response.GetVolume().GetVolumeContext()))
			if request, ok := p.Cloud.AttachedAs(controlplane.VMID("uc-a"), handle); !ok || request.CachingMode != "None" {
				t.Errorf("%s: attached as %+v", name, request)
			}
		}
	})
}

// In V1 every error of a read of a disk became NotFound, although the volume existed.
func TestV1BugADiskThatCannotBeReadIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		disk := p.AddDisk("unread", nil)
		for kind, want := range map[provisioner.Kind]codes.Code{
			provisioner.Unavailable: codes.Unavailable, provisioner.RateLimited: codes.Unavailable,
			provisioner.Unauthorized: codes.PermissionDenied,
		} {
			remove := p.Cloud.Inject(fake.Fault{Method: fake.DisksGet, Err: provisioner.Errorf(kind, "Azure says no")})
			_, err := p.CSI.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: disk, VolumeCapabilities: []*csi.VolumeCapability{controlplane.Mounted()},
			})
			expectCode(t, err, want)
			_, err = p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId:      disk,
				CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
			})
			expectCode(t, err, want)
			_, err = p.CSI.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{
				VolumeId:          disk,
				MutableParameters: map[string]string{"tags": "a=b"},
			})
			expectCode(t, err, want)
			// V1 answered a deletion with success or Internal here.
			_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: disk})
			expectCode(t, err, want)
			remove()
		}
		if len(p.Cloud.State().Disks) != 1 {
			t.Error("the disk is gone")
		}
		// One that goes while the driver has it is not there.
		modify := func(value string) error {
			_, err := p.CSI.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{
				VolumeId:          disk,
				MutableParameters: map[string]string{"tags": "a=" + value},
			})
			return err
		}
		must(t, modify("b"))
		op, err := p.Cloud.Disks().Delete(t.Context(), disk)
		must(t, err)
		must(t, op.Wait(t.Context()))
		expectCode(t, modify("c"), codes.NotFound)
	})
}

// In V1 the check against the deletion of a disk that is being attached, which Azure carries out, was
// in the memory of one process, and each sidecar had its own leader: the deletion was in another
// process. Here any process can serve any call.
func TestV1BugTheGuardsAreInTheMemoryOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("gm-a", "1", size)
		p.AddNode("gm-b", "1", size)
		other, err := csicontroller.New(p.CSI.Options)
		must(t, err)
		handle := p.Create("vol", nil)
		release := p.Cloud.HoldAll(fake.AttachmentsAttach)
		must(t, p.Publish(t.Context(), handle, "gm-a")) // accepted, and not done
		_, err = other.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		expectCode(t, err, codes.FailedPrecondition)
		if n := p.Cloud.CallCount(fake.DisksDelete); n != 0 || !strings.Contains(err.Error(), "gm-a") {
			t.Errorf("got %q after %d calls to delete the disk, want an error that names the node, and none", err, n)
		}
		_, err = other.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId:         handle,
			NodeId:           "gm-b",
			VolumeCapability: controlplane.Mounted(),
		})
		expectCode(t, err, codes.FailedPrecondition)
		release()
		_, err = other.ControllerUnpublishVolume(t.Context(),
			&csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: "gm-a"})
		must(t, err)
		must(t, p.Publish(t.Context(), handle, "gm-b"))
		if at := p.AttachedTo("vol"); len(at) != 1 || at[0] != "gm-b" {
			t.Errorf("attached to %v", at)
		}
	})
}

// In V1 only CreateVolume, DeleteVolume and CreateSnapshot refused a second call for the same
// volume.
func TestV1BugTwoCallsForOneVolumeAreAtWork(t *testing.T) {
	controlplane.Each(t, twoCalls, func(t *testing.T, p *controlplane.ControlPlane, _ string, test twice) {
		// Azure answers late whether it accepts the call.
		remove := p.Cloud.Inject(fake.Fault{
			Method: test.method,
			ID:     faultID(test.method, test.volume),
			Delay:  2 * time.Second,
		})
		defer remove()
		before := p.Cloud.CallCount(test.method)
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- test.call(t.Context(), test.volume) }()
		}
		got := map[codes.Code]int{status.Code(<-ended): 1}
		got[status.Code(<-ended)]++
		if got[codes.OK] != 1 || got[codes.Aborted] != 1 {
			t.Errorf("the two calls ended with %v", got)
		}
		if n := p.Cloud.CallCount(test.method) - before; n != 1 {
			t.Errorf("the platform was asked %d times", n)
		}
	})
}

type twice struct {
	volume string
	method fake.Method
	call   func(ctx context.Context, handle string) error
}

func twoCalls(t *testing.T) (*controlplane.ControlPlane, map[string]twice) {
	p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
	p.AddNode("tc-a", "1", size)
	published := func(name string) string {
		handle := p.Create(name, nil)
		must(t, p.Publish(t.Context(), handle, "tc-a"))
		return handle
	}
	taken, err := p.TakeSnapshot("delete-snapshot", p.Create("source", nil), nil)
	must(t, err)
	return p, map[string]twice{
		"publish": {p.Create("publish", nil), fake.AttachmentsAttach,
			func(ctx context.Context, handle string) error { return p.Publish(ctx, handle, "tc-a") }},
		"unpublish": {published("unpublish"), fake.AttachmentsDetach,
			func(ctx context.Context, handle string) error { return p.Unpublish(ctx, handle, "tc-a") }},
		"expand": {p.Create("expand", nil), fake.DisksUpdate, func(ctx context.Context, handle string) error {
			_, err := p.CSI.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId:      handle,
				CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
			})
			return err
		}},
		"modify": {p.Create("modify", nil), fake.DisksUpdate, func(ctx context.Context, handle string) error {
			_, err := p.CSI.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
				VolumeId:          handle,
				MutableParameters: map[string]string{"tags": "a=b"},
			})
			return err
		}},
		"delete": {p.Create("delete", nil), fake.DisksDelete, func(ctx context.Context, handle string) error {
			_, err := p.CSI.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle})
			return err
		}},
		"create": {controlplane.DiskID("create"), fake.DisksCreate, func(ctx context.Context, _ string) error {
			_, err := p.CSI.CreateVolume(ctx, controlplane.CreateRequest("create", nil))
			return err
		}},
		"snapshot": {p.Create("snapshot", nil), fake.SnapshotsCreate, func(ctx context.Context, handle string) error {
			_, err := p.CSI.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: handle})
			return err
		}},
		"delete-snapshot": {taken.GetSnapshotId(), fake.SnapshotsDelete, func(ctx context.Context, id string) error {
			_, err := p.CSI.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
			return err
		}},
	}
}

// faultID is the ID of the object that a call of a method about a volume names at Azure.
func faultID(method fake.Method, handle string) string {
	if method == fake.SnapshotsCreate {
		return ""
	}
	return handle
}
