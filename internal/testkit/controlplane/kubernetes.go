package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// What Kubernetes and its users would make around a volume.

// NewPersistentVolume returns one of 10 GiB for a disk, to be retained, for one node at a time
// unless it is changed.
func NewPersistentVolume(name, handle string, change ...func(*corev1.PersistentVolumeSpec)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver:       DriverName,
			VolumeHandle: handle,
		}},
	}}
	for _, f := range change {
		f(&pv.Spec)
	}
	return pv
}

// InUseName is the name under which the kubelet lists a volume in the volumesInUse of its Node.
func InUseName(handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + DriverName + "^" + handle)
}

// AddPersistentVolume creates one, and deletes it when the test ends: it would count as that of the
// next test's volume of the same name.
func (p *ControlPlane) AddPersistentVolume(pv *corev1.PersistentVolume) {
	p.t.Helper()
	p.must(p.Client.Create(p.t.Context(), pv))
	p.t.Cleanup(func() {
		// No controller here removes its protection.
		free := pv.DeepCopy()
		free.Finalizers = nil
		ctx := context.Background()
		p.must(client.IgnoreNotFound(p.Client.Patch(ctx, free, client.MergeFrom(pv))))
		p.must(client.IgnoreNotFound(p.Client.Delete(ctx, pv)))
	})
}

// Bind creates a PersistentVolume, and a claim that it is bound to.
func (p *ControlPlane) Bind(pv *corev1.PersistentVolume, namespace, name string,
	change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	p.t.Helper()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	p.AddPersistentVolume(pv)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      pv.Spec.AccessModes,
			VolumeMode:       pv.Spec.VolumeMode,
			Resources:        corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
			VolumeName:       pv.Name,
			StorageClassName: ptr(""),
		},
	}
	for _, f := range change {
		f(claim)
	}
	p.must(p.Client.Create(p.t.Context(), claim))
	return claim
}

// NewPod returns a pod on a node that uses claims.
func NewPod(namespace, name, node string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			Labels:    map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			AutomountServiceAccountToken: ptr(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data-" + claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// Node reads a Node.
func (p *ControlPlane) Node(name string) *corev1.Node {
	p.t.Helper()
	n := &corev1.Node{}
	p.must(p.Client.Get(p.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

// StageOn publishes a volume to a node, and waits until the node has staged it.
func (p *ControlPlane) StageOn(handle, disk, node string) {
	p.t.Helper()
	p.must(p.Publish(p.t.Context(), handle, node))
	p.AwaitStaged(disk, node)
}

// CreateReplicated adds two nodes and the volume "vol", which is staged on the first and has a
// replica on the second.
func (p *ControlPlane) CreateReplicated(primary, replica string) (handle string) {
	p.t.Helper()
	p.AddNode(primary, "1", "Standard_D4s_v5")
	p.AddNode(replica, "1", "Standard_D4s_v5")
	handle = p.Create("vol", map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
	p.StageOn(handle, "vol", primary)
	p.AwaitReplica("vol", replica)
	return handle
}

// AwaitStaged waits until a node can stage a volume.
func (p *ControlPlane) AwaitStaged(disk, node string) {
	p.t.Helper()
	p.Eventually("staged on "+node, func() string {
		if err := p.Stage(disk, node); err != nil {
			return err.Error()
		}
		return ""
	})
}

// AwaitReplica waits until a node has a replica that is attached.
func (p *ControlPlane) AwaitReplica(disk, node string) {
	p.t.Helper()
	p.Eventually("replica on "+node, func() string {
		a := p.Attachment(disk, node)
		if a == nil || a.Spec.Role != apiv1.RoleReplica || a.Status.State != apiv1.AttachmentAttached {
			return fmt.Sprintf("attachment is %+v", a)
		}
		return ""
	})
}
