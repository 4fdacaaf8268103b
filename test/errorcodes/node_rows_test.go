package errorcodes

import (
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func nodeRows() []row[nodeWorld] {
	var rows []row[nodeWorld]
	for _, group := range [][]row[nodeWorld]{stageRows(), useRows(), lookRows()} {
		rows = append(rows, group...)
	}
	return rows
}

const ofAnotherDisk = "what is staged under the name of the volume is another disk"

func stageRows() []row[nodeWorld] {
	const rpc = "NodeStageVolume"
	asked := func(change func(*csi.NodeStageVolumeRequest)) func(nodeWorld) error {
		return func(w nodeWorld) error { return w.stage(w.Context(), change) }
	}
	with := func(attributes map[string]string) func(nodeWorld) error {
		return asked(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = attributes })
	}
	where := func(edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)) func(nodeWorld) error {
		return func(w nodeWorld) error { w.change(edit); return w.stage(w.Context(), nil) }
	}
	in := func(change func(*memhost.Host)) func(nodeWorld) error {
		return func(w nodeWorld) error { change(w.kernel); return w.stage(w.Context(), nil) }
	}
	return []row[nodeWorld]{
		{rpc, "the volume is mounted at the staging path, or its device is ready", codes.OK,
			func(w nodeWorld) error { return w.inUse().stage(w.Context(), nil) }},
		{rpc, "volume ID, staging path or capability are missing; the path is not absolute or has detours", codes.InvalidArgument,
			func(w nodeWorld) error {
				return alike(
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "s" }),
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/a/../s" }),
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessType = nil }),
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessMode = nil }),
				)
			}},
		{rpc, "the filesystem is not supported, or several nodes are to mount one", codes.InvalidArgument,
			func(w nodeWorld) error {
				return alike(
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.GetMount().FsType = "ntfs" }),
					w.stage(w.Context(), func(r *csi.NodeStageVolumeRequest) {
						r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
					}),
				)
			}},
		{rpc, "a volume attribute has a value that is not allowed", codes.InvalidArgument,
			with(map[string]string{"perfProfile": "fast"})},
		{rpc, "the kernel refuses a device setting, or the disk does not have it", codes.InvalidArgument, func(w nodeWorld) error {
			w.kernel.TuneFails = provisioner.Errorf(provisioner.InvalidArgument, "the kernel refused the value")
			return with(map[string]string{"perfProfile": "advanced", "device-setting/queue/scheduler": "x"})(w)
		}},
		{rpc, "the volume does not exist, or the ID is no disk's", codes.NotFound,
			asked(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "nonsense" })},
		{rpc, "the node is not the one that may use the volume, or may no more", codes.FailedPrecondition,
			where(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "node-b" })},
		{rpc, "the AzVolume of the name is of another disk", codes.FailedPrecondition,
			where(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk.ResourceGroup = "other" })},
		{rpc, ofAnotherDisk, codes.FailedPrecondition, func(w nodeWorld) error {
			// at its own it is mounted
			return w.ofAnother().stage(w.Context(), func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath += "-2" })
		}},
		{rpc, "the device has another size than the volume", codes.FailedPrecondition,
			in(func(k *memhost.Host) { k.Size = 2 << 30 })},
		{rpc, "the device carries something else than the volume's filesystem, or is blank and should not be",
			codes.FailedPrecondition, in(func(k *memhost.Host) { k.Content.FS.Type = "xfs" })},
		{rpc, "the disk has no partition of the number", codes.FailedPrecondition, with(map[string]string{"partition": "3"})},
		{rpc, "the filesystem must be repaired manually", codes.FailedPrecondition, in(func(k *memhost.Host) {
			k.MountFails = provisioner.Errorf(provisioner.FailedPrecondition, "must be repaired manually")
		})},
		{rpc, "the disk is not attached, or its device does not show up, when the time is up", codes.DeadlineExceeded,
			func(w nodeWorld) error {
				w.kernel.Detach()
				return w.stage(w.shortly(), nil)
			}},
		{rpc, "the device does not answer", codes.Unavailable, in(func(k *memhost.Host) { k.Answering = nil })},
		{rpc, "the API server cannot be reached", codes.Unavailable,
			func(w nodeWorld) error { w.unreachable(); return w.stage(w.Context(), nil) }},
		{rpc, "it fails for any reason, and the volume is mounted or its device is in use", codes.Unavailable,
			func(w nodeWorld) error {
				w.must(w.stage(w.Context(), nil))
				w.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "node-b" })
				return w.stage(w.Context(), nil)
			}},
		{rpc, "mount fails, as for options that the filesystem does not know", codes.Internal,
			in(func(k *memhost.Host) { k.MountFails = errors.New("mount: wrong fs type, bad option") })},
		{rpc, "another call for the volume is running", codes.Aborted,
			func(w nodeWorld) error { w.busy(); return w.stage(w.Context(), nil) }},
	}
}

func useRows() []row[nodeWorld] {
	second := func(r *csi.NodePublishVolumeRequest) { r.TargetPath += "-2" }
	return []row[nodeWorld]{
		{"NodeUnstageVolume", "nothing of the volume is left here, or the ID is no disk's", codes.OK, func(w nodeWorld) error {
			w.must(w.stage(w.Context(), nil))
			return errors.Join(w.unstage(volumeID, w.staging()), w.unstage(volumeID, w.staging()),
				w.unstage("nonsense", w.staging()))
		}},
		{"NodeUnstageVolume", "volume ID or staging path are missing; the path is not absolute or has detours",
			codes.InvalidArgument, func(w nodeWorld) error { return w.unstage(volumeID, "") }},
		{"NodeUnstageVolume", "another disk is staged at the path", codes.FailedPrecondition,
			func(w nodeWorld) error { return w.ofAnother().unstage(volumeID, w.staging()) }},
		{"NodeUnstageVolume", "the volume is still published to a pod, something holds its device, or another call is running",
			codes.Aborted, func(w nodeWorld) error {
				return w.inUse().unstage(volumeID, w.staging())
			}},

		{"NodePublishVolume", "the volume is at the target path", codes.OK,
			func(w nodeWorld) error { return w.inUse().publish(nil) }},
		{"NodePublishVolume", "volume ID, a path or the capability are missing; a path is not absolute or has detours",
			codes.InvalidArgument, func(w nodeWorld) error {
				return w.publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" })
			}},
		{"NodePublishVolume", "the ID is no disk's", codes.NotFound, func(w nodeWorld) error {
			return w.publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "nonsense" })
		}},
		{"NodePublishVolume", "the volume is at the target path with another access, or was mounted with another SELinux label",
			codes.AlreadyExists, func(w nodeWorld) error {
				return w.inUse().publish(func(r *csi.NodePublishVolumeRequest) { r.Readonly = true })
			}},
		{"NodePublishVolume", "it fails for any other reason, and the volume is at the target path", codes.Unavailable,
			func(w nodeWorld) error {
				return w.inUse().publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil })
			}},
		{"NodePublishVolume", "the volume is not staged here", codes.FailedPrecondition,
			func(w nodeWorld) error { return w.publish(nil) }},
		{"NodePublishVolume", ofAnotherDisk, codes.FailedPrecondition,
			func(w nodeWorld) error { return w.ofAnother().publish(second) }},
		{"NodePublishVolume", "the access mode allows one pod, and another one has the volume", codes.FailedPrecondition,
			func(w nodeWorld) error { return w.inUse().publish(second) }},
		{"NodePublishVolume", "the claim under which it was staged has ended, and the volume cannot be staged again in place yet",
			codes.Unavailable, func(w nodeWorld) error {
				w.must(w.stage(w.Context(), nil))
				w.change(
					func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.State = apiv1.OwnershipReleased },
				)
				return w.publish(nil)
			}},
		{"NodePublishVolume", "another call for the volume is running", codes.Aborted,
			func(w nodeWorld) error { w.busy(); return w.publish(nil) }},

		{"NodeUnpublishVolume", "nothing is at the target path", codes.OK,
			func(w nodeWorld) error { return w.inUse().unpublish(volumeID, w.target()) }},
		{"NodeUnpublishVolume", "volume ID or target path are missing; the path is not absolute or has detours",
			codes.InvalidArgument, func(w nodeWorld) error { return w.unpublish("", w.target()) }},
		{"NodeUnpublishVolume", "another call for the volume is running", codes.Aborted,
			func(w nodeWorld) error { w.busy(); return w.unpublish(volumeID, w.target()) }},
	}
}

func lookRows() []row[nodeWorld] {
	return []row[nodeWorld]{
		{"NodeGetVolumeStats", "the volume is at the path", codes.OK,
			func(w nodeWorld) error { return w.inUse().stats(volumeID, w.target()) }},
		{"NodeGetVolumeStats", "volume ID or path are missing", codes.InvalidArgument,
			func(w nodeWorld) error { return w.stats(volumeID, "") }},
		{"NodeGetVolumeStats", "the volume is not at the path, or the ID is no disk's", codes.NotFound,
			func(w nodeWorld) error { return w.stats(volumeID, w.target()) }},
		{"NodeGetVolumeStats", ofAnotherDisk, codes.FailedPrecondition,
			func(w nodeWorld) error { return w.ofAnother().stats(volumeID, w.target()) }},

		{"NodeGetVolumeHealth", "the volume is published to this node; the answer says what is wrong with it", codes.OK,
			func(w nodeWorld) error { return w.inUse().health(volumeID) }},
		{"NodeGetVolumeHealth", "the volume ID is missing", codes.InvalidArgument,
			func(w nodeWorld) error { return w.health("") }},
		{"NodeGetVolumeHealth", "the volume is not published to this node, or the ID is no disk's", codes.NotFound,
			func(w nodeWorld) error { return w.health("nonsense") }},
		{"NodeGetVolumeHealth", ofAnotherDisk, codes.FailedPrecondition,
			func(w nodeWorld) error { return w.ofAnother().health(volumeID) }},
		{"NodeGetVolumeHealth", "the API server cannot be reached, and the volume is not staged here", codes.Unavailable,
			func(w nodeWorld) error { w.unreachable(); return w.health(volumeID) }},

		{"NodeGetStorageHealth", "at any time", codes.OK, func(w nodeWorld) error {
			_, err := w.server.NodeGetStorageHealth(w.Context(), &csi.NodeGetStorageHealthRequest{})
			return err
		}},

		{"NodeExpandVolume", "filesystem and device have the size, or are larger", codes.OK,
			func(w nodeWorld) error { return w.inUse().expand(w.target(), 1<<30) }},
		{"NodeExpandVolume", "volume ID or path are missing", codes.InvalidArgument,
			func(w nodeWorld) error { return w.expand("", 1<<30) }},
		{"NodeExpandVolume", "the volume is not at the path, or the ID is no disk's", codes.NotFound,
			func(w nodeWorld) error { return w.expand(w.target(), 1<<30) }},
		{"NodeExpandVolume", "the volume is a partition of its disk, and that has not the size", codes.FailedPrecondition,
			func(w nodeWorld) error {
				w.must(w.stage(w.Context(),
					func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"partition": "1"} }))
				return w.expand(w.staging(), 2<<30)
			}},
		{"NodeExpandVolume", ofAnotherDisk, codes.FailedPrecondition,
			func(w nodeWorld) error { return w.ofAnother().expand(w.target(), 1<<30) }},
		{"NodeExpandVolume", "the device does not show the size yet", codes.Unavailable,
			func(w nodeWorld) error { return w.inUse().expand(w.target(), 2<<30) }},
		{"NodeExpandVolume", "another call for the volume is running", codes.Aborted, func(w nodeWorld) error {
			w.inUse()
			w.must(w.kernel.Mounts().Unmount(w.Context(), w.staging()))
			w.busy()
			return w.expand(w.target(), 1<<30)
		}},

		{"NodeGetCapabilities", "at any time", codes.OK, func(w nodeWorld) error {
			_, err := w.server.NodeGetCapabilities(w.Context(), &csi.NodeGetCapabilitiesRequest{})
			return err
		}},

		{"NodeGetInfo", "the number of volumes is known, or the controller has not said it in time", codes.OK,
			func(w nodeWorld) error {
				w.must(w.stage(w.Context(), nil)) // the node has reported
				w.capacity(8)
				_, err := w.server.NodeGetInfo(w.Context(), &csi.NodeGetInfoRequest{})
				return err
			}},
		{"NodeGetInfo", "the API server cannot be reached", codes.Unavailable, func(w nodeWorld) error {
			w.unreachable()
			_, err := w.server.NodeGetInfo(w.Context(), &csi.NodeGetInfoRequest{})
			return err
		}},
	}
}
