package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

func TestAVolumeIsForgottenOnlyWithoutPersistentVolume(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle    string
		forgotten bool
	}{
		"there is none":                  {"", true},
		"the cache does not have it yet": {"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d", false},
		"one of the name is of another disk": {"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/other",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n",
				Name:      "v",
				UID:       "1",
			}}
			v.Spec.Disk.SubscriptionID, v.Spec.Disk.ResourceGroup, v.Spec.Disk.Name = "s", "rg", "d"
			v.Status.PersistentVolume = "pv"
			api := fakeapi.With(v).WithStatusSubresource(v).Build()
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
			v.Status.PersistentVolume = "pv"
			if test.handle != "" {
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: test.handle}
				if err := api.Create(t.Context(), pv); err != nil {
					t.Fatal(err)
				}
			}
			r := &Reconciler{Options: Options{Client: api, Reader: api}}
			err := r.forget(t.Context(), v, "it has gone")
			if !test.forgotten && !apierrors.IsConflict(err) || test.forgotten && err != nil {
				t.Errorf("got error %v, want a conflict: %t", err, !test.forgotten)
			}
			gone := apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(v), &apiv1.AzVolume{}))
			if gone != test.forgotten {
				t.Errorf("got forgotten %t, want %t", gone, test.forgotten)
			}
		})
	}
}
