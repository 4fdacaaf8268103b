package attachdetach_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestAPodOnAFullNodeIsRejectedOnceTheSchedulerKnowsThatTheNodeIsFull(t *testing.T) {
	t.Parallel()
	waiting := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}
	}
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	alone := func(p *corev1.Pod) { p.OwnerReferences = nil }
	refused := func(reason string, generation int64) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentFailed)
		a.Generation = 2
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: attachment.ConditionAttached, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: generation})
		return a
	}
	full := refused(attachment.ReasonNoSlot, 2)
	for name, test := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		slots      attachdetach.Slots
		pod        *corev1.Pod
		want       int
	}{
		"it is rejected": {full, attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting), 1},
		"not before the CSINode is corrected: the next pod could be placed there again":    {full, attachdetach.Slots{Allocatable: ptr.To[int32](16), Occupied: 15}, user("a", 0, waiting), 0},
		"not where the scheduler counts no disks":                                          {full, attachdetach.Slots{Occupied: 15}, user("a", 0, waiting), 0},
		"not if the disk has no share: another node does not help":                         {refused(attachment.ReasonNoShare, 2), attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting), 0},
		"not while a slot is being freed":                                                  {refused(attachment.ReasonWaitingForSlot, 2), attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting), 0},
		"not by a judgement of an earlier spec, such as of the time when it was a replica": {refused(attachment.ReasonNoSlot, 1), attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting), 0},
		"not without a controller that makes another one":                                  {full, attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting, alone), 0},
		"not once it runs":              {full, attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting, running), 0},
		"not while it is being deleted": {full, attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("a", 0, waiting, ending), 0},
		"not a pod on another node":     {full, attachdetach.Slots{Allocatable: ptr.To[int32](15), Occupied: 15}, user("b", 0, waiting), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attachdetach.Input{Volume: objects.NewVolume(), Attachments: []*apiv1.AzVolumeAttachment{test.attachment}, Pods: []*corev1.Pod{test.pod}}
			got := 0
			for _, node := range in.FullNodes() {
				got += len(in.Rejected(node, test.slots))
			}
			if got != test.want {
				t.Errorf("got %d pods rejected, want %d", got, test.want)
			}
		})
	}
}
