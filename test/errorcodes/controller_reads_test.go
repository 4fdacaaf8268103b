package errorcodes

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// persistentVolume makes a PersistentVolume of a disk, for as long as the test runs.
func (w controllerWorld) persistentVolume(handle string) {
	w.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "errorcodes-"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver:       controlplane.DriverName,
			VolumeHandle: handle,
		}},
	}}
	if err := w.plane.Client.Create(w.Context(), pv); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		pv.Finalizers, pv.ResourceVersion = nil, ""
		if err := w.plane.Client.Update(context.Background(), pv); err != nil {
			w.Error(err)
		}
		if err := w.plane.Client.Delete(context.Background(), pv); err != nil {
			w.Error(err)
		}
	})
}

func readRows() []row[controllerWorld] {
	validate := func(w controllerWorld, id string, capability *csi.VolumeCapability) error {
		_, err := w.csi().ValidateVolumeCapabilities(w.Context(), &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId:           id,
			VolumeCapabilities: []*csi.VolumeCapability{capability},
		})
		return err
	}
	list := func(w controllerWorld, request *csi.ListVolumesRequest) error {
		_, err := w.csi().ListVolumes(w.Context(), request)
		return err
	}
	get := func(w controllerWorld, id string) error {
		_, err := w.csi().ControllerGetVolume(w.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
		return err
	}
	health := func(w controllerWorld, id string) error {
		_, err := w.csi().ControllerGetVolumeHealth(w.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		return err
	}
	healths := func(w controllerWorld, request *csi.ControllerListVolumeHealthRequest) error {
		_, err := w.csi().ControllerListVolumeHealth(w.Context(), request)
		return err
	}
	capacity := func(w controllerWorld, request *csi.GetCapacityRequest) error {
		_, err := w.csi().GetCapacity(w.Context(), request)
		return err
	}
	unread := func(call func(controllerWorld, string) error) func(controllerWorld) error {
		return func(w controllerWorld) error {
			handle := w.disk(nil)
			w.refuse(fake.DisksGet, provisioner.RateLimited)
			return call(w, handle)
		}
	}
	return []row[controllerWorld]{
		{"ValidateVolumeCapabilities", "the volume exists; the answer reports whether it can be used so", codes.OK,
			func(w controllerWorld) error { return validate(w, w.volume(nil), controlplane.Shared()) }},
		{"ValidateVolumeCapabilities", "volume ID or capabilities are missing, or a capability is none", codes.InvalidArgument,
			func(w controllerWorld) error { return validate(w, w.volume(nil), &csi.VolumeCapability{}) }},
		{"ValidateVolumeCapabilities", "the disk does not exist, or the ID is no disk's", codes.NotFound,
			func(w controllerWorld) error {
				return alike(validate(w, w.missing(), controlplane.Mounted()), validate(w, "nonsense", controlplane.Mounted()))
			}},
		{"ValidateVolumeCapabilities", "a disk that the driver has not seen yet cannot be read", codes.Unavailable,
			unread(func(w controllerWorld, id string) error { return validate(w, id, controlplane.Mounted()) })},

		{"ListVolumes", "at any time", codes.OK,
			func(w controllerWorld) error { return list(w, &csi.ListVolumesRequest{MaxEntries: 1}) }},
		{"ListVolumes", "the number of entries is negative", codes.InvalidArgument,
			func(w controllerWorld) error { return list(w, &csi.ListVolumesRequest{MaxEntries: -1}) }},
		{"ListVolumes", "the token is not one of this list", codes.Aborted,
			func(w controllerWorld) error { return list(w, &csi.ListVolumesRequest{StartingToken: "17"}) }},
		{"ListVolumes", "the disks of volumes that the driver has not used yet cannot be listed", codes.Unavailable,
			func(w controllerWorld) error {
				w.persistentVolume("/subscriptions/" + controlplane.Subscription + "/resourceGroups/of-" + w.name +
					"/providers/Microsoft.Compute/disks/" + w.name)
				w.refuse(fake.DisksList, provisioner.Unavailable)
				var err error
				w.plane.Eventually("the cache has the PersistentVolume", func() string {
					if err = list(w, &csi.ListVolumesRequest{}); err == nil {
						return "not yet"
					}
					return ""
				})
				return err
			}},

		{"ControllerGetVolume", "the volume exists, adopted or not", codes.OK,
			func(w controllerWorld) error { return get(w, w.disk(nil)) }},
		{"ControllerGetVolume", "the volume ID is missing", codes.InvalidArgument,
			func(w controllerWorld) error { return get(w, "") }},
		{"ControllerGetVolume", "the disk does not exist and the driver never had it, or the ID is no disk's", codes.NotFound,
			func(w controllerWorld) error { return get(w, w.missing()) }},
		{"ControllerGetVolume", "the disk cannot be read", codes.Unavailable, unread(get)},

		{"ControllerGetVolumeHealth", "the volume exists, or its disk is gone", codes.OK,
			func(w controllerWorld) error { return health(w, w.volume(nil)) }},
		{"ControllerGetVolumeHealth", "the volume ID is missing", codes.InvalidArgument,
			func(w controllerWorld) error { return health(w, "") }},
		{"ControllerGetVolumeHealth", "the disk does not exist and the driver never had it, or the ID is no disk's",
			codes.NotFound, func(w controllerWorld) error { return health(w, w.missing()) }},
		{"ControllerGetVolumeHealth", "the disk cannot be read", codes.Unavailable, unread(health)},

		{"ControllerListVolumeHealth", "at any time", codes.OK,
			func(w controllerWorld) error { return healths(w, &csi.ControllerListVolumeHealthRequest{}) }},
		{"ControllerListVolumeHealth", "the number of entries is negative", codes.InvalidArgument, func(w controllerWorld) error {
			return healths(w, &csi.ControllerListVolumeHealthRequest{MaxEntries: -1})
		}},
		{"ControllerListVolumeHealth", "the token is not one of this list", codes.Aborted, func(w controllerWorld) error {
			return healths(w, &csi.ControllerListVolumeHealthRequest{StartingToken: pagetoken.Encode("volumes", "a")})
		}},

		{"GetCapacity", "it is known what the place can take; none where it has not the SKU", codes.OK,
			func(w controllerWorld) error { return capacity(w, &csi.GetCapacityRequest{}) }},
		{"GetCapacity", "the parameters are refused, by CreateVolume: there is room everywhere", codes.OK,
			func(w controllerWorld) error {
				return capacity(w, &csi.GetCapacityRequest{Parameters: map[string]string{"skuName": "x"}})
			}},
		{"GetCapacity", "a capability or the topology cannot be read", codes.InvalidArgument,
			func(w controllerWorld) error {
				return capacity(w, &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{
					Segments: map[string]string{"topology.disk.csi.azure.com/zone": "somewhere"},
				}})
			}},
		{"GetCapacity", "Azure cannot be asked for SKU or quota", codes.Unavailable, func(w controllerWorld) error {
			w.refuse(fake.SKUsDisk, provisioner.Unavailable)
			return capacity(w, &csi.GetCapacityRequest{})
		}},

		{"ControllerGetCapabilities", "at any time", codes.OK, func(w controllerWorld) error {
			_, err := w.csi().ControllerGetCapabilities(w.Context(), &csi.ControllerGetCapabilitiesRequest{})
			return err
		}},
	}
}
