package scheduler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const driver = apiv1.GroupName

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func node(name string, change ...func(*apiv1.AzDriverNode)) *apiv1.AzDriverNode {
	n := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiv1.DefaultNamespace, Name: name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm/" + name},
		Status: apiv1.AzDriverNodeStatus{
			HeartbeatTime:          ptr.To(metav1.NewMicroTime(epoch)),
			HeartbeatPeriodSeconds: 10,
			Conditions: []metav1.Condition{{Type: apiv1.NodeConditionPluginReady, Status: metav1.ConditionTrue,
				Reason: "Serving"}},
		},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// attachment is of the disk whose ID is diskURI(disk).
func azva(disk, nodeName string, role apiv1.Role, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
	volume := volumeName(diskURI(disk))
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiv1.DefaultNamespace, Name: apiv1.AttachmentName(volume, nodeName)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: nodeName, Role: role, Epoch: 1},
		Status:     apiv1.AzVolumeAttachmentStatus{State: state},
	}
}

func claim(name, volume, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: &class},
	}
}

func volume(name, driverName, handle string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}
	return pv
}

// from makes a claim for a copy.
func from(c *corev1.PersistentVolumeClaim, kind, name string) *corev1.PersistentVolumeClaim {
	c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	return c
}

// inZones gives a PersistentVolume the node affinity that csi-provisioner writes: a term for each
// zone from which the volume can be used.
func inZones(pv *corev1.PersistentVolume, zones ...string) *corev1.PersistentVolume {
	required := &corev1.NodeSelector{}
	for _, zone := range zones {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: apiv1.ZoneLabel(driver), Operator: corev1.NodeSelectorOpIn, Values: []string{zone},
			}},
		})
	}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: required}
	return pv
}

// in puts the VM of a node into a zone.
func in(zone string) func(*apiv1.AzDriverNode) {
	return func(n *apiv1.AzDriverNode) { n.Spec.Location, n.Spec.Zone = "EastUS", zone }
}

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

func diskURI(name string) string {
	return "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/" + name
}

func pod(claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: "pod-uid"}}
	for _, name := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	return p
}
