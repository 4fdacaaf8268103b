package errorcodes

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func controllerRows() []row[controllerWorld] {
	var rows []row[controllerWorld]
	for _, group := range [][]row[controllerWorld]{
		createRows(), deleteRows(), publishRows(), unpublishRows(), readRows(), snapshotRows(), changeRows(),
	} {
		rows = append(rows, group...)
	}
	return rows
}

func createRows() []row[controllerWorld] {
	const rpc = "CreateVolume"
	with := func(parameters map[string]string, change func(*csi.CreateVolumeRequest)) func(controllerWorld) error {
		return func(w controllerWorld) error { return w.create(w.Context(), parameters, change) }
	}
	return []row[controllerWorld]{
		{rpc, "the volume is there, or is there already as asked for", codes.OK, func(w controllerWorld) error {
			w.volume(nil)
			return w.create(w.Context(), nil, nil)
		}},
		{rpc, "name or capabilities are missing", codes.InvalidArgument, func(w controllerWorld) error {
			return alike(
				w.create(w.Context(), nil, func(r *csi.CreateVolumeRequest) { r.Name = "" }),
				w.create(w.Context(), nil, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }),
			)
		}},
		{rpc, "a parameter is unknown, has a value that is not allowed, or contradicts another one, the size or the access mode",
			codes.InvalidArgument,
			func(w controllerWorld) error {
				return alike(
					w.create(w.Context(), map[string]string{"skuName": "Premium"}, nil),
					w.create(w.Context(), map[string]string{"skuName": "Premium_LRS", "maxShares": "4"}, nil),
					w.create(w.Context(), map[string]string{
						"maxShares":            "2",
						"maxMountReplicaCount": "1",
					}, func(r *csi.CreateVolumeRequest) {
						r.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
					}),
				)
			}},
		{rpc, "several nodes are to use it, and it is no raw block volume or has no shares for them", codes.InvalidArgument,
			with(nil, func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
			})},
		{rpc, "a topology cannot be read, or the location of the StorageClass is in none of them", codes.InvalidArgument,
			with(map[string]string{"location": "westus"}, nil)},
		{rpc, "a parameter of the VolumeAttributesClass cannot be changed later", codes.InvalidArgument,
			with(nil, func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"fsType": "xfs"} })},
		{rpc, "no disk of the SKU has such a size", codes.OutOfRange,
			with(nil, func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 100 << 40 })},
		{rpc, "a volume of the name exists with another size, other parameters, another access mode, zone or source",
			codes.AlreadyExists, func(w controllerWorld) error {
				w.volume(nil)
				return w.create(w.Context(), map[string]string{"skuName": "Premium_LRS"}, nil)
			}},
		{rpc, "a disk of the name exists that was not made for the volume", codes.AlreadyExists, func(w controllerWorld) error {
			w.disk(nil)
			return w.create(w.Context(), map[string]string{"skuName": "Premium_LRS"}, nil)
		}},
		{rpc, "the source does not exist", codes.NotFound, func(w controllerWorld) error {
			return w.create(w.Context(), nil,
				func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = clone(controlplane.DiskID("no-such-disk")) })
		}},
		{rpc, "the resource group does not exist", codes.NotFound, func(w controllerWorld) error {
			w.refuse(fake.DisksCreate, provisioner.NotFound)
			return w.create(w.Context(), nil, nil)
		}},
		{rpc, "the request is for a smaller volume than the source", codes.OutOfRange, func(w controllerWorld) error {
			source := w.volume(nil)
			w.name += "-clone"
			return w.create(w.Context(), nil, func(r *csi.CreateVolumeRequest) {
				r.VolumeContentSource, r.CapacityRange = clone(source), &csi.CapacityRange{LimitBytes: 5 << 30}
			})
		}},
		{rpc, "the source is a snapshot that is not complete yet, or a disk that is being changed", codes.Unavailable,
			func(w controllerWorld) error {
				source := w.disk(func(d *provisioner.Disk) { d.SKUName = "UltraSSD_LRS" })
				taken, err := w.csi().CreateSnapshot(w.Context(), &csi.CreateSnapshotRequest{
					Name:           "snap-" + w.name,
					SourceVolumeId: source,
				})
				w.must(err)
				w.name += "-restored"
				return w.create(w.Context(), map[string]string{"skuName": "UltraSSD_LRS"}, func(r *csi.CreateVolumeRequest) {
					r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
						Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: taken.GetSnapshot().GetSnapshotId()},
					}}
				})
			}},
		{rpc, "no place that the topology allows has the SKU or the source, or the quota is used up", codes.ResourceExhausted,
			func(w controllerWorld) error {
				w.refuse(fake.DisksCreate, provisioner.InsufficientCapacity)
				return w.create(w.Context(), nil, nil)
			}},
		{rpc, "the driver's credentials do not suffice", codes.PermissionDenied, func(w controllerWorld) error {
			w.refuse(fake.DisksCreate, provisioner.Unauthorized)
			return w.create(w.Context(), nil, nil)
		}},
		{rpc, "Azure fails, cannot be reached or asks to wait, for as long as the caller does", codes.Unavailable,
			func(w controllerWorld) error {
				w.refuse(fake.DisksCreate, provisioner.RateLimited)
				return w.create(w.untilFailed(), nil, nil)
			}},
		{rpc, "it is refused for any reason but AlreadyExists, and the AzVolume of an earlier call exists", codes.Unavailable,
			func(w controllerWorld) error {
				w.volume(nil)
				return alike(
					w.create(w.Context(), map[string]string{"skuName": "Premium"}, nil),
					w.create(w.Context(), nil, func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 100 << 40 }),
					w.create(w.Context(), nil,
						func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = clone(controlplane.DiskID("no-such-disk")) }),
				)
			}},
		{rpc, "Azure is still creating the disk when the time is up", codes.DeadlineExceeded, func(w controllerWorld) error {
			w.Cleanup(w.plane.Cloud.HoldAll(fake.DisksCreate))
			return w.create(w.shortly(), nil, nil)
		}},
		{rpc, "another call for the volume is running, or an earlier volume of the name is being deleted", codes.Aborted,
			func(w controllerWorld) error {
				w.held(fake.DisksCreate, func() error { return w.create(context.Background(), nil, nil) }, w.creating)
				return w.create(w.Context(), nil, nil)
			}},
	}
}

func clone(handle string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: handle}},
	}
}

func deleteRows() []row[controllerWorld] {
	const rpc = "DeleteVolume"
	return []row[controllerWorld]{
		{rpc, "the volume is gone, was never there, or its ID is no disk's", codes.OK, func(w controllerWorld) error {
			handle := w.volume(nil)
			for _, id := range []string{handle, handle, w.missing(), "nonsense"} {
				if err := w.remove(w.Context(), id); err != nil {
					return err
				}
			}
			return nil
		}},
		{rpc, "the volume ID is missing", codes.InvalidArgument,
			func(w controllerWorld) error { return w.remove(w.Context(), "") }},
		{rpc, "a node uses the volume, or is about to", codes.FailedPrecondition,
			func(w controllerWorld) error { return w.remove(w.Context(), w.used(nil)) }},
		{rpc, "another PersistentVolume needs the disk", codes.FailedPrecondition, func(w controllerWorld) error {
			handle := w.volume(nil)
			w.persistentVolume(handle)
			w.plane.Eventually("the cache has the PersistentVolume", func() string {
				var cached corev1.PersistentVolumeList
				w.must(w.plane.CSI.Client.List(w.Context(), &cached,
					client.MatchingFields{cluster.PersistentVolumeVolume: w.plane.VolumeName(w.name)}))
				if len(cached.Items) == 0 {
					return "not yet"
				}
				return ""
			})
			return w.remove(w.Context(), handle)
		}},
		{rpc, "the AzVolume of the name is of another disk", codes.FailedPrecondition, func(w controllerWorld) error {
			return w.remove(w.Context(), w.ofAnother())
		}},
		{rpc, "a disk that the driver has not seen yet cannot be read", codes.Unavailable, func(w controllerWorld) error {
			handle := w.disk(nil)
			w.refuse(fake.DisksGet, provisioner.Unavailable)
			return w.remove(w.Context(), handle)
		}},
		{rpc, "Azure refuses, fails or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			handle := w.volume(nil)
			w.refuse(fake.DisksDelete, provisioner.Unavailable)
			return w.remove(w.Context(), handle)
		}},
		{rpc, "the driver's credentials do not suffice", codes.PermissionDenied, func(w controllerWorld) error {
			handle := w.volume(nil)
			w.refuse(fake.DisksDelete, provisioner.Unauthorized)
			return w.remove(w.Context(), handle)
		}},
		{rpc, "another call for the volume is running, or the deletion is when the time is up", codes.Aborted,
			func(w controllerWorld) error {
				handle := w.volume(nil)
				w.Cleanup(w.plane.Cloud.HoldAll(fake.DisksDelete))
				return w.remove(w.shortly(), handle)
			}},
	}
}

func publishRows() []row[controllerWorld] {
	const rpc = "ControllerPublishVolume"
	return []row[controllerWorld]{
		{rpc, "the disk is attached or Azure has accepted to attach it", codes.OK,
			func(w controllerWorld) error { return w.publish(w.Context(), w.volume(nil), nodeA, nil) }},
		{rpc, "volume ID, node ID or capability are missing", codes.InvalidArgument,
			func(w controllerWorld) error { return w.publish(w.Context(), w.volume(nil), "", nil) }},
		{rpc, "the volume cannot be used so: several nodes, and it is for one", codes.InvalidArgument,
			func(w controllerWorld) error {
				return w.publish(w.Context(), w.volume(nil), nodeA,
					func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = controlplane.Shared() })
			}},
		{rpc, "an attribute of the PersistentVolume has a value that is not allowed", codes.InvalidArgument,
			func(w controllerWorld) error {
				return w.publish(w.Context(), w.disk(nil), nodeA, func(r *csi.ControllerPublishVolumeRequest) {
					r.VolumeContext = map[string]string{"cachingMode": "Always"}
				})
			}},
		{rpc, "Azure never attaches the disk there: it is in another zone", codes.InvalidArgument,
			func(w controllerWorld) error { return w.publish(w.Context(), w.volume(nil), nodeFar, nil) }},
		{rpc, "the disk does not exist, its volume is being deleted, or the ID is no disk's", codes.NotFound,
			func(w controllerWorld) error {
				return alike(w.publish(w.Context(), w.missing(), nodeA, nil), w.publish(w.Context(), "nonsense", nodeA, nil))
			}},
		{rpc, "the node does not exist", codes.NotFound,
			func(w controllerWorld) error { return w.publish(w.Context(), w.volume(nil), "nowhere", nil) }},
		{rpc, "the node plug-in of a node that exists has not reported yet", codes.Unavailable, func(w controllerWorld) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ec-new"}}
			w.must(w.plane.Client.Create(w.Context(), node))
			w.Cleanup(func() { _ = w.plane.Client.Delete(context.Background(), node) })
			return w.publish(w.shortly(), w.volume(nil), node.Name, nil)
		}},
		{rpc, "it is published to the node already, with another access to it", codes.AlreadyExists,
			func(w controllerWorld) error {
				return w.publish(w.Context(), w.used(nil), nodeA,
					func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true })
			}},
		{rpc, "another node holds the ownership of the volume, or is releasing it", codes.FailedPrecondition,
			func(w controllerWorld) error { return w.publish(w.Context(), w.used(nil), nodeB, nil) }},
		{rpc, "the disk is attached to a VM that is no node of the cluster", codes.FailedPrecondition,
			func(w controllerWorld) error {
				handle := w.volume(nil)
				stranger := controlplane.VMID("stranger")
				w.plane.Cloud.AddVM(provisioner.Instance{
					ID:       stranger,
					Name:     "stranger",
					Size:     smallSize,
					Location: "eastus",
					Zone:     "1",
				})
				op, err := w.plane.Cloud.Attachments().Attach(w.Context(), provisioner.AttachRequest{
					VMID:        stranger,
					DiskID:      handle,
					CachingMode: "None",
				})
				w.must(err)
				w.must(op.Wait(w.Context()))
				return w.publish(w.Context(), handle, nodeA, nil)
			}},
		{rpc, "the AzVolume of the name is of another disk", codes.FailedPrecondition, func(w controllerWorld) error {
			return w.publish(w.Context(), w.ofAnother(), nodeA, nil)
		}},
		{rpc, "the VM has no free slot, or the disk no free share", codes.ResourceExhausted, func(w controllerWorld) error {
			w.refuse(fake.AttachmentsAttach, provisioner.InsufficientCapacity)
			return w.publish(w.Context(), w.volume(nil), nodeA, nil)
		}},
		{rpc, "the driver's credentials do not suffice", codes.PermissionDenied, func(w controllerWorld) error {
			w.refuse(fake.AttachmentsAttach, provisioner.Unauthorized)
			return w.publish(w.Context(), w.volume(nil), nodeA, nil)
		}},
		{rpc, "Azure fails, cannot be reached or asks to wait", codes.Unavailable, func(w controllerWorld) error {
			w.refuse(fake.AttachmentsAttach, provisioner.RateLimited)
			return w.publish(w.Context(), w.volume(nil), nodeA, nil)
		}},
		{rpc, "another call for the volume and the node is running, or Azure has not accepted the attach when the time is up",
			codes.Aborted, func(w controllerWorld) error {
				w.refuse(fake.AttachmentsAttach, provisioner.Conflict)
				return w.publish(w.shortly(), w.volume(nil), nodeA, nil)
			}},
	}
}

func unpublishRows() []row[controllerWorld] {
	const rpc = "ControllerUnpublishVolume"
	return []row[controllerWorld]{
		{rpc, "the node has released the volume; or volume or node do not exist, or the ID is not a disk's", codes.OK,
			func(w controllerWorld) error {
				handle := w.used(nil)
				for _, id := range []string{handle, handle, w.missing(), "nonsense"} {
					if err := w.plane.Unpublish(w.Context(), id, nodeA); err != nil {
						return err
					}
				}
				return w.plane.Unpublish(w.Context(), handle, "nowhere")
			}},
		{rpc, "the volume ID is missing", codes.InvalidArgument,
			func(w controllerWorld) error { return w.plane.Unpublish(w.Context(), "", nodeA) }},
		{
			rpc,
			"there is no proof yet that the node has released the volume, another call is running, or Azure is still detaching when the time is up",
			codes.Aborted,
			func(w controllerWorld) error {
				handle := w.used(nil)
				w.plane.AwaitStaged(w.name, nodeA)
				w.Cleanup(func() { w.plane.Unstage(w.name, nodeA) })
				return w.plane.Unpublish(w.shortly(), handle, nodeA)
			},
		},
		{rpc, "the AzVolume of the name is of another disk", codes.FailedPrecondition, func(w controllerWorld) error {
			return w.plane.Unpublish(w.Context(), w.ofAnother(), nodeA)
		}},
	}
}
