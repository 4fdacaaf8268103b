package attachment_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// An attach that has failed for minutes is repeated once in a minute, also after a user has
// repaired the disk.
func TestAnAttachIsRepeatedSoonIfTheDiskHasChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		changed *metav1.Time
		refused time.Duration
		want    operation.Work
		again   time.Duration
	}{
		"a disk that has not changed": {nil, 2 * time.Second, operation.WorkNone, 58 * time.Second},
		"a disk that changed before the refusal": {objects.Ago(time.Minute), 2 * time.Second, operation.WorkNone,
			58 * time.Second},
		"a disk that changed, and a second is over": {objects.Ago(time.Second), 2 * time.Second, operation.WorkAttach, 0},
		"a disk that changed in this second":        {objects.Ago(0), 0, operation.WorkNone, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
				v.Status.Disk = &apiv1.DiskReading{
					ReadTime:    *objects.Ago(0),
					ChangedTime: test.changed,
					MaxShares:   3,
				}
			})
			a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentFailed)
			a.Status.Error = &apiv1.Error{
				Kind:    string(provisioner.InvalidArgument),
				Message: "no",
				Time:    *objects.Ago(test.refused),
			}
			a.Status.Conditions = []metav1.Condition{{
				Type:               attachment.ConditionAttached,
				Status:             metav1.ConditionFalse,
				Reason:             attachment.ReasonAttachFailed,
				LastTransitionTime: *objects.Ago(10 * time.Minute),
			}}
			step := attachment.Next(attachment.Input{
				Now:          objects.Now,
				Attachment:   a,
				Volume:       v,
				VMID:         "/vm/a",
				HasFinalizer: true,
			})
			if step.Start != test.want || step.RequeueAfter != test.again {
				t.Errorf("got work %q, again after %s; want %q, %s", step.Start, step.RequeueAfter, test.want, test.again)
			}
		})
	}
}
