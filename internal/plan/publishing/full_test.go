package publishing_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestAPodOnAFullNodeIsRejectedOnceTheSchedulerKnowsIt(t *testing.T) {
	t.Parallel()
	waiting := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}
	}
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	alone := func(p *corev1.Pod) { p.OwnerReferences = nil }
	slots := func(allocatable int32) publishing.Slots {
		return publishing.Slots{Allocatable: &allocatable, Occupied: 15}
	}
	other := objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	for name, test := range map[string]struct {
		attachments []*apiv1.AzVolumeAttachment
		slots       publishing.Slots
		pod         *corev1.Pod
		want        int
	}{
		"it is rejected": {nil, slots(15), user("a", 0, waiting), 1},
		"also while its own attachment is being removed": {objects.Attachments(
			objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentDetaching)), slots(15), user("a", 0, waiting), 1},
		"not before the CSINode is corrected: the next pod could be placed there again": {nil, slots(16), user("a", 0, waiting),
			0},
		"not where the scheduler counts no disks": {nil, publishing.Slots{Occupied: 15}, user("a", 0, waiting), 0},
		"not if the disk has no share: another node does not help": {objects.Attachments(other,
			objects.NewAttachment("c", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)), slots(15), user("a", 0, waiting), 0},
		"not without a controller that makes another one": {nil, slots(15), user("a", 0, waiting, alone), 0},
		"not once it runs":              {nil, slots(15), user("a", 0, waiting, running), 0},
		"not while it is being deleted": {nil, slots(15), user("a", 0, waiting, ending), 0},
		"not a pod on another node":     {nil, slots(15), user("b", 0, waiting), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 })
			in := publishing.Input{Volume: volume, Attachments: test.attachments, Pods: []*corev1.Pod{test.pod}}
			test.slots.Shared = attaching.Occupied(test.attachments, apiv1.AttachmentName(volume.Name, "a"))
			got := len(in.Rejected("a", test.slots))
			if got != test.want {
				t.Errorf("got %d pods rejected, want %d", got, test.want)
			}
		})
	}
	in := publishing.Input{Pods: []*corev1.Pod{user("a", 0, waiting)}}
	if got := in.Rejected("a", slots(15)); len(got) > 0 {
		t.Errorf("the volume has no AzVolume yet: got %d pods rejected, want none", len(got))
	}
	if publishing.MayReject(user("a", 0, waiting, ending), "a") {
		t.Error("the pod is being deleted when it is read again: got that it may be rejected, want not")
	}
}
