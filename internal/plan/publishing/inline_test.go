package publishing_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestADiskOfAClaimIsForTheNamespaceOfTheClaim(t *testing.T) {
	t.Parallel()
	of := func(namespace string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "data"}
		return pv
	}
	released := of("shop")
	released.Status.Phase = corev1.VolumeReleased
	volume := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.ClaimRef = objects.Claim("shop/data") })
	former := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.ClaimRef = objects.Claim("apps/data") })
	for name, test := range map[string]struct {
		pvs    []*corev1.PersistentVolume
		volume *apiv1.AzVolume
		want   string
	}{
		"no claim has it":                          {nil, nil, ""},
		"its PersistentVolume is for no claim yet": {[]*corev1.PersistentVolume{{}}, nil, ""},
		"a claim of the namespace has it":          {[]*corev1.PersistentVolume{of("apps")}, nil, ""},
		"a claim of another namespace has it":      {[]*corev1.PersistentVolume{of("shop")}, nil, "shop/data"},
		"its PersistentVolume was released":        {[]*corev1.PersistentVolume{released}, nil, "shop/data"},
		"claims of two namespaces share it":        {[]*corev1.PersistentVolume{of("shop"), of("apps")}, nil, ""},
		"the AzVolume alone names a claim":         {nil, volume, "shop/data"},
		"the PersistentVolume has a newer claim":   {[]*corev1.PersistentVolume{of("apps")}, volume, ""},
		"the PersistentVolume has moved away":      {[]*corev1.PersistentVolume{of("shop")}, former, "shop/data"},
		"the AzVolume names no claim":              {nil, objects.NewVolume(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := publishing.ClaimElsewhere("apps", test.pvs, test.volume); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
