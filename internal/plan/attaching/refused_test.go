package attaching_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
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
				Reason:      string(provisioner.InvalidArgument),
				Message:     "no",
				FailureTime: *objects.Ago(test.refused),
			}
			a.Status.Conditions = []metav1.Condition{{
				Type:               apiv1.AttachmentConditionAttached,
				Status:             metav1.ConditionFalse,
				Reason:             apiv1.ReasonDiskAttachFailed,
				LastTransitionTime: *objects.Ago(10 * time.Minute),
			}}
			step := attaching.Next(attaching.Input{
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

// Azure refused 23 attaches of a disk within five minutes, 8 of them within ten seconds, while
// another VM had the disk.
func TestADiskThatAzureRefusesIsRequestedLessAndLess(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld))
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, "")
	job, now := operation.Job{}, objects.Now
	var asked []time.Duration
	for now.Sub(objects.Now) < 5*time.Minute {
		step := attaching.Next(attaching.Input{
			Now:          now,
			Attachment:   a,
			Volume:       v,
			VMID:         "/vm/a",
			HasFinalizer: true,
			Job:          job,
		})
		a.Status, job = step.Status, operation.Job{}
		switch {
		case step.Start == operation.WorkAttach:
			asked = append(asked, now.Sub(objects.Now))
			now = now.Add(200 * time.Millisecond)
			job = operation.Job{
				Phase: operation.PhaseEnded,
				Work:  operation.WorkAttach,
				Ended: now,
				Err:   provisioner.Errorf(provisioner.FailedPrecondition, "no"),
			}
			v.Status.Disk = &apiv1.DiskReading{ReadTime: metav1.NewTime(now)} // the refusal leads to a read
		case step.RequeueAfter <= 0:
			t.Fatalf("got no time of the next look after %v", asked)
		default:
			now = now.Add(step.RequeueAfter)
		}
	}
	soon := slices.IndexFunc(asked, func(at time.Duration) bool { return at > 10*time.Second })
	if soon > 4 || len(asked) > 12 {
		t.Errorf("got attaches after %v, want at most 4 within 10 seconds, and 12 within 5 minutes", asked)
	}
}
