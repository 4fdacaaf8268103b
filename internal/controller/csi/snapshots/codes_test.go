package snapshots_test

import (
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

type (
	call  = controlplane.Call
	coded = controlplane.Coded
)

// TestCodes has the rows of docs/reference/errors.md that no other test shows. test/docs/errors.yaml
// names its cases. Each case has a snapshot of its own.
func TestCodes(t *testing.T) {
	controlplane.TestCodes(t, coding)
}

func coding(t *testing.T) (*controlplane.ControlPlane, map[string]coded) {
	p := controlplane.WithPendingCopies(t)
	disk := p.AddDisk("disk", nil)
	take := func(name, source string, parameters map[string]string, requisite ...*csi.Topology) call {
		request := &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source, Parameters: parameters}
		if requisite != nil {
			request.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: requisite}
		}
		return controlplane.Ask(p.CSI.CreateSnapshot, request)
	}
	remove := func(id string) call {
		return controlplane.Ask(p.CSI.DeleteSnapshot, &csi.DeleteSnapshotRequest{SnapshotId: id})
	}
	get := func(id string) call {
		return controlplane.Ask(p.CSI.GetSnapshot, &csi.GetSnapshotRequest{SnapshotId: id})
	}
	inject := func(method fake.Method, f fake.Fault, name string) {
		f.Method, f.ID = method, controlplane.SnapshotID(name)
		p.Cloud.Inject(f)
	}
	taking := func(f fake.Fault) func(string) []call {
		return func(name string) []call {
			inject(fake.SnapshotsCreate, f, name)
			return []call{take(name, disk, nil)}
		}
	}
	of := func(method fake.Method, f fake.Fault, about func(id string) call) func(string) []call {
		return func(name string) []call {
			id := mustTake(p, t, name, disk, nil).GetSnapshotId()
			inject(method, f, name)
			return []call{about(id)}
		}
	}
	refusal := func(kind provisioner.Kind) fake.Fault {
		return fake.Fault{Err: provisioner.Errorf(kind, "Azure says no")}
	}
	held := fake.Fault{Hold: make(chan struct{})}
	return p, map[string]coded{
		"take with what is not allowed": {Want: codes.InvalidArgument, Calls: func(name string) []call {
			return []call{
				take("", disk, nil),
				take(name, "", nil),
				take(name, disk, map[string]string{"incremental": "maybe"}),
				take(name, disk, map[string]string{"instantAccessDurationMinutes": "60"}),
			}
		}},
		"take of what is no disk": {Want: codes.NotFound, Calls: func(name string) []call {
			return []call{take(name, controlplane.DiskID("none"), nil), take(name, "nonsense", nil)}
		}},
		"take beyond the quota": {Want: codes.ResourceExhausted, Calls: taking(refusal(provisioner.InsufficientCapacity))},
		"take for another place": {Want: codes.ResourceExhausted, Calls: func(name string) []call {
			segments := map[string]string{"topology." + controlplane.DriverName + "/zone": "westus2-1"}
			return []call{take(name, disk, nil, &csi.Topology{Segments: segments})}
		}},
		"take without permission":    {Want: codes.PermissionDenied, Calls: taking(refusal(provisioner.Unauthorized))},
		"take while Azure is taking": {Want: codes.DeadlineExceeded, Waits: true, Calls: taking(held)},
		"delete without permission": {
			Want: codes.PermissionDenied, Calls: of(fake.SnapshotsDelete, refusal(provisioner.Unauthorized), remove),
		},
		"delete while Azure is deleting": {
			Want: codes.DeadlineExceeded, Waits: true, Calls: of(fake.SnapshotsDelete, held, remove),
		},
		"get":               {Want: codes.OK, Calls: of(fake.SnapshotsGet, fake.Fault{}, get)},
		"get without an ID": {Want: codes.InvalidArgument, Calls: func(string) []call { return []call{get("")} }},
		"get what does not exist": {Want: codes.NotFound, Calls: func(name string) []call {
			return []call{get(controlplane.SnapshotID(name)), get("no/such/thing")}
		}},
		"get while Azure asks to wait": {
			Want: codes.Unavailable, Calls: of(fake.SnapshotsGet, refusal(provisioner.RateLimited), get),
		},
	}
}

// After a final code csi-snapshotter forgets the snapshot, and does not call for its deletion.
func TestARefusedSnapshotHasNoFinalCodeWhileOneExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		mustTake(p, t, "snap", disk, nil)
		_, err := p.TakeSnapshot("snap", disk, map[string]string{"incremental": "maybe"})
		expectCode(t, err, codes.Unavailable)
	})
}
