package controllerplugin

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

type (
	call  = controlplane.Call
	coded = controlplane.Coded
)

// TestCodes has the rows of docs/reference/errors.md that no other test shows. test/docs/errors.yaml
// names its cases. Each case has a disk of its own.
func TestCodes(t *testing.T) {
	controlplane.TestCodes(t, coding)
}

func coding(t *testing.T) (*controlplane.ControlPlane, map[string]coded) {
	p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
	p.AddNode("codes-a", "1", size)
	const none = "nonsense"
	publish := func(id, node string, edit func(*csi.ControllerPublishVolumeRequest)) call {
		request := &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: controlplane.Mounted()}
		if edit != nil {
			edit(request)
		}
		return controlplane.Ask(p.CSI.ControllerPublishVolume, request)
	}
	unpublish := func(id string) call {
		return func(ctx context.Context) error { return p.Unpublish(ctx, id, "codes-a") }
	}
	validate := func(id string, capabilities ...*csi.VolumeCapability) call {
		return controlplane.Ask(p.CSI.ValidateVolumeCapabilities, &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId:           id,
			VolumeCapabilities: capabilities,
		})
	}
	health := func(id string) call {
		return controlplane.Ask(p.CSI.ControllerGetVolumeHealth, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	}
	list := func(entries int32, token string) []call {
		return []call{
			controlplane.Ask(p.CSI.ListVolumes, &csi.ListVolumesRequest{MaxEntries: entries, StartingToken: token}),
			controlplane.Ask(p.CSI.ControllerListVolumeHealth, &csi.ControllerListVolumeHealthRequest{
				MaxEntries:    entries,
				StartingToken: token,
			}),
		}
	}
	// refused returns the publish of a disk that Azure does not attach.
	refused := func(kind provisioner.Kind) func(string) []call {
		return func(disk string) []call {
			id := p.Create(disk, nil)
			p.Cloud.Inject(fake.Fault{
				Method: fake.AttachmentsAttach, ID: id, Err: provisioner.Errorf(kind, "Azure says no"),
			})
			return []call{publish(id, "codes-a", nil)}
		}
	}
	return p, map[string]coded{
		"the AzVolume of the name is of another disk": {Want: codes.FailedPrecondition, Calls: func(disk string) []call {
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.VolumeName(disk)}}
			v.Spec = apiv1.AzVolumeSpec{Origin: apiv1.OriginAdopted, Access: apiv1.AccessSingleNode, CapacityBytes: 10 * gib}
			v.Spec.Disk = apiv1.DiskParameters{
				SubscriptionID: controlplane.Subscription,
				ResourceGroup:  "other",
				Name:           disk,
				MaxShares:      1,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			}
			must(t, p.Client.Create(t.Context(), v))
			id := p.AddDisk(disk, nil)
			return []call{
				controlplane.Ask(p.CSI.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: id}),
				publish(id, "codes-a", nil),
				unpublish(id),
			}
		}},
		"publish without volume, node or capability": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			id := p.Create(disk, nil)
			return []call{
				publish("", "codes-a", nil),
				publish(id, "", nil),
				publish(id, "codes-a", func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = nil }),
			}
		}},
		"publish to several nodes": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			return []call{publish(p.Create(disk, nil), "codes-a", func(r *csi.ControllerPublishVolumeRequest) {
				r.VolumeCapability = controlplane.Shared()
			})}
		}},
		"publish what does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{publish(controlplane.DiskID(disk), "codes-a", nil), publish(none, "codes-a", nil)}
		}},
		"publish to a node that does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{publish(p.Create(disk, nil), "nowhere", nil)}
		}},
		"publish with another access": {Want: codes.AlreadyExists, Calls: func(disk string) []call {
			id := p.Create(disk, nil)
			must(t, p.Publish(t.Context(), id, "codes-a"))
			return []call{publish(id, "codes-a", func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true })}
		}},
		"publish without permission":          {Want: codes.PermissionDenied, Calls: refused(provisioner.Unauthorized)},
		"publish while Azure asks to wait":    {Want: codes.Unavailable, Calls: refused(provisioner.RateLimited)},
		"publish while Azure does not accept": {Want: codes.Aborted, Waits: true, Calls: refused(provisioner.Conflict)},
		"unpublish without a volume": {Want: codes.InvalidArgument, Calls: func(string) []call {
			return []call{unpublish("")}
		}},
		"unpublish what does not exist": {Want: codes.OK, Calls: func(disk string) []call {
			return []call{
				unpublish(none),
				unpublish(controlplane.DiskID(disk)),
				func(ctx context.Context) error { return p.Unpublish(ctx, p.Create(disk, nil), "nowhere") },
			}
		}},
		"validate without volume or capability": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			id := p.Create(disk, nil)
			return []call{validate("", controlplane.Mounted()), validate(id), validate(id, &csi.VolumeCapability{})}
		}},
		"validate what does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{validate(controlplane.DiskID(disk), controlplane.Mounted()), validate(none, controlplane.Mounted())}
		}},
		"validate what cannot be had": {Want: codes.OK, Calls: func(disk string) []call {
			return []call{validate(p.Create(disk, nil), controlplane.Shared())}
		}},
		"lists of a negative size": {Want: codes.InvalidArgument, Calls: func(string) []call { return list(-1, "") }},
		"lists from a token that is none": {Want: codes.Aborted, Calls: func(string) []call {
			return append(list(0, "17"), list(0, pagetoken.Encode("snapshots", "a"))...)
		}},
		"health without a volume": {Want: codes.InvalidArgument, Calls: func(string) []call { return []call{health("")} }},
		"health of what does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{health(controlplane.DiskID(disk)), health(none)}
		}},
		"health of a disk that cannot be read": {Want: codes.Unavailable, Calls: func(disk string) []call {
			id := p.AddDisk(disk, nil)
			p.Cloud.Inject(fake.Fault{
				Method: fake.DisksGet, ID: id, Err: provisioner.Errorf(provisioner.RateLimited, "Azure asks to wait"),
			})
			return []call{health(id)}
		}},
		"capabilities": {Want: codes.OK, Calls: func(string) []call {
			return []call{controlplane.Ask(p.CSI.ControllerGetCapabilities, &csi.ControllerGetCapabilitiesRequest{})}
		}},
	}
}
