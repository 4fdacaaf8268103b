package attaching_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ended is the input after an attach to node a whose answer is truth.
func ended(truth operation.Truth, err error) attaching.Input {
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttaching)
	a.UID, a.Status.UID = "a", "a"
	return attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
		Job: operation.Job{
			Work:  operation.WorkAttach,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Err:   err,
			Truth: truth,
		},
	}
}

func TestAnAttachmentIsExclusiveByTheAnswerAfterItsAttach(t *testing.T) {
	t.Parallel()
	for exclusive, want := range map[bool]bool{true: true, false: false} {
		in := ended(operation.Truth{Attached: true, LUN: 3, Exclusive: exclusive}, nil)
		in.Attachment.Status.Exclusive = !exclusive // of an earlier attach
		s := attaching.Next(in).Status
		if s.State != apiv1.AttachmentAttached || s.Exclusive != want {
			t.Errorf("answered: %t: got %s, exclusive: %t", exclusive, s.State, s.Exclusive)
		}
		in.Attachment.Status = s
		in.Job = operation.Job{}
		if again := attaching.Next(in).Status; again.Exclusive != want {
			t.Errorf("answered: %t: got exclusive: %t while the disk remains attached", exclusive, again.Exclusive)
		}
	}
}

func TestTheAnswerDoesNotOutliveTheAttach(t *testing.T) {
	t.Parallel()
	attached := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)
	attached.UID, attached.Status.UID, attached.Status.Exclusive = "a", "a", true
	lun := int32(2)
	attached.Status.LUN = &lun
	if s := attaching.StatusToAttachAgain(attached, nil, objects.Now); s.Exclusive {
		t.Error("exclusive after Azure has contradicted the attachment")
	}
	unnamed := attached.DeepCopy()
	unnamed.Status.VMID = ""
	leaving := objects.Deleted(objects.Proved(attached.DeepCopy(), apiv1.ProofUnstaged))
	for name, a := range map[string]*apiv1.AzVolumeAttachment{"the VM is not recorded": unnamed, "it is detached": leaving} {
		s := attaching.Next(attaching.Input{
			Now:          objects.Now,
			Attachment:   a,
			Volume:       objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)),
			VMID:         "/vm/a",
			HasFinalizer: true,
		}).Status
		if s.State == apiv1.AttachmentAttached || s.Exclusive {
			t.Errorf("%s: got %s, exclusive: %t", name, s.State, s.Exclusive)
		}
	}
}

// Two clusters attached the disk at once, and each sees the other's VM.
func TestADiskUsedOutsideTheClusterIsDetachedAndTheTryWaits(t *testing.T) {
	t.Parallel()
	refused := provisioner.Errorf(provisioner.FailedPrecondition, "a VM outside has it")
	for name, test := range map[string]struct {
		truth  operation.Truth
		reason string
		detach bool
		wait   time.Duration // least time until the next try
	}{
		"seen before the attach": {operation.Truth{OtherClusterVM: "/vm/Z"}, apiv1.ReasonUsedOutsideCluster, false, time.Second},
		"seen after the attach, and this VM's ID is first": {operation.Truth{Attached: true, LUN: 3, OtherClusterVM: "/VM/z"},
			apiv1.ReasonUsedOutsideCluster, true, time.Second},
		"seen after the attach, and the other VM's ID is first": {
			operation.Truth{Attached: true, LUN: 3, OtherClusterVM: "/VM/0"}, apiv1.ReasonYieldsToAnotherCluster, true,
			2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := ended(test.truth, refused)
			in.Report = objects.Report("a")
			step := attaching.Next(in)
			if step.Status.State != apiv1.AttachmentFailed || step.Reason != test.reason ||
				step.Status.Error == nil || step.Status.Error.Reason != string(provisioner.FailedPrecondition) {
				t.Fatalf("got %+v", step)
			}
			in.Attachment.Status, in.Job = step.Status, operation.Job{}
			if used := attaching.Occupied(objects.Attachments(in.Attachment), "") == 1; used != test.detach {
				t.Errorf("the attachment counts as one that uses a share and a slot: %t, want %t", used, test.detach)
			}
			if got := attaching.Next(in).Start; (got == operation.WorkDetach) != test.detach {
				t.Fatalf("got work %q, want the disk detached at once: %t", got, test.detach)
			}
			if test.detach {
				staged := in
				staged.Report = objects.Report("a", "vol")
				if got := attaching.Next(staged).Start; got == operation.WorkDetach {
					t.Error("a disk that the node has staged is detached")
				} else if got == operation.WorkAttach {
					t.Error("the attach of a disk that stays attached is repeated without a wait")
				}
				failed := in
				failed.Attachment = in.Attachment.DeepCopy()
				failed.Job = operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseEnded, Ended: objects.Now,
					Err: provisioner.Errorf(provisioner.Unavailable, "no answer")}
				after := attaching.Next(failed)
				if after.Reason != test.reason {
					t.Errorf("got reason %q after a detach that failed, want still %q", after.Reason, test.reason)
				}
				failed.Attachment.Status, failed.Job = after.Status, operation.Job{}
				if got := attaching.Next(failed); got.Start != operation.WorkNone || got.RequeueAfter <= 0 ||
					!attaching.AskBeforeAttach(in.Volume, failed.Attachment) ||
					attaching.Occupied(objects.Attachments(failed.Attachment), "") != 1 {
					t.Errorf("after a detach that failed: got %+v", got)
				}
				in.Job = operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseEnded, Ended: objects.Now}
				in.Attachment.Status, in.Job = attaching.Next(in).Status, operation.Job{}
			}
			if attaching.Occupied(objects.Attachments(in.Attachment), "") != 0 {
				t.Error("the attachment still uses a share and a slot")
			}
			if !attaching.AskBeforeAttach(in.Volume, in.Attachment) {
				t.Error("the next try does not ask first")
			}
			in.Now = objects.Now.Add(test.wait - time.Second)
			if got := attaching.Next(in); got.Start != operation.WorkNone || got.RequeueAfter <= 0 {
				t.Errorf("got work %q after %s, want none", got.Start, test.wait-time.Second)
			}
			in.Now = objects.Now.Add(test.wait + time.Second)
			if got := attaching.Next(in).Start; got != operation.WorkAttach {
				t.Errorf("got work %q after %s, want an attach", got, test.wait+time.Second)
			}
		})
	}
}

// A node that both clusters see decides who tries first, so exactly one of them waits.
func TestOfTwoClustersThatAttachAtOnceOneYields(t *testing.T) {
	t.Parallel()
	yields := func(own, other string) bool {
		in := ended(operation.Truth{Attached: true, OtherClusterVM: other},
			provisioner.Errorf(provisioner.FailedPrecondition, ""))
		in.Attachment.Status.VMID = own
		return attaching.Next(in).Reason == apiv1.ReasonYieldsToAnotherCluster
	}
	for _, pair := range [][2]string{{"/vm/a", "/vm/b"}, {"/VM/B", "/vm/a"}, {"/subscriptions/1/vm/z", "/subscriptions/2/vm/a"}} {
		if yields(pair[0], pair[1]) == yields(pair[1], pair[0]) {
			t.Errorf("%s and %s both yield: %t", pair[0], pair[1], yields(pair[0], pair[1]))
		}
	}
}

func TestADiskStaysAttachedAndUnusedWhileAzureDoesNotAnswer(t *testing.T) {
	t.Parallel()
	in := ended(operation.Truth{Attached: true, LUN: 3, Unasked: true}, provisioner.Errorf(provisioner.Unavailable, "no answer"))
	in.Report = objects.Report("a")
	in.Attachment.Status = attaching.Next(in).Status
	in.Job = operation.Job{}
	if in.Attachment.Status.State != apiv1.AttachmentFailed ||
		attaching.Occupied(objects.Attachments(in.Attachment), "") != 1 {
		t.Fatalf("got %+v", in.Attachment.Status)
	}
	in.Now = objects.Now.Add(time.Minute)
	if got := attaching.Next(in).Start; got != operation.WorkAttach {
		t.Errorf("got work %q, want the attach repeated with its question", got)
	}
}

func TestWhenAzureIsAskedAlsoBeforeAnAttach(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		"": false, apiv1.ReasonWaitingForDiskSlot: false, apiv1.ReasonDiskAttachFailed: false, apiv1.ReasonCustodyUnknown: false,
		apiv1.ReasonDiskDetachedOutside: true, apiv1.ReasonVMUnrecorded: true, apiv1.ReasonUsedOutsideCluster: true,
		apiv1.ReasonYieldsToAnotherCluster: true,
	} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) { v.UID, v.Status.ConfirmedUID = "v", "v" })
		a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentPending)
		a.Status.Conditions = []metav1.Condition{{Type: apiv1.AttachmentConditionAttached, Reason: reason}}
		if got := attaching.AskBeforeAttach(v, a); got != want {
			t.Errorf("reason %q: got %t, want %t", reason, got, want)
		}
		v.Status.ConfirmedUID = ""
		if !attaching.AskBeforeAttach(v, a) {
			t.Errorf("reason %q: not asked although nothing confirms that this cluster uses the disk", reason)
		}
	}
}
