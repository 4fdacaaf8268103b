package adoption_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	driverName = "disk.csi.azure.com"
	diskID     = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"
)

// A person has deleted the AzVolume of a new volume, and a growth or a change of class adopts the disk
// before the cache has the PersistentVolume. The access pattern of an AzVolume is immutable: with the
// caller's guess, no pod could use the volume any more.
func TestTheAccessIsThePersistentVolumesAlsoIfItIsNew(t *testing.T) {
	t.Parallel()
	several := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: diskID}
		if change != nil {
			change(pv)
		}
		return pv
	}
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want apiv1.AccessPattern
	}{
		"for several nodes": {several(nil), apiv1.AccessMultiNode},
		"of the in-tree plug-in": {several(func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI, pv.Spec.AzureDisk = nil, &corev1.AzureDiskVolumeSource{DataDiskURI: diskID}
		}), apiv1.AccessMultiNode},
		"of another disk": {several(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle += "2" }),
			apiv1.AccessSingleNode},
		"of another driver": {several(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }),
			apiv1.AccessSingleNode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fake.New(fake.Options{})
			cloud.AddDisk(provisioner.Disk{ID: diskID, SizeBytes: 1 << 30, MaxShares: 2, Ready: true})
			index := cluster.PersistentVolumeKeys(driverName)
			cache := fakeapi.With().WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, index).Build()
			s := &adoption.Adopter{
				Records: &cluster.Records{
					Client: cache, Reader: server{fakeapi.With(test.pv).Build(), cache}, Namespace: "ns",
				},
				Disks:      cloud.Disks(),
				DriverName: driverName,
			}
			handle, err := volumehandle.Parse(diskID)
			expect.Must(t, err)
			v, err := s.AdoptUnused(t.Context(), handle, call.Access{Pattern: apiv1.AccessSingleNode})
			expect.Must(t, err)
			if v.Spec.Access != test.want {
				t.Errorf("got access %s, want %s", v.Spec.Access, test.want)
			}
		})
	}
}

// server is an API server that has a PersistentVolume which the cache does not have.
type server struct {
	persistentVolumes client.Reader
	client.Reader
}

func (s server) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.persistentVolumes.List(ctx, list, options...)
}
