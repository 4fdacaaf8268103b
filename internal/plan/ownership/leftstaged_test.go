package ownership_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

func TestAVolumeThatTheKubeletHasLeftStaged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }
	deleted := func(since *metav1.Time) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: since},
			Spec:       apiv1.AzVolumeAttachmentSpec{Epoch: 7},
		}
	}
	releasing := func(node string, epoch int64, since *metav1.Time) *apiv1.Ownership {
		return &apiv1.Ownership{NodeName: node, Epoch: epoch, State: apiv1.OwnershipReleasing, LastTransitionTime: since}
	}
	later := deleted(ago(time.Hour))
	later.Spec.Epoch = 8
	for name, test := range map[string]struct {
		primary    *apiv1.Ownership
		access     apiv1.AccessPattern
		attachment *apiv1.AzVolumeAttachment
		want       bool
	}{
		"the release waits for the node":         {primary: releasing("b", 7, ago(ownership.UnstageAfter)), want: true},
		"the release has just begun":             {primary: releasing("b", 7, ago(ownership.UnstageAfter-time.Second))},
		"it is not known when the release began": {primary: releasing("b", 7, nil)},
		"another node is to release it":          {primary: releasing("a", 7, ago(time.Hour))},
		"it is the release of a later epoch":     {primary: releasing("b", 8, ago(time.Hour))},
		"the node holds the ownership": {
			primary: &apiv1.Ownership{NodeName: "b", Epoch: 7, State: apiv1.OwnershipHeld, LastTransitionTime: ago(time.Hour)}},
		"the volume was never published": {},
		"a multi-node volume, whose attachment is being deleted": {access: apiv1.AccessMultiNode,
			attachment: deleted(ago(time.Hour)), want: true},
		"a multi-node volume that is published":          {access: apiv1.AccessMultiNode, attachment: deleted(nil)},
		"a multi-node volume of a later epoch":           {access: apiv1.AccessMultiNode, attachment: later},
		"a multi-node volume without an attachment":      {access: apiv1.AccessMultiNode},
		"a single-node volume with a deleted attachment": {attachment: deleted(ago(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := &apiv1.AzVolume{
				Spec:   apiv1.AzVolumeSpec{Access: test.access},
				Status: apiv1.AzVolumeStatus{Primary: test.primary},
			}
			if got := ownership.LeftStaged("b", 7, volume, test.attachment, now); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
