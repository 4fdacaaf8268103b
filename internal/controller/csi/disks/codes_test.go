package disks_test

import (
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	p.AddNode("codes-a", "1", "Standard_D4s_v5")
	create := func(name string, parameters map[string]string, edit func(*csi.CreateVolumeRequest)) call {
		request := controlplane.CreateRequest(name, parameters)
		if edit != nil {
			edit(request)
		}
		return controlplane.Ask(p.CSI.CreateVolume, request)
	}
	remove := func(id string) call {
		return controlplane.Ask(p.CSI.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: id})
	}
	expand := func(id string, bytes int64) call {
		return controlplane.Ask(p.CSI.ControllerExpandVolume, &csi.ControllerExpandVolumeRequest{
			VolumeId:         id,
			CapacityRange:    &csi.CapacityRange{RequiredBytes: bytes},
			VolumeCapability: controlplane.Mounted(),
		})
	}
	modify := func(id, key, value string) call {
		return controlplane.Ask(p.CSI.ControllerModifyVolume, &csi.ControllerModifyVolumeRequest{
			VolumeId:          id,
			MutableParameters: map[string]string{key: value},
		})
	}
	// fails makes the calls of a method about a disk fail. f is what Azure does.
	fails := func(disk string, method fake.Method, f fake.Fault) {
		f.Method, f.ID = method, controlplane.DiskID(disk)
		p.Cloud.Inject(f)
	}
	creating := func(f fake.Fault) func(disk string) []call {
		return func(disk string) []call {
			fails(disk, fake.DisksCreate, f)
			return []call{create(disk, nil, nil)}
		}
	}
	of := func(method fake.Method, f fake.Fault, calls func(id string) call) func(disk string) []call {
		return func(disk string) []call {
			id := p.Create(disk, nil)
			fails(disk, method, f)
			return []call{calls(id)}
		}
	}
	refusal := func(kind provisioner.Kind) fake.Fault {
		return fake.Fault{Err: provisioner.Errorf(kind, "Azure says no")}
	}
	held := fake.Fault{Hold: make(chan struct{})}
	grown := func(id string) call { return expand(id, 20*gib) }
	tagged := func(id string) call { return modify(id, "tags", "a=b") }
	return p, map[string]coded{
		"create without name or capabilities": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			return []call{
				create("", nil, nil),
				create(disk, nil, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }),
			}
		}},
		"create with parameters that are not allowed": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			return []call{
				create(disk, map[string]string{"skuNam": "Premium_LRS"}, nil),
				create(disk, map[string]string{"skuName": "Premium"}, nil),
				create(disk, map[string]string{"skuName": "Premium_LRS", "maxShares": "4"}, nil),
				create(disk, map[string]string{"maxShares": "2", "maxMountReplicaCount": "1"}, func(r *csi.CreateVolumeRequest) {
					r.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
				}),
			}
		}},
		"create in a resource group that does not exist": {Want: codes.NotFound, Calls: creating(refusal(provisioner.NotFound))},
		"create without permission": {
			Want: codes.PermissionDenied, Calls: creating(refusal(provisioner.Unauthorized)),
		},
		"create while Azure asks to wait": {
			Want: codes.Unavailable, Waits: true, Calls: creating(refusal(provisioner.RateLimited)),
		},
		"create while Azure is creating": {Want: codes.DeadlineExceeded, Waits: true, Calls: creating(held)},
		"delete what does not exist": {Want: codes.OK, Calls: func(disk string) []call {
			id := p.Create(disk, nil)
			return []call{remove(id), remove(id), remove("nonsense")}
		}},
		"delete without an ID": {Want: codes.InvalidArgument, Calls: func(string) []call { return []call{remove("")} }},
		"delete while Azure fails": {
			Want: codes.Unavailable, Calls: of(fake.DisksDelete, refusal(provisioner.Unavailable), remove),
		},
		"delete without permission": {
			Want: codes.PermissionDenied, Calls: of(fake.DisksDelete, refusal(provisioner.Unauthorized), remove),
		},
		"delete while Azure is deleting": {Want: codes.Aborted, Waits: true, Calls: of(fake.DisksDelete, held, remove)},
		"expand without ID or size": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			return []call{expand("", 20*gib), expand(p.Create(disk, nil), -1)}
		}},
		"expand beyond the SKU": {Want: codes.OutOfRange, Calls: func(disk string) []call {
			return []call{expand(p.Create(disk, nil), 100<<40)}
		}},
		"expand what does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{grown(controlplane.DiskID(disk)), grown("nonsense")}
		}},
		"expand a shared disk in use": {Want: codes.Aborted, Calls: func(disk string) []call {
			id := p.Create(disk, map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
			must(t, p.Publish(t.Context(), id, "codes-a"))
			return []call{grown(id)}
		}},
		"expand a disk in use across 4 TiB": {Want: codes.FailedPrecondition, Calls: func(disk string) []call {
			id := p.Create(disk, map[string]string{"skuName": "Premium_LRS"})
			must(t, p.Publish(t.Context(), id, "codes-a"))
			return []call{expand(id, 5<<40)}
		}},
		"expand beyond the quota": {
			Want: codes.ResourceExhausted, Calls: of(fake.DisksUpdate, refusal(provisioner.InsufficientCapacity), grown),
		},
		"expand without permission": {
			Want: codes.PermissionDenied, Calls: of(fake.DisksUpdate, refusal(provisioner.Unauthorized), grown),
		},
		"expand while Azure fails": {
			Want: codes.Unavailable, Waits: true, Calls: of(fake.DisksUpdate, refusal(provisioner.Unavailable), grown),
		},
		"modify with parameters that are not allowed": {Want: codes.InvalidArgument, Calls: func(disk string) []call {
			id := p.Create(disk, nil)
			return []call{tagged(""), modify(id, "fsType", "xfs"), modify(id, "diskIOPSReadWrite", "5000")}
		}},
		"modify what does not exist": {Want: codes.NotFound, Calls: func(disk string) []call {
			return []call{tagged(controlplane.DiskID(disk)), tagged("nonsense")}
		}},
		"modify without permission": {
			Want: codes.PermissionDenied, Calls: of(fake.DisksUpdate, refusal(provisioner.Unauthorized), tagged),
		},
		"modify while Azure fails": {
			Want: codes.Unavailable, Waits: true, Calls: of(fake.DisksUpdate, refusal(provisioner.Unavailable), tagged),
		},
		"modify while Azure is changing": {Want: codes.Aborted, Waits: true, Calls: of(fake.DisksUpdate, held, tagged)},
	}
}

// After a final code csi-provisioner forgets the volume, and does not call for its deletion.
func TestARefusedCreationHasNoFinalCodeWhileTheAzVolumeExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.Create("vol", nil)
		for name, edit := range map[string]func(*csi.CreateVolumeRequest){
			"a SKU that does not exist": func(r *csi.CreateVolumeRequest) {
				r.Parameters = map[string]string{"skuName": "Premium"}
			},
			"a size that no disk has": func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 100 << 40 },
			"a source that does not exist": func(r *csi.CreateVolumeRequest) {
				r.VolumeContentSource = fromVolume(controlplane.DiskID("none"))
			},
		} {
			request := controlplane.CreateRequest("vol", nil)
			edit(request)
			if _, err := p.CSI.CreateVolume(t.Context(), request); status.Code(err) != codes.Unavailable {
				t.Errorf("%s: got %v, want Unavailable", name, err)
			}
		}
	})
}
