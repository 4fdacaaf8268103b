package volume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
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

// The cache has no PersistentVolume in these cases: the API server decides.
func TestAnAzVolumeIsGivenUpOnlyWithoutPersistentVolume(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		phase      corev1.PersistentVolumePhase
		unrecorded bool
		begun      bool
		goes       bool
	}{
		"there is none":                             {goes: true},
		"the cache does not have it yet":            {phase: corev1.VolumeBound},
		"it is released":                            {phase: corev1.VolumeReleased, goes: true},
		"it is bound, and was not recorded":         {phase: corev1.VolumeBound, unrecorded: true, goes: true},
		"it is bound, but the deletion is underway": {phase: corev1.VolumeBound, begun: true, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(func(v *apiv1.AzVolume) {
				v.DeletionTimestamp, v.Finalizers = objects.Ago(time.Second), []string{apiv1.FinalizerVolume}
				if !test.unrecorded {
					v.Status.PersistentVolume = "pv"
				}
				if test.begun {
					v.Status.State = apiv1.VolumeDeleting
				}
			})
			api := fakeapi.With(v).WithStatusSubresource(v).Build()
			if test.phase != "" {
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeHandle: volumehandle.Of(v.Spec.Disk).String()}
				pv.Status.Phase = test.phase
				if err := api.Create(t.Context(), pv); err != nil {
					t.Fatal(err)
				}
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Options: Options{Client: api, Reader: api, Events: events.NewFakeRecorder(1)}}
			_, err := r.step(t.Context(), observed{volume: v, now: time.Now()})
			if !test.goes && !apierrors.IsConflict(err) || test.goes && err != nil {
				t.Errorf("got error %v, want a conflict: %t", err, !test.goes)
			}
			gone := apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(v), &apiv1.AzVolume{}))
			if gone != test.goes {
				t.Errorf("got gone %t, want %t", gone, test.goes)
			}
		})
	}
}
