package handover_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

// What Kubernetes and its users would make around a volume. All tests of the package share one API server, and PersistentVolumes have no namespace: their names
// must be the test's own.

// newPersistentVolume returns one of 10 GiB for a disk, to be retained, for one node at a time unless it is changed.
func newPersistentVolume(name, handle string, change ...func(*corev1.PersistentVolumeSpec)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: controlplane.DriverName, VolumeHandle: handle}},
	}}
	for _, f := range change {
		f(&pv.Spec)
	}
	return pv
}

// removePersistentVolume deletes one, if it exists. No controller here removes its protection.
func removePersistentVolume(t *testing.T, p *controlplane.ControlPlane, pv *corev1.PersistentVolume) {
	t.Helper()
	before := pv.DeepCopy()
	pv.Finalizers = nil
	ctx := context.WithoutCancel(t.Context())
	must(t, client.IgnoreNotFound(p.Client.Patch(ctx, pv, client.MergeFrom(before))))
	must(t, client.IgnoreNotFound(p.Client.Delete(ctx, pv)))
}

// bindClaim makes a PersistentVolume, and a claim that it is bound to.
func bindClaim(t *testing.T, p *controlplane.ControlPlane, pv *corev1.PersistentVolume, namespace, name string) {
	t.Helper()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	must(t, p.Client.Create(t.Context(), pv))
	must(t, p.Client.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode, Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		VolumeName: pv.Name, StorageClassName: ptr.To(""),
	}}))
}

func newPod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

// newPodWith returns a pod on a node that uses a claim of its own name.
func newPodWith(namespace, claim, node string) *corev1.Pod {
	pod := newPod(namespace, claim, node)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return pod
}
