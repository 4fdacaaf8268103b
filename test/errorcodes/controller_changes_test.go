package errorcodes

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func snapshotRows() []row[controllerWorld] {
	take := func(w controllerWorld, ctx context.Context, name, source string, parameters map[string]string) error {
		_, err := w.csi().CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
			Name:           name,
			SourceVolumeId: source,
			Parameters:     parameters,
		})
		return err
	}
	remove := func(w controllerWorld, ctx context.Context, id string) error {
		_, err := w.csi().DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}
	list := func(w controllerWorld, request *csi.ListSnapshotsRequest) error {
		_, err := w.csi().ListSnapshots(w.Context(), request)
		return err
	}
	get := func(w controllerWorld, id string) error {
		_, err := w.csi().GetSnapshot(w.Context(), &csi.GetSnapshotRequest{SnapshotId: id})
		return err
	}
	snapshot := func(w controllerWorld) string {
		return strings.Replace(controlplane.DiskID("snap-"+w.name), "/disks/", "/snapshots/", 1)
	}
	return []row[controllerWorld]{
		{"CreateSnapshot", "the content is fixed, or was by an earlier call; the answer reports whether it can be restored yet",
			codes.OK, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.must(take(w, w.Context(), "snap-"+w.name, handle, nil))
				return take(w, w.Context(), "snap-"+w.name, handle, nil)
			}},
		{
			"CreateSnapshot",
			"name or source are missing; a parameter is unknown, has a value that is not allowed, or does not go with the disk",
			codes.InvalidArgument,
			func(w controllerWorld) error {
				disk := w.volume(nil)
				return alike(
					take(w, w.Context(), "", disk, nil),
					take(w, w.Context(), "snap-"+w.name, "", nil),
					take(w, w.Context(), "snap-"+w.name, disk, map[string]string{"incremental": "maybe"}),
					take(w, w.Context(), "snap-"+w.name, disk, map[string]string{"instantAccessDurationMinutes": "60"}),
				)
			},
		},
		{"CreateSnapshot", "the disk does not exist, or the ID is no disk's", codes.NotFound, func(w controllerWorld) error {
			return alike(take(w, w.Context(), "snap-"+w.name, w.missing(), nil),
				take(w, w.Context(), "snap-"+w.name, "nonsense", nil))
		}},
		{"CreateSnapshot", "a snapshot of the name exists of another disk", codes.AlreadyExists, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			w.name += "-other"
			return take(w, w.Context(), "snap-"+strings.TrimSuffix(w.name, "-other"), w.volume(nil), nil)
		}},
		{"CreateSnapshot", "the quota is used up", codes.ResourceExhausted, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsCreate, provisioner.InsufficientCapacity)
			return take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil)
		}},
		{"CreateSnapshot", "it would not be usable from any place that the requirement names", codes.ResourceExhausted,
			func(w controllerWorld) error {
				_, err := w.csi().CreateSnapshot(w.Context(), &csi.CreateSnapshotRequest{
					Name:           "snap-" + w.name,
					SourceVolumeId: w.volume(nil),
					AccessibilityRequirements: &csi.TopologyRequirement{
						Requisite: []*csi.Topology{
							{Segments: map[string]string{"topology.disk.csi.azure.com/zone": "westus2-1"}},
						},
					},
				})
				return err
			}},
		{"CreateSnapshot", "the driver's credentials do not suffice", codes.PermissionDenied, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsCreate, provisioner.Unauthorized)
			return take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil)
		}},
		{"CreateSnapshot", "Azure fails, cannot be reached or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsCreate, provisioner.RateLimited)
			return take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil)
		}},
		{"CreateSnapshot", "it is refused for any reason but AlreadyExists, and the snapshot of an earlier call exists",
			codes.Unavailable, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.must(take(w, w.Context(), "snap-"+w.name, handle, nil))
				return take(w, w.Context(), "snap-"+w.name, handle, map[string]string{"incremental": "maybe"})
			}},
		{"CreateSnapshot", "Azure is still at it when the time is up", codes.DeadlineExceeded, func(w controllerWorld) error {
			w.Cleanup(w.plane.Cloud.HoldAll(fake.SnapshotsCreate))
			return take(w, w.shortly(), "snap-"+w.name, w.volume(nil), nil)
		}},
		{"CreateSnapshot", "another call for the snapshot is running", codes.Aborted, func(w controllerWorld) error {
			handle := w.volume(nil)
			w.held(fake.SnapshotsCreate, func() error { return take(w, context.Background(), "snap-"+w.name, handle, nil) },
				w.called(fake.SnapshotsCreate))
			return take(w, w.Context(), "snap-"+w.name, handle, nil)
		}},

		{"DeleteSnapshot", "the snapshot is gone, was never there, or the ID is no snapshot's", codes.OK,
			func(w controllerWorld) error { return remove(w, w.Context(), snapshot(w)) }},
		{"DeleteSnapshot", "the snapshot ID is missing", codes.InvalidArgument,
			func(w controllerWorld) error { return remove(w, w.Context(), "") }},
		{"DeleteSnapshot", "the driver's credentials do not suffice", codes.PermissionDenied, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			w.refuse(fake.SnapshotsDelete, provisioner.Unauthorized)
			return remove(w, w.Context(), snapshot(w))
		}},
		{"DeleteSnapshot", "Azure fails, cannot be reached or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			w.refuse(fake.SnapshotsDelete, provisioner.RateLimited)
			return remove(w, w.Context(), snapshot(w))
		}},
		{"DeleteSnapshot", "Azure is still at it when the time is up", codes.DeadlineExceeded, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			w.Cleanup(w.plane.Cloud.HoldAll(fake.SnapshotsDelete))
			return remove(w, w.shortly(), snapshot(w))
		}},
		{"DeleteSnapshot", "another call for the snapshot is running", codes.Aborted, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			w.held(fake.SnapshotsDelete, func() error { return remove(w, context.Background(), snapshot(w)) },
				w.called(fake.SnapshotsDelete))
			return remove(w, w.Context(), snapshot(w))
		}},

		{"ListSnapshots", "at any time; what does not exist is not listed", codes.OK,
			func(w controllerWorld) error { return list(w, &csi.ListSnapshotsRequest{SnapshotId: snapshot(w)}) }},
		{"ListSnapshots", "the number of entries is negative", codes.InvalidArgument,
			func(w controllerWorld) error { return list(w, &csi.ListSnapshotsRequest{MaxEntries: -1}) }},
		{"ListSnapshots", "the token is not one of this list", codes.Aborted,
			func(w controllerWorld) error { return list(w, &csi.ListSnapshotsRequest{StartingToken: "17"}) }},
		{"ListSnapshots", "Azure fails, cannot be reached or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsList, provisioner.RateLimited)
			return list(w, &csi.ListSnapshotsRequest{})
		}},

		{"GetSnapshot", "the snapshot exists, also if the driver did not create it", codes.OK, func(w controllerWorld) error {
			w.must(take(w, w.Context(), "snap-"+w.name, w.volume(nil), nil))
			return get(w, snapshot(w))
		}},
		{"GetSnapshot", "the snapshot ID is missing", codes.InvalidArgument, func(w controllerWorld) error { return get(w, "") }},
		{"GetSnapshot", "the snapshot does not exist, or the ID is no snapshot's", codes.NotFound,
			func(w controllerWorld) error { return get(w, snapshot(w)) }},
		{"GetSnapshot", "Azure fails, cannot be reached or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsGet, provisioner.RateLimited)
			return get(w, snapshot(w))
		}},
	}
}

func changeRows() []row[controllerWorld] {
	expand := func(w controllerWorld, ctx context.Context, id string, bytes int64) error {
		_, err := w.csi().ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId:         id,
			CapacityRange:    &csi.CapacityRange{RequiredBytes: bytes},
			VolumeCapability: controlplane.Mounted(),
		})
		return err
	}
	modify := func(w controllerWorld, ctx context.Context, id string, parameters map[string]string) error {
		_, err := w.csi().ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
			VolumeId:          id,
			MutableParameters: parameters,
		})
		return err
	}
	tags := map[string]string{"tags": "a=b"}
	shared := map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}
	return []row[controllerWorld]{
		{"ControllerExpandVolume", "the disk has the size, or is larger already", codes.OK,
			func(w controllerWorld) error { return expand(w, w.Context(), w.volume(nil), 20<<30) }},
		{"ControllerExpandVolume", "volume ID or capacity range are missing, or the range makes no sense", codes.InvalidArgument,
			func(w controllerWorld) error { return expand(w, w.Context(), w.volume(nil), -1) }},
		{"ControllerExpandVolume", "no disk of the SKU has such a size", codes.OutOfRange,
			func(w controllerWorld) error { return expand(w, w.Context(), w.volume(nil), 100<<40) }},
		{"ControllerExpandVolume", "the disk does not exist, or the ID is no disk's", codes.NotFound,
			func(w controllerWorld) error { return expand(w, w.Context(), w.missing(), 20<<30) }},
		{"ControllerExpandVolume", "a node uses a shared disk, or Azure does not grow this one while it is attached",
			codes.FailedPrecondition, func(w controllerWorld) error {
				return expand(w, w.Context(), w.used(shared), 20<<30)
			}},
		{"ControllerExpandVolume", "the quota is used up", codes.ResourceExhausted, func(w controllerWorld) error {
			handle := w.volume(nil)
			w.refuse(fake.DisksUpdate, provisioner.InsufficientCapacity)
			return expand(w, w.Context(), handle, 20<<30)
		}},
		{"ControllerExpandVolume", "the driver's credentials do not suffice", codes.PermissionDenied,
			func(w controllerWorld) error {
				handle := w.volume(nil)
				w.refuse(fake.DisksUpdate, provisioner.Unauthorized)
				return expand(w, w.Context(), handle, 20<<30)
			}},
		{"ControllerExpandVolume", "Azure fails, cannot be reached or asks to wait, for as long as the caller does",
			codes.Unavailable, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.refuse(fake.DisksUpdate, provisioner.Unavailable)
				return expand(w, w.untilFailed(), handle, 20<<30)
			}},
		{"ControllerExpandVolume", "another call for the volume is running, or Azure is still at it when the time is up",
			codes.Aborted, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.Cleanup(w.plane.Cloud.HoldAll(fake.DisksUpdate))
				return expand(w, w.shortly(), handle, 20<<30)
			}},

		{"ControllerModifyVolume", "the disk is as asked for", codes.OK,
			func(w controllerWorld) error { return modify(w, w.Context(), w.volume(nil), tags) }},
		{
			"ControllerModifyVolume",
			"the volume ID is missing; a parameter is unknown or cannot be changed, has a value that is not allowed, or does not go with the disk",
			codes.InvalidArgument,
			func(w controllerWorld) error {
				disk := w.volume(nil)
				return alike(
					modify(w, w.Context(), "", tags),
					modify(w, w.Context(), disk, map[string]string{"fsType": "xfs"}),
					modify(w, w.Context(), disk, map[string]string{"diskIOPSReadWrite": "5000"}),
				)
			},
		},
		{"ControllerModifyVolume", "the disk does not exist, or the ID is no disk's", codes.NotFound,
			func(w controllerWorld) error {
				return alike(modify(w, w.Context(), w.missing(), tags), modify(w, w.Context(), "nonsense", tags))
			}},
		{"ControllerModifyVolume", "Azure does not change this while the disk is attached as it is", codes.FailedPrecondition,
			func(w controllerWorld) error {
				return modify(w, w.Context(), w.used(shared), map[string]string{"tier": "P30"})
			}},
		{"ControllerModifyVolume", "the driver's credentials do not suffice", codes.PermissionDenied,
			func(w controllerWorld) error {
				handle := w.volume(nil)
				w.refuse(fake.DisksUpdate, provisioner.Unauthorized)
				return modify(w, w.Context(), handle, tags)
			}},
		{"ControllerModifyVolume", "Azure fails, cannot be reached or asks to wait, for as long as the caller does",
			codes.Unavailable, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.refuse(fake.DisksUpdate, provisioner.Unavailable)
				return modify(w, w.untilFailed(), handle, tags)
			}},
		{"ControllerModifyVolume", "another call for the volume is running, or Azure is still at it when the time is up",
			codes.Aborted, func(w controllerWorld) error {
				handle := w.volume(nil)
				w.Cleanup(w.plane.Cloud.HoldAll(fake.DisksUpdate))
				return modify(w, w.shortly(), handle, tags)
			}},
	}
}
