package claimstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// AsksForChange reports whether a bound claim asks for a size or a class that its volume does not have
// yet.
func AsksForChange(c *corev1.PersistentVolumeClaim) bool { return asksForSize(c) || asksForClass(c) }

// MayChange is AsksForChange without what csi-resizer has recorded as infeasible and does not try any more.
func MayChange(c *corev1.PersistentVolumeClaim) bool {
	resize, modify := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage], c.Status.ModifyVolumeStatus
	return asksForSize(c) && resize != corev1.PersistentVolumeClaimControllerResizeInfeasible ||
		asksForClass(c) && (modify == nil || modify.Status != corev1.PersistentVolumeClaimModifyVolumeInfeasible)
}

func asksForSize(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && c.Spec.Resources.Requests.Storage().Cmp(*c.Status.Capacity.Storage()) > 0
}

func asksForClass(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && !ptr.Equal(c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName)
}
