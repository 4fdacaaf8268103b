package drivernode

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// After a watch has broken, an attachment that was created and refused in the meantime comes as one
// creation: no update follows.
func TestAnAttachmentThatComesRefusedLeadsToItsNode(t *testing.T) {
	t.Parallel()
	refused := &apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{
		Error: &apiv1.Error{Reason: string(provisioner.InsufficientCapacity), FailureTime: metav1.Now()},
	}}
	passes := (&Reconciler{}).goneOrWithoutRoom()
	for name, test := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		want       bool
	}{
		"refused for want of a slot": {refused, true},
		"not refused":                {&apiv1.AzVolumeAttachment{}, false},
	} {
		if got := passes.Create(event.CreateEvent{Object: test.attachment}); got != test.want {
			t.Errorf("an attachment that is %s: got %t, want %t", name, got, test.want)
		}
	}
}
