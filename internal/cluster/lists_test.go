package cluster_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

func TestTheBoundPersistentVolumeStandsForTheVolume(t *testing.T) {
	const driver = "disk.csi.azure.com"
	const group = "/subscriptions/s/resourceGroups/rg"
	of := func(group, name string, phase corev1.PersistentVolumePhase) client.Object {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.PersistentVolumeStatus{Phase: phase},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					Driver: driver, VolumeHandle: group + "/providers/Microsoft.Compute/disks/vol",
				},
			}},
		}
	}
	pv := func(name string, phase corev1.PersistentVolumePhase) client.Object { return of(group, name, phase) }
	volume := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumehandle.Handle{
			SubscriptionID: "s",
			ResourceGroup:  "rg",
			DiskName:       "vol",
		}.VolumeName()},
		Spec: apiv1.AzVolumeSpec{Disk: apiv1.DiskParameters{SubscriptionID: "S", ResourceGroup: "RG", Name: "Vol"}},
	}
	for name, test := range map[string]struct {
		pvs  []client.Object
		want string
	}{
		"there is none":                    {nil, ""},
		"one was released and is kept":     {[]client.Object{pv("a", corev1.VolumeReleased), pv("b", corev1.VolumeBound)}, "b"},
		"and so it is with the other name": {[]client.Object{pv("a", corev1.VolumeBound), pv("b", corev1.VolumeReleased)}, "a"},
		"both are bound":                   {[]client.Object{pv("b", corev1.VolumeBound), pv("a", corev1.VolumeBound)}, "a"},
		"one is bound to a disk of that name in another resource group": {
			[]client.Object{of("/subscriptions/s/resourceGroups/another", "a", corev1.VolumeBound),
				pv("b", corev1.VolumeReleased)}, "b"},
		"the only one is of a disk of that name in another subscription": {
			[]client.Object{of("/subscriptions/another/resourceGroups/rg", "a", corev1.VolumeBound)}, ""},
		"none is": {[]client.Object{pv("b", corev1.VolumeReleased), pv("a", corev1.VolumeReleased)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeapi.With(test.pvs...).
				WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume,
					cluster.PersistentVolumeKeys(driver)).Build()
			got, err := cluster.PersistentVolume(t.Context(), c, volume)
			if err != nil || (got == nil) != (test.want == "") || got != nil && got.Name != test.want {
				t.Errorf("got %v, %v, want %q", got, err, test.want)
			}
		})
	}
}

// Law 7: a node that names all volumes of the cluster has none of them looked at but its own.
func TestAReportLeadsToTheNodesOwnVolumesAlone(t *testing.T) {
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	held := &apiv1.AzVolume{
		ObjectMeta: at("held"),
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld}},
	}
	others := &apiv1.AzVolume{
		ObjectMeta: at("others"),
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: "b", Epoch: 1, State: apiv1.OwnershipHeld}},
	}
	attached := &apiv1.AzVolumeAttachment{
		ObjectMeta: at("attached-a"),
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "attached", NodeName: "a"},
	}
	c := fakeapi.With(held, others, attached).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).
		WithIndex(&apiv1.AzVolume{}, cluster.VolumePrimary, cluster.VolumePrimaryKeys).Build()
	d := &apiv1.AzDriverNode{ObjectMeta: at("a")}
	for _, name := range []string{"held", "others", "attached", "nobodys"} {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{VolumeName: name})
	}
	got, err := cluster.Reported(t.Context(), c, d)
	if want := []string{"held", "attached"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestAScanIsAChangeOfAReportAndAHeartbeatIsNot(t *testing.T) {
	at := func(seconds int64) *metav1.MicroTime { m := metav1.NewMicroTime(time.Unix(seconds, 0)); return &m }
	node := func(scanned, heartbeat *metav1.MicroTime) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{MountsScannedTime: scanned, HeartbeatTime: heartbeat}}
	}
	changed := cluster.Changed(cluster.Scanned)
	for name, test := range map[string]struct {
		before, after *apiv1.AzDriverNode
		want          bool
	}{
		"it has scanned its mounts":            {node(nil, at(1)), node(at(1), at(1)), true},
		"its plug-in was started again":        {node(at(1), at(1)), node(nil, at(2)), true},
		"it was started again and has scanned": {node(at(1), at(1)), node(at(2), at(2)), false},
		"it says only that it is alive":        {node(at(1), at(1)), node(at(1), at(2)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changed.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
				t.Errorf("passes: %t", got)
			}
		})
	}
	if !changed.Delete(event.DeleteEvent{Object: node(at(1), at(1))}) {
		t.Error("that a report is gone does not pass")
	}
}
