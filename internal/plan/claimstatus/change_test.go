package claimstatus_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
)

func TestWhatAClaimAsksFor(t *testing.T) {
	t.Parallel()
	larger := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	}
	another := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") }
	noSize := func(c *corev1.PersistentVolumeClaim) {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible,
		}
	}
	noClass := func(c *corev1.PersistentVolumeClaim) {
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
	type edits []func(*corev1.PersistentVolumeClaim)
	for name, test := range map[string]struct {
		edits     edits
		asks, may bool
	}{
		"what it has":                     {nil, false, false},
		"a larger size":                   {edits{larger}, true, true},
		"another class":                   {edits{another}, true, true},
		"a size that is infeasible":       {edits{larger, noSize}, true, false},
		"a class that is infeasible":      {edits{another, noClass}, true, false},
		"a size, and an infeasible class": {edits{larger, another, noClass}, true, true},
		"a class, and an infeasible size": {edits{larger, another, noSize}, true, true},
		"a class that is being applied": {edits{another, func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: corev1.PersistentVolumeClaimModifyVolumeInProgress}
		}}, true, true},
		"a volume, and it has none": {edits{larger, another, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }},
			false, false},
	} {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.VolumeName = "pv"
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		c.Status.Capacity = c.Spec.Resources.Requests
		for _, edit := range test.edits {
			edit(c)
		}
		if asks, may := claimstatus.AsksForChange(c), claimstatus.MayChange(c); asks != test.asks || may != test.may {
			t.Errorf("%s: got that it asks for a change: %t, which may be made: %t; want %t, %t", name, asks, may, test.asks, test.may)
		}
	}
}
