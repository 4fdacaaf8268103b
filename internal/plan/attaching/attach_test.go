package attaching_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAttachment(t *testing.T) {
	t.Parallel()
	held, releasing := objects.Owned("a", 2, apiv1.OwnershipHeld), objects.Owned("a", 2, apiv1.OwnershipReleasing)
	primary := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", apiv1.RolePrimary, 2, state)
	}
	ended := func(w operation.Work, truth operation.Truth, err error) operation.Job {
		return operation.Job{
			Work:  w,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: truth,
			Err:   err,
		}
	}
	type want struct {
		start               operation.Work
		state               apiv1.AttachmentState
		proof               apiv1.ProofKind
		giveWay             string
		removed, addedFinal bool
		resume, reason      string
	}
	for name, test := range map[string]struct {
		in   attaching.Input
		want want
	}{
		"the finalizer comes before everything": {attaching.Input{
			Attachment: primary(""),
			Volume:     objects.NewVolume(held),
			VMID:       "/vm/a",
		},
			want{addedFinal: true}},
		"a new one is attached, and the VM is recorded first": {attaching.Input{
			Attachment:   primary(""),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{start: operation.WorkAttach, state: apiv1.AttachmentAttaching}},
		"law 3: a fenced one is not attached again before its ownership is released": {attaching.Input{
			Attachment:   objects.Proved(primary(""), apiv1.ProofDetached),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Volume:       objects.NewVolume(releasing, func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost })},
			want{}},
		"it waits for the disk": {attaching.Input{
			Attachment:   primary(""),
			Volume:       objects.NewVolume(func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeCreating }),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentPending, reason: attaching.ReasonVolumeNotReady}},
		"it waits for the node's VM": {attaching.Input{
			Attachment:   primary(""),
			Volume:       objects.NewVolume(held),
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentPending, reason: identity.ReasonNodeUnknown}},
		"a replica gives way": {attaching.Input{
			Attachment:   primary(""),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Room:         attaching.SlotDecision{GiveWay: "r"},
		},
			want{
				state:   apiv1.AttachmentPending,
				giveWay: "r",
				reason:  attaching.ReasonWaitingForSlot,
			}},
		"no room is a failure": {attaching.Input{
			Attachment:   primary(""),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Room:         attaching.SlotDecision{Full: true, Message: "full"},
		},
			want{state: apiv1.AttachmentFailed, reason: attaching.ReasonNoSlot}},
		"an accepted operation is recorded": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttaching),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Job: operation.Job{
				Work:     operation.WorkAttach,
				Phase:    operation.PhaseAccepted,
				Tokens:   []string{"t"},
				Accepted: objects.Now,
			},
		},
			want{state: apiv1.AttachmentAttaching, resume: "t"}},
		"a restart resumes the operation": {attaching.Input{
			Attachment:   withOperation(primary(apiv1.AttachmentAttaching), operation.WorkAttach, "t"),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{
				start:  operation.WorkAttach,
				state:  apiv1.AttachmentAttaching,
				resume: "t",
			}},
		"an attach that was begun is not resumed while the AzVolume is missing": {attaching.Input{
			Attachment:   withOperation(primary(apiv1.AttachmentAttaching), operation.WorkAttach, "t"),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentPending, reason: attaching.ReasonVolumeNotReady}},
		"what Azure lists after an attach that succeeded is attached": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttaching),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Job:          ended(operation.WorkAttach, operation.Truth{Attached: true, LUN: 3}, nil),
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonAttached}},
		"what is not is a failure": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttaching),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			Job:          ended(operation.WorkAttach, operation.Truth{}, provisioner.Errorf(provisioner.InvalidArgument, "zone")),
		},
			want{state: apiv1.AttachmentFailed, reason: apiv1.ReasonAttachFailed}},
		"law 3: a held primary is not detached by deleting its object": {attaching.Input{
			Attachment:   objects.Deleted(primary(apiv1.AttachmentAttached)),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonPrimaryHeld}},
		"law 3: nor is one that is being released, without proof": {attaching.Input{
			Attachment:   objects.Deleted(primary(apiv1.AttachmentAttached)),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonWaitingForProof}},
		"with proof it is detached": {attaching.Input{
			Attachment:   objects.Proved(objects.Deleted(primary(apiv1.AttachmentAttached)), apiv1.ProofUnstaged),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{start: operation.WorkDetach, state: apiv1.AttachmentDetaching}},
		"a proof of an earlier epoch is none": {attaching.Input{
			Attachment:   oldProof(objects.Deleted(primary(apiv1.AttachmentAttached))),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonWaitingForProof}},
		"a replica that never was primary needs no proof": {attaching.Input{
			Attachment:   objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/b",
			HasFinalizer: true,
		},
			want{start: operation.WorkDetach, state: apiv1.AttachmentDetaching}},
		"the attach in flight ends before the detach": {attaching.Input{
			Attachment:   objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttaching)),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/b",
			HasFinalizer: true,
			Job:          operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseBegun},
		}, want{state: apiv1.AttachmentAttaching}},
		"an attachment that never reached Azure is deleted at once": {attaching.Input{
			Attachment:   objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, "")),
			Volume:       objects.NewVolume(held),
			HasFinalizer: true,
		},
			want{removed: true}},
		"after Azure lists the disk as detached, the finalizer is removed": {attaching.Input{
			Attachment:   objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)),
			Volume:       objects.NewVolume(held),
			HasFinalizer: true,
			Job:          ended(operation.WorkDetach, operation.Truth{}, nil),
		}, want{removed: true, state: apiv1.AttachmentDetaching}},
		"still attached after a detach is a failure": {attaching.Input{
			Attachment:   objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)),
			Volume:       objects.NewVolume(held),
			HasFinalizer: true,
			Job:          ended(operation.WorkDetach, operation.Truth{Attached: true}, nil),
		}, want{
			state:  apiv1.AttachmentDetachFail,
			reason: attaching.ReasonDetachFailed,
		}},
		"a lost node that is being released is fenced": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
			NodeLost:     true,
		},
			want{
				start:  operation.WorkFence,
				state:  apiv1.AttachmentDetaching,
				reason: attaching.ReasonFencing,
			}},
		"a restart continues the forced detach": {attaching.Input{
			Attachment:   withOperation(primary(apiv1.AttachmentAttached), operation.WorkFence, "t"),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
			NodeLost:     true,
		},
			want{
				start:  operation.WorkFence,
				state:  apiv1.AttachmentDetaching,
				reason: attaching.ReasonFencing,
				resume: "t",
			}},
		"a forced detach that failed is not gone on with": {attaching.Input{
			Attachment:   withOperation(primary(apiv1.AttachmentAttached), operation.WorkFence, "t"),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
			NodeLost:     true,
			Job: operation.Job{
				Work:   operation.WorkFence,
				Phase:  operation.PhaseEnded,
				Ended:  objects.Now,
				Tokens: []string{"t"},
				Err:    provisioner.Errorf(provisioner.Conflict, "preempted"),
			},
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonFencing}},
		"one that could not be asked about is": {attaching.Input{
			Attachment:   withOperation(primary(apiv1.AttachmentAttached), operation.WorkFence, "t"),
			Volume:       objects.NewVolume(releasing),
			VMID:         "/vm/a",
			HasFinalizer: true,
			NodeLost:     true,
			Job:          ended(operation.WorkFence, operation.Truth{}, provisioner.Errorf(provisioner.Unavailable, "read VM")),
		},
			want{
				state:  apiv1.AttachmentAttached,
				reason: attaching.ReasonFencing,
				resume: "t",
			}},
		"law 3: a lost node that holds its ownership is not": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(held),
			VMID:         "/vm/a",
			HasFinalizer: true,
			NodeLost:     true,
		},
			want{state: apiv1.AttachmentAttached, reason: attaching.ReasonAttached}},
		"a VM that is gone is proof": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			HasFinalizer: true,
			NodeLost:     true,
			Job: ended(operation.WorkFence, operation.Truth{
				VMGone: true,
				Epoch:  2,
			}, nil),
		}, want{
			state:  apiv1.AttachmentPending,
			proof:  apiv1.ProofVMDown,
			reason: attaching.ReasonFenced,
		}},
		"a VM that is down, and its disk is detached": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			HasFinalizer: true,
			NodeLost:     true,
			Job: ended(operation.WorkFence, operation.Truth{
				VMDown: true,
				Epoch:  2,
			}, nil),
		}, want{
			state:  apiv1.AttachmentPending,
			proof:  apiv1.ProofVMDown,
			reason: attaching.ReasonFenced,
		}},
		"a disk that is off is proof": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			HasFinalizer: true,
			NodeLost:     true,
			Job:          ended(operation.WorkFence, operation.Truth{Epoch: 2}, nil),
		}, want{
			state:  apiv1.AttachmentPending,
			proof:  apiv1.ProofDetached,
			reason: attaching.ReasonFenced,
		}},
		"a disk that is still on is none": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			HasFinalizer: true,
			NodeLost:     true,
			Job: ended(operation.WorkFence, operation.Truth{
				Attached: true,
				Epoch:    2,
			}, nil),
		}, want{state: apiv1.AttachmentAttached}},
		"nor is a question that Azure did not answer": {attaching.Input{
			Attachment:   primary(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(releasing),
			HasFinalizer: true,
			NodeLost:     true,
			Job:          ended(operation.WorkFence, operation.Truth{}, errors.New("timeout")),
		}, want{
			state:  apiv1.AttachmentAttached,
			reason: attaching.ReasonFencing,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now = objects.Now
			step := attaching.Next(test.in)
			got := want{
				start:      step.Start,
				state:      step.Status.State,
				giveWay:    step.GiveWay,
				removed:    step.RemoveFinalizer,
				addedFinal: step.AddFinalizer,
				resume:     step.Resume,
				reason:     step.Reason,
			}
			if step.Status.Proof != nil && step.Status.Proof != test.in.Attachment.Status.Proof &&
				test.in.Attachment.Status.Proof == nil {
				got.proof = step.Status.Proof.Kind
			}
			if step.Resume == "" && step.Status.Operation != nil {
				got.resume = step.Status.Operation.ResumeToken
			}
			if test.want.reason == "" {
				got.reason = ""
			}
			if got != test.want {
				t.Fatalf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func withOperation(a *apiv1.AzVolumeAttachment, w operation.Work, token string) *apiv1.AzVolumeAttachment {
	a.Status.Operation = &apiv1.Operation{Kind: string(w), ResumeToken: token}
	return a
}

func oldProof(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
	a.Status.Proof = &apiv1.ReleaseProof{Kind: apiv1.ProofUnstaged, Epoch: a.Spec.Epoch - 1}
	return a
}

func TestAttachedStatusIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
		Job: operation.Job{
			Work:  operation.WorkAttach,
			Phase: operation.PhaseEnded,
			Truth: operation.Truth{Attached: true, LUN: 1},
		},
	}
	a.Status = attaching.Next(in).Status
	in.Job, in.Now = operation.Job{}, objects.Now.Add(time.Hour)
	step := attaching.Next(in)
	if step.Start != operation.WorkNone || len(step.Status.Conditions) != 1 ||
		step.Status.Conditions[0] != a.Status.Conditions[0] || *step.Status.LUN != 1 {
		t.Fatalf("%+v", step)
	}
}

// The status was lost during the attach, and the attachment said Attached without naming a VM.
// Nothing compared its LUN with what Azure lists any more, and a node waited for a device under a
// LUN where the disk no longer was.
func TestAnAttachmentThatIsAttachedNamesItsVM(t *testing.T) {
	t.Parallel()
	unnamed := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, state)
		a.Status.VMID, a.Status.LUN = "", new(int32)
		return a
	}
	t.Run("the status was lost during the attach", func(t *testing.T) {
		t.Parallel()
		in := attaching.Input{
			Now:          objects.Now,
			Attachment:   unnamed(""),
			Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
			VMID:         "/vm/new",
			HasFinalizer: true,
			Job: operation.Job{
				Work:  operation.WorkAttach,
				Phase: operation.PhaseEnded,
				Ended: objects.Now,
				Truth: operation.Truth{
					VMID:     "/vm/asked",
					Attached: true,
					LUN:      3,
				},
			},
		}
		got := attaching.Next(in).Status
		if got.State != apiv1.AttachmentAttached || got.VMID != "/vm/asked" {
			t.Errorf("got %s at VM %q, want Attached at the VM that was asked, /vm/asked", got.State, got.VMID)
		}
	})
	t.Run("the status names no VM", func(t *testing.T) {
		t.Parallel()
		in := attaching.Input{
			Now:          objects.Now,
			Attachment:   unnamed(apiv1.AttachmentAttached),
			Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
			VMID:         "/vm/a",
			HasFinalizer: true,
		}
		step := attaching.Next(in)
		if step.Status.State != apiv1.AttachmentPending || step.Status.LUN != nil ||
			step.Reason != attaching.ReasonVMUnrecorded {
			t.Errorf("got %s at LUN %v for %q, want Pending without a LUN for %q", step.Status.State, step.Status.LUN,
				step.Reason, attaching.ReasonVMUnrecorded)
		}
		in.Attachment.Status = step.Status
		if step = attaching.Next(in); step.Start != operation.WorkAttach || step.Status.VMID != "/vm/a" {
			t.Errorf("got work %q and VM %q next, want %q and /vm/a", step.Start, step.Status.VMID, operation.WorkAttach)
		}
	})
}

func TestFailedAttachIsTriedAgainLaterAndAtOnceAfterAPromotion(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentFailed)
	a.Status.Error = &apiv1.Error{Kind: "Unavailable", Time: *objects.Ago(time.Second)}
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
	}
	if step := attaching.Next(in); step.Start != operation.WorkNone || step.RequeueAfter <= 0 {
		t.Fatalf("%+v", step)
	}
	a.Generation = 2
	if step := attaching.Next(in); step.Start != operation.WorkAttach {
		t.Fatalf("%+v", step)
	}
}

// The wait was as long as the attachment had been attached, up to a minute.
func TestAFenceThatFailedIsTriedAgainAfterSeconds(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		VMID:         "/vm/a",
		HasFinalizer: true,
		NodeLost:     true,
	}
	in.Job = operation.Job{
		Work:  operation.WorkFence,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Err:   errors.New("no answer"),
	}
	a.Status = attaching.Next(in).Status
	in.Job = operation.Job{}
	if step := attaching.Next(in); step.Start != operation.WorkNone || step.RequeueAfter <= 0 ||
		step.RequeueAfter > 5*time.Second {
		t.Fatalf("%+v", step)
	}
	in.Now = objects.Now.Add(5 * time.Second)
	if step := attaching.Next(in); step.Start != operation.WorkFence {
		t.Fatalf("%+v", step)
	}
}

func TestADetachThatFailedIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	a := objects.Deleted(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentDetachFail))
	a.Status.Error = &apiv1.Error{Kind: "Unavailable", Time: metav1.NewTime(objects.Now)}
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/b",
		HasFinalizer: true,
	}
	step := attaching.Next(in)
	if step.Start != operation.WorkNone || step.RequeueAfter <= 0 {
		t.Fatalf("right after the failure: got %+v, want a later time", step)
	}
	in.Now = objects.Now.Add(step.RequeueAfter)
	if step := attaching.Next(in); step.Start != operation.WorkDetach {
		t.Fatalf("after that time: got %+v, want a detach", step)
	}
}
