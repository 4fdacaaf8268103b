package claimstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// AsksForChange reports whether a bound claim asks for a size or a class that its volume does not have
// yet.
func AsksForChange(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && (c.Spec.Resources.Requests.Storage().Cmp(*c.Status.Capacity.Storage()) > 0 ||
		!ptr.Equal(c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName))
}
