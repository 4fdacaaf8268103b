package plan_test

import (
	"errors"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAttachment(t *testing.T) {
	t.Parallel()
	held, releasing := claimed("a", 2, apiv1.ClaimHeld), claimed("a", 2, apiv1.ClaimReleasing)
	primary := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return newAttachment("a", apiv1.RolePrimary, 2, state)
	}
	ended := func(w plan.Work, truth plan.Truth, err error) plan.Job {
		return plan.Job{Work: w, Phase: plan.PhaseEnded, Ended: now, Truth: truth, Err: err}
	}
	type want struct {
		start               plan.Work
		state               apiv1.AttachmentState
		proof               apiv1.ProofKind
		giveWay             string
		removed, addedFinal bool
		resume, reason      string
	}
	for name, test := range map[string]struct {
		in   plan.AttachmentInput
		want want
	}{
		"the finalizer comes before everything": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(held), VMID: "/vm/a"},
			want{addedFinal: true}},
		"a new one is attached, and the VM is recorded first": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true},
			want{start: plan.WorkAttach, state: apiv1.AttachmentAttaching}},
		"law 3: a fenced one is not attached again before its claim is released": {plan.AttachmentInput{
			Attachment: proven(primary(""), apiv1.ProofDetached), VMID: "/vm/a", HasFinalizer: true,
			Volume: newVolume(releasing, func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost })}, want{}},
		"it waits for the disk": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeCreating }), VMID: "/vm/a", HasFinalizer: true},
			want{state: apiv1.AttachmentPending, reason: plan.ReasonVolumeNotReady}},
		"it waits for the node's VM": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(held), HasFinalizer: true},
			want{state: apiv1.AttachmentPending, reason: plan.ReasonNodeUnknown}},
		"a replica gives way": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true, Room: plan.Room{GiveWay: "r"}},
			want{state: apiv1.AttachmentPending, giveWay: "r", reason: plan.ReasonWaitingForRoom}},
		"no room is a failure": {plan.AttachmentInput{Attachment: primary(""), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true, Room: plan.Room{Full: true, Message: "full"}},
			want{state: apiv1.AttachmentFailed, reason: plan.ReasonNoRoom}},
		"an accepted operation is recorded": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttaching), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true,
			Job: plan.Job{Work: plan.WorkAttach, Phase: plan.PhaseAccepted, Token: "t", Accepted: now}},
			want{state: apiv1.AttachmentAttaching, resume: "t"}},
		"a restart resumes the operation": {plan.AttachmentInput{Attachment: withOperation(primary(apiv1.AttachmentAttaching), plan.WorkAttach, "t"), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true},
			want{start: plan.WorkAttach, state: apiv1.AttachmentAttaching, resume: "t"}},
		"an attach that was begun is not resumed while the AzVolume is missing": {plan.AttachmentInput{Attachment: withOperation(primary(apiv1.AttachmentAttaching), plan.WorkAttach, "t"), VMID: "/vm/a", HasFinalizer: true},
			want{state: apiv1.AttachmentPending, reason: plan.ReasonVolumeNotReady}},
		"what is attached in truth is attached": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttaching), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true,
			Job: ended(plan.WorkAttach, plan.Truth{Attached: true, LUN: 3}, errors.New("lost touch"))},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonAttached}},
		"what is not is a failure": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttaching), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true,
			Job: ended(plan.WorkAttach, plan.Truth{}, provisioner.Errorf(provisioner.InvalidArgument, "zone"))},
			want{state: apiv1.AttachmentFailed, reason: plan.ReasonAttachFailed}},
		"law 3: a held primary is not detached by deleting its object": {plan.AttachmentInput{Attachment: deleted(primary(apiv1.AttachmentAttached)), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonPrimaryHeld}},
		"law 3: nor is one that is being released, without proof": {plan.AttachmentInput{Attachment: deleted(primary(apiv1.AttachmentAttached)), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonWaitingForProof}},
		"with proof it is detached": {plan.AttachmentInput{Attachment: proven(deleted(primary(apiv1.AttachmentAttached)), apiv1.ProofUnstaged), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true},
			want{start: plan.WorkDetach, state: apiv1.AttachmentDetaching}},
		"a proof of an earlier epoch is none": {plan.AttachmentInput{Attachment: oldProof(deleted(primary(apiv1.AttachmentAttached))), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonWaitingForProof}},
		"a replica that never was primary needs no proof": {plan.AttachmentInput{Attachment: deleted(newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)), Volume: newVolume(held), VMID: "/vm/b", HasFinalizer: true},
			want{start: plan.WorkDetach, state: apiv1.AttachmentDetaching}},
		"the attach in flight ends before the detach": {plan.AttachmentInput{Attachment: deleted(newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttaching)), Volume: newVolume(held), VMID: "/vm/b", HasFinalizer: true,
			Job: plan.Job{Work: plan.WorkAttach, Phase: plan.PhaseBegun}}, want{state: apiv1.AttachmentAttaching}},
		"what never reached Azure goes at once": {plan.AttachmentInput{Attachment: deleted(newAttachment("b", apiv1.RoleReplica, 0, "")), Volume: newVolume(held), HasFinalizer: true},
			want{removed: true}},
		"detached in truth, the finalizer goes": {plan.AttachmentInput{Attachment: deleted(newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)), Volume: newVolume(held), HasFinalizer: true,
			Job: ended(plan.WorkDetach, plan.Truth{}, nil)}, want{removed: true, state: apiv1.AttachmentDetaching}},
		"still attached after a detach is a failure": {plan.AttachmentInput{Attachment: deleted(newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)), Volume: newVolume(held), HasFinalizer: true,
			Job: ended(plan.WorkDetach, plan.Truth{Attached: true}, nil)}, want{state: apiv1.AttachmentDetachFail, reason: plan.ReasonDetachFailed}},
		"a lost node that is being released is fenced": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true, NodeLost: true},
			want{start: plan.WorkFence, state: apiv1.AttachmentDetaching, reason: plan.ReasonFencing}},
		"a restart goes on with the forced detach": {plan.AttachmentInput{Attachment: withOperation(primary(apiv1.AttachmentAttached), plan.WorkFence, "t"), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true, NodeLost: true},
			want{start: plan.WorkFence, state: apiv1.AttachmentDetaching, reason: plan.ReasonFencing, resume: "t"}},
		"a forced detach that failed is not gone on with": {plan.AttachmentInput{Attachment: withOperation(primary(apiv1.AttachmentAttached), plan.WorkFence, "t"), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true, NodeLost: true,
			Job: plan.Job{Work: plan.WorkFence, Phase: plan.PhaseEnded, Ended: now, Token: "t", Err: provisioner.Errorf(provisioner.Conflict, "preempted")}},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonFencing}},
		"one that could not be asked about is": {plan.AttachmentInput{Attachment: withOperation(primary(apiv1.AttachmentAttached), plan.WorkFence, "t"), Volume: newVolume(releasing), VMID: "/vm/a", HasFinalizer: true, NodeLost: true,
			Job: ended(plan.WorkFence, plan.Truth{}, provisioner.Errorf(provisioner.Unavailable, "read VM"))},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonFencing, resume: "t"}},
		"law 3: a lost node that holds its claim is not": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(held), VMID: "/vm/a", HasFinalizer: true, NodeLost: true},
			want{state: apiv1.AttachmentAttached, reason: plan.ReasonAttached}},
		"a VM that is gone is proof": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(releasing), HasFinalizer: true, NodeLost: true,
			Job: ended(plan.WorkFence, plan.Truth{VMGone: true}, nil)}, want{state: apiv1.AttachmentPending, proof: apiv1.ProofVMDown, reason: plan.ReasonFenced}},
		"a disk that is off is proof": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(releasing), HasFinalizer: true, NodeLost: true,
			Job: ended(plan.WorkFence, plan.Truth{}, nil)}, want{state: apiv1.AttachmentPending, proof: apiv1.ProofDetached, reason: plan.ReasonFenced}},
		"a disk that is still on is none": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(releasing), HasFinalizer: true, NodeLost: true,
			Job: ended(plan.WorkFence, plan.Truth{Attached: true}, nil)}, want{state: apiv1.AttachmentAttached}},
		"nor is a question that Azure did not answer": {plan.AttachmentInput{Attachment: primary(apiv1.AttachmentAttached), Volume: newVolume(releasing), HasFinalizer: true, NodeLost: true,
			Job: ended(plan.WorkFence, plan.Truth{}, errors.New("timeout"))}, want{state: apiv1.AttachmentAttached, reason: plan.ReasonFencing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now = now
			step := plan.Attachment(test.in)
			got := want{start: step.Start, state: step.Status.State, giveWay: step.GiveWay, removed: step.RemoveFinalizer, addedFinal: step.AddFinalizer, resume: step.Resume, reason: step.Reason}
			if step.Status.Proof != nil && step.Status.Proof != test.in.Attachment.Status.Proof && test.in.Attachment.Status.Proof == nil {
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

func withOperation(a *apiv1.AzVolumeAttachment, w plan.Work, token string) *apiv1.AzVolumeAttachment {
	a.Status.Operation = &apiv1.Operation{Kind: string(w), ResumeToken: token}
	return a
}

func oldProof(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
	a.Status.Proof = &apiv1.ReleaseProof{Kind: apiv1.ProofUnstaged, Epoch: a.Spec.Epoch - 1}
	return a
}

func TestAttachedStatusIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	a := newAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)
	in := plan.AttachmentInput{Now: now, Attachment: a, Volume: newVolume(claimed("a", 2, apiv1.ClaimHeld)), VMID: "/vm/a", HasFinalizer: true,
		Job: plan.Job{Work: plan.WorkAttach, Phase: plan.PhaseEnded, Truth: plan.Truth{Attached: true, LUN: 1}}}
	a.Status = plan.Attachment(in).Status
	in.Job, in.Now = plan.Job{}, now.Add(time.Hour)
	step := plan.Attachment(in)
	if step.Start != plan.WorkNone || len(step.Status.Conditions) != 1 || step.Status.Conditions[0] != a.Status.Conditions[0] || *step.Status.LUN != 1 {
		t.Fatalf("%+v", step)
	}
}

// The status was lost during the attach, and the attachment said Attached without naming a VM. Nothing compared its LUN with what Azure lists any more, and a node
// waited for a device under a LUN where the disk no longer was.
func TestAnAttachmentThatIsAttachedNamesItsVM(t *testing.T) {
	t.Parallel()
	unnamed := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		a := newAttachment("a", apiv1.RolePrimary, 2, state)
		a.Status.VMID, a.Status.LUN = "", new(int32)
		return a
	}
	t.Run("the status was lost during the attach", func(t *testing.T) {
		t.Parallel()
		in := plan.AttachmentInput{
			Now: now, Attachment: unnamed(""), Volume: newVolume(claimed("a", 2, apiv1.ClaimHeld)), VMID: "/vm/new", HasFinalizer: true,
			Job: plan.Job{Work: plan.WorkAttach, Phase: plan.PhaseEnded, Ended: now, Truth: plan.Truth{VMID: "/vm/asked", Attached: true, LUN: 3}},
		}
		got := plan.Attachment(in).Status
		if got.State != apiv1.AttachmentAttached || got.VMID != "/vm/asked" {
			t.Errorf("got %s at VM %q, want Attached at the VM that was asked, /vm/asked", got.State, got.VMID)
		}
	})
	t.Run("the status names no VM", func(t *testing.T) {
		t.Parallel()
		in := plan.AttachmentInput{Now: now, Attachment: unnamed(apiv1.AttachmentAttached), Volume: newVolume(claimed("a", 2, apiv1.ClaimHeld)), VMID: "/vm/a", HasFinalizer: true}
		step := plan.Attachment(in)
		if step.Status.State != apiv1.AttachmentPending || step.Status.LUN != nil || step.Reason != plan.ReasonVMUnrecorded {
			t.Errorf("got %s at LUN %v for %q, want Pending without a LUN for %q", step.Status.State, step.Status.LUN, step.Reason, plan.ReasonVMUnrecorded)
		}
		in.Attachment.Status = step.Status
		if step = plan.Attachment(in); step.Start != plan.WorkAttach || step.Status.VMID != "/vm/a" {
			t.Errorf("got work %q and VM %q next, want %q and /vm/a", step.Start, step.Status.VMID, plan.WorkAttach)
		}
	})
}

func TestFailedAttachIsTriedAgainLaterAndAtOnceAfterAPromotion(t *testing.T) {
	t.Parallel()
	a := newAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentFailed)
	a.Status.Error = &apiv1.Error{Kind: "Unavailable", Time: *ago(time.Second)}
	in := plan.AttachmentInput{Now: now, Attachment: a, Volume: newVolume(claimed("b", 2, apiv1.ClaimHeld)), VMID: "/vm/a", HasFinalizer: true}
	if step := plan.Attachment(in); step.Start != plan.WorkNone || step.RequeueAfter <= 0 {
		t.Fatalf("%+v", step)
	}
	a.Generation = 2
	if step := plan.Attachment(in); step.Start != plan.WorkAttach {
		t.Fatalf("%+v", step)
	}
}

// The wait was as long as the attachment had been attached, up to a minute.
func TestAFenceThatFailedIsTriedAgainAfterSeconds(t *testing.T) {
	t.Parallel()
	a := newAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	in := plan.AttachmentInput{Now: now, Attachment: a, Volume: newVolume(claimed("a", 2, apiv1.ClaimReleasing)), VMID: "/vm/a", HasFinalizer: true, NodeLost: true}
	in.Job = plan.Job{Work: plan.WorkFence, Phase: plan.PhaseEnded, Ended: now, Err: errors.New("no answer")}
	a.Status = plan.Attachment(in).Status
	in.Job = plan.Job{}
	if step := plan.Attachment(in); step.Start != plan.WorkNone || step.RequeueAfter <= 0 || step.RequeueAfter > 5*time.Second {
		t.Fatalf("%+v", step)
	}
	in.Now = now.Add(5 * time.Second)
	if step := plan.Attachment(in); step.Start != plan.WorkFence {
		t.Fatalf("%+v", step)
	}
}
