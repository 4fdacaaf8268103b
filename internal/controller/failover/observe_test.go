package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// The finalizer that records the fence kept the attachment for ever, because the failover saw no
// volume of several nodes without an AzVolume.
func TestAFenceIsCarriedThroughWithoutTheAzVolume(t *testing.T) {
	t.Parallel()
	const disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/shared"
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: disk},
		}},
	}
	name := apiv1.VolumeName("s", "g", "shared")
	c := fakeapi.With(pv).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume,
			cluster.PersistentVolumeKeys("disk.csi.azure.com")).Build()
	r := &Reconciler{Options: Options{Client: c, Reader: c, DriverName: "disk.csi.azure.com"}}
	for finalizer, want := range map[string]int{apiv1.FinalizerFenced: 1, apiv1.FinalizerAttachment: 0} {
		found, err := r.multiNode(t.Context(), []*apiv1.AzVolumeAttachment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-a", Finalizers: []string{finalizer}},
			Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: name, NodeName: "a", Role: apiv1.RolePrimary, Epoch: 1},
		}})
		if err != nil || len(found) != want {
			t.Fatalf("finalizer %s: got %d volumes, %v; want %d", finalizer, len(found), err, want)
		}
		if want == 0 {
			continue
		}
		if got := volumehandle.Of(found[0].Spec.Disk).String(); got != disk {
			t.Errorf("got a volume of disk %q, want %q", got, disk)
		}
	}
}
