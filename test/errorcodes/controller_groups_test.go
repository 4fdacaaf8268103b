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

// group asks for a group of snapshots of volumes.
func (w controllerWorld) group(ctx context.Context, sources ...string) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	return w.csi().CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name:            "group-" + w.name,
		SourceVolumeIds: sources,
	})
}

func groupRows() []row[controllerWorld] {
	id := func(w controllerWorld) string {
		return strings.Replace(controlplane.DiskID("group-"+w.name), "/disks/", "/snapshots/", 1)
	}
	get := func(w controllerWorld, id string, members ...string) error {
		_, err := w.csi().GetVolumeGroupSnapshot(w.Context(), &csi.GetVolumeGroupSnapshotRequest{
			GroupSnapshotId: id,
			SnapshotIds:     members,
		})
		return err
	}
	remove := func(w controllerWorld, id string, members ...string) error {
		_, err := w.csi().DeleteVolumeGroupSnapshot(w.Context(), &csi.DeleteVolumeGroupSnapshotRequest{
			GroupSnapshotId: id,
			SnapshotIds:     members,
		})
		return err
	}
	other := func(w controllerWorld) string {
		w.name += "-b"
		return w.volume(nil)
	}
	return []row[controllerWorld]{
		{"GroupControllerGetCapabilities", "at any time", codes.OK, func(w controllerWorld) error {
			_, err := w.csi().GroupControllerGetCapabilities(w.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
			return err
		}},

		{"CreateVolumeGroupSnapshot", "the snapshots are of one moment, or were by an earlier call", codes.OK,
			func(w controllerWorld) error {
				a, b := w.volume(nil), other(w)
				_, err := w.group(w.Context(), a, b)
				w.must(err)
				_, err = w.group(w.Context(), b, a)
				return err
			}},
		{"CreateVolumeGroupSnapshot", "name or sources are missing, a source is there twice, or a parameter is wrong",
			codes.InvalidArgument, func(w controllerWorld) error {
				a := w.volume(nil)
				_, err := w.group(w.Context(), a, a)
				return err
			}},
		{"CreateVolumeGroupSnapshot", "a disk does not exist, or an ID is no disk's", codes.NotFound,
			func(w controllerWorld) error {
				_, err := w.group(w.Context(), w.missing())
				return err
			}},
		{"CreateVolumeGroupSnapshot", "a group of the name exists of other volumes, or a snapshot that is none of a group",
			codes.AlreadyExists, func(w controllerWorld) error {
				a, b := w.volume(nil), other(w)
				_, err := w.group(w.Context(), a)
				w.must(err)
				_, err = w.group(w.Context(), a, b)
				return err
			}},
		{"CreateVolumeGroupSnapshot", "one of several volumes is in use, is for several nodes, or was never used with this driver", codes.FailedPrecondition, func(w controllerWorld) error {
			a := w.used(nil)
			_, err := w.group(w.Context(), a, other(w))
			return err
		}},
		{"CreateVolumeGroupSnapshot", "the quota is used up", codes.ResourceExhausted, func(w controllerWorld) error {
			w.refuse(fake.SnapshotsCreate, provisioner.InsufficientCapacity)
			_, err := w.group(w.Context(), w.volume(nil))
			return err
		}},
		{"CreateVolumeGroupSnapshot", "Azure fails, cannot be reached or asks to wait", codes.Unavailable,
			func(w controllerWorld) error {
				w.refuse(fake.SnapshotsCreate, provisioner.RateLimited)
				_, err := w.group(w.Context(), w.volume(nil))
				return err
			}},
		{"CreateVolumeGroupSnapshot", "it is refused for any reason but AlreadyExists, and a snapshot of the group exists",
			codes.Unavailable, func(w controllerWorld) error {
				a := w.volume(nil)
				_, err := w.group(w.Context(), a)
				w.must(err)
				_, err = w.csi().CreateVolumeGroupSnapshot(w.Context(), &csi.CreateVolumeGroupSnapshotRequest{
					Name:            "group-" + w.name,
					SourceVolumeIds: []string{a},
					Parameters:      map[string]string{"incremental": "maybe"},
				})
				return err
			}},
		{"CreateVolumeGroupSnapshot", "another call for the group is running, or a volume was used while the snapshots were taken", codes.Aborted, func(w controllerWorld) error {
			a := w.volume(nil)
			w.held(fake.SnapshotsCreate, func() error { _, err := w.group(context.Background(), a); return err },
				w.called(fake.SnapshotsCreate))
			_, err := w.group(w.Context(), a)
			return err
		}},

		{"GetVolumeGroupSnapshot", "the group exists", codes.OK, func(w controllerWorld) error {
			_, err := w.group(w.Context(), w.volume(nil))
			w.must(err)
			return get(w, id(w))
		}},
		{"GetVolumeGroupSnapshot", "the ID is missing, or the snapshot IDs are not those of the group", codes.InvalidArgument,
			func(w controllerWorld) error {
				_, err := w.group(w.Context(), w.volume(nil))
				w.must(err)
				return get(w, id(w), id(w)+"-x")
			}},
		{"GetVolumeGroupSnapshot", "the group does not exist, or the ID is none", codes.NotFound,
			func(w controllerWorld) error { return get(w, id(w)) }},

		{"DeleteVolumeGroupSnapshot", "the group is gone with its snapshots, was never there, or the ID is none", codes.OK,
			func(w controllerWorld) error {
				_, err := w.group(w.Context(), w.volume(nil))
				w.must(err)
				w.must(remove(w, id(w)))
				return remove(w, id(w))
			}},
		{"DeleteVolumeGroupSnapshot", "the ID is missing, or the snapshot IDs are not those of the group", codes.InvalidArgument,
			func(w controllerWorld) error { return remove(w, "") }},
		{"DeleteVolumeGroupSnapshot", "another call for the group is running", codes.Aborted, func(w controllerWorld) error {
			a := w.volume(nil)
			w.held(fake.SnapshotsCreate, func() error { _, err := w.group(context.Background(), a); return err },
				w.called(fake.SnapshotsCreate))
			return remove(w, id(w))
		}},
	}
}
