package attaching_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The proof of an ordinary release does not keep the end of an attach from being recorded: only a fence
// does.
func TestTheEndOfAnAttachIsRecordedBesideAProof(t *testing.T) {
	t.Parallel()
	for cause, want := range map[apiv1.ReleaseCause]apiv1.AttachmentState{
		apiv1.CauseUnpublished: apiv1.AttachmentAttached, apiv1.CauseNodeLost: apiv1.AttachmentAttaching,
	} {
		a := objects.Proved(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching), apiv1.ProofUnstaged)
		v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
		v.Status.Primary.Cause = cause
		step := attaching.Next(attaching.Input{
			Now: objects.Now, Attachment: a, Volume: v, VMID: "/vm/a", HasFinalizer: true,
			Job: operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseEnded, Ended: objects.Now,
				Truth: operation.Truth{VMID: "/vm/a", Attached: true, LUN: 1}},
		})
		if step.Status.State != want {
			t.Errorf("%s: got %s, want %s", cause, step.Status.State, want)
		}
	}
}

func TestAttachment(t *testing.T) {
	t.Parallel()
	held, releasing := objects.Owned("a", 2, apiv1.OwnershipHeld), objects.Owned("a", 2, apiv1.OwnershipReleasing)
	primary := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", apiv1.RolePrimary, 2, state)
	}
	type want struct {
		start               operation.Work
		state               apiv1.AttachmentState
		proof               apiv1.ProofType
		giveWay             string
		removed, addedFinal bool
		resume, reason      string
	}
	const attached, detaching = apiv1.AttachmentAttached, apiv1.AttachmentDetaching
	const pending, begun = apiv1.AttachmentPending, apiv1.AttachmentAttaching
	volume := objects.NewVolume
	replica := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("b", apiv1.RoleReplica, 0, state)
	}
	type edit = func(*attaching.Input)
	in := func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, edits ...edit) attaching.Input {
		in := attaching.Input{Attachment: a, Volume: v, VMID: "/vm/" + a.Spec.NodeName, HasFinalizer: true}
		for _, e := range edits {
			e(&in)
		}
		return in
	}
	noFinalizer, noVM := func(in *attaching.Input) { in.HasFinalizer = false }, func(in *attaching.Input) { in.VMID = "" }
	lost := func(in *attaching.Input) { in.NodeLost = true }
	room := func(room attaching.SlotDecision) edit { return func(in *attaching.Input) { in.Room = room } }
	job := func(job operation.Job) edit { return func(in *attaching.Input) { in.Job = job } }
	ended := func(w operation.Work, truth operation.Truth, err error) edit {
		return job(operation.Job{Work: w, Phase: operation.PhaseEnded, Ended: objects.Now, Truth: truth, Err: err})
	}
	for name, test := range map[string]struct {
		in   attaching.Input
		want want
	}{
		"the finalizer comes before everything": {in(volume(held), primary(""), noFinalizer), want{addedFinal: true}},
		"a new one is attached, and the VM is recorded first": {in(volume(held), primary("")),
			want{start: operation.WorkAttach, state: begun}},
		"law 3: a fenced one is not attached again before its ownership is released": {
			in(volume(releasing, func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost }),
				objects.Proved(primary(""), apiv1.ProofDetached)), want{}},
		"it waits for the disk": {in(volume(func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeCreating }), primary("")),
			want{state: pending, reason: apiv1.ReasonVolumeNotReady}},
		"it waits for the node's VM": {in(volume(held), primary(""), noVM),
			want{state: pending, reason: apiv1.ReasonNodeUnknown}},
		"a replica gives way": {in(volume(held), primary(""), room(attaching.SlotDecision{GiveWay: "r"})),
			want{state: pending, giveWay: "r", reason: apiv1.ReasonWaitingForDiskSlot}},
		"no room is a failure": {in(volume(held), primary(""), room(attaching.SlotDecision{Full: true, Message: "full"})),
			want{state: apiv1.AttachmentFailed, reason: apiv1.ReasonNoDiskSlot}},
		"an accepted operation is recorded": {
			in(volume(held), primary(begun),
				job(operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseAccepted, Tokens: []string{"t"},
					Accepted: objects.Now})), want{state: begun, resume: "t"}},
		"a restart resumes the operation": {in(volume(held), withOperation(primary(begun), operation.WorkAttach, "t")),
			want{start: operation.WorkAttach, state: begun, resume: "t"}},
		"an attach that was begun is not resumed while the AzVolume is missing": {
			in(nil, withOperation(primary(begun), operation.WorkAttach, "t")),
			want{state: pending, reason: apiv1.ReasonVolumeNotReady}},
		"what Azure lists after an attach that succeeded is attached": {
			in(volume(held), primary(begun), ended(operation.WorkAttach, operation.Truth{Attached: true, LUN: 3}, nil)),
			want{state: attached, reason: apiv1.ReasonDiskAttached}},
		"what is not is a failure": {
			in(volume(held), primary(begun),
				ended(operation.WorkAttach, operation.Truth{}, provisioner.Errorf(provisioner.InvalidArgument, "zone"))),
			want{state: apiv1.AttachmentFailed, reason: apiv1.ReasonDiskAttachFailed}},
		"law 3: a held primary is not detached by deleting its object": {in(volume(held), objects.Deleted(primary(attached))),
			want{state: attached, reason: apiv1.ReasonPrimaryHeld}},
		"law 3: nor is one that is being released, without proof": {in(volume(releasing), objects.Deleted(primary(attached))),
			want{state: attached, reason: apiv1.ReasonWaitingForProof}},
		"with proof it is detached": {
			in(volume(releasing), objects.Proved(objects.Deleted(primary(attached)), apiv1.ProofUnstaged)),
			want{start: operation.WorkDetach, state: detaching}},
		"a proof of an earlier epoch is none": {in(volume(releasing), oldProof(objects.Deleted(primary(attached)))),
			want{state: attached, reason: apiv1.ReasonWaitingForProof}},
		"a replica that never was primary needs no proof": {in(volume(held), objects.Deleted(replica(attached))),
			want{start: operation.WorkDetach, state: detaching}},
		"the attach in flight ends before the detach": {
			in(volume(held), objects.Deleted(replica(begun)),
				job(operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseBegun})), want{state: begun}},
		"an attachment that never reached Azure is deleted at once": {in(volume(held), objects.Deleted(replica("")), noVM),
			want{removed: true}},
		"after Azure lists the disk as detached, the finalizer is removed": {
			in(volume(held), objects.Deleted(replica(detaching)), noVM, ended(operation.WorkDetach, operation.Truth{}, nil)),
			want{removed: true, state: detaching}},
		"still attached after a detach is a failure": {
			in(volume(held), objects.Deleted(replica(detaching)), noVM,
				ended(operation.WorkDetach, operation.Truth{Attached: true}, nil)),
			want{state: apiv1.AttachmentDetachFail, reason: apiv1.ReasonDiskDetachFailed}},
		"a lost node that is being released is fenced": {in(volume(releasing), primary(attached), lost),
			want{start: operation.WorkFence, state: detaching, reason: apiv1.ReasonVolumeFencing}},
		"a restart continues the forced detach": {
			in(volume(releasing), withOperation(primary(attached), operation.WorkFence, "t"), lost),
			want{start: operation.WorkFence, state: detaching, reason: apiv1.ReasonVolumeFencing, resume: "t"}},
		"a forced detach that failed is not gone on with": {
			in(volume(releasing), withOperation(primary(attached), operation.WorkFence, "t"), lost,
				job(operation.Job{Work: operation.WorkFence, Phase: operation.PhaseEnded, Ended: objects.Now,
					Tokens: []string{"t"}, Err: provisioner.Errorf(provisioner.Conflict, "preempted")})),
			want{state: attached, reason: apiv1.ReasonVolumeFencing}},
		"one that could not be asked about is": {
			in(volume(releasing), withOperation(primary(attached), operation.WorkFence, "t"), lost,
				ended(operation.WorkFence, operation.Truth{}, provisioner.Errorf(provisioner.Unavailable, "read VM"))),
			want{state: attached, reason: apiv1.ReasonVolumeFencing, resume: "t"}},
		"law 3: a lost node that holds its ownership is not": {in(volume(held), primary(attached), lost),
			want{state: attached, reason: apiv1.ReasonDiskAttached}},
		"a VM that is gone is proof": {
			in(volume(releasing), primary(attached), noVM, lost,
				ended(operation.WorkFence, operation.Truth{VMGone: true, Epoch: 2}, nil)),
			want{state: pending, proof: apiv1.ProofVMDown, reason: apiv1.ReasonVolumeFenced}},
		"a VM that is down, and its disk is detached": {
			in(volume(releasing), primary(attached), noVM, lost,
				ended(operation.WorkFence, operation.Truth{VMDown: true, Epoch: 2}, nil)),
			want{state: pending, proof: apiv1.ProofVMDown, reason: apiv1.ReasonVolumeFenced}},
		"a disk that is off is proof": {
			in(volume(releasing), primary(attached), noVM, lost, ended(operation.WorkFence, operation.Truth{Epoch: 2}, nil)),
			want{state: pending, proof: apiv1.ProofDetached, reason: apiv1.ReasonVolumeFenced}},
		"a disk that is still on is none": {
			in(volume(releasing), primary(attached), noVM, lost,
				ended(operation.WorkFence, operation.Truth{Attached: true, Epoch: 2}, nil)),
			want{state: attached, reason: apiv1.ReasonVolumeFencing}},
		"nor is a question that Azure did not answer": {
			in(volume(releasing), primary(attached), noVM, lost,
				ended(operation.WorkFence, operation.Truth{}, errors.New("timeout"))),
			want{state: attached, reason: apiv1.ReasonVolumeFencing}},
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
				got.proof = step.Status.Proof.Type
			}
			if step.Start == operation.WorkNone && step.Status.Operation != nil {
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
	a.Status.Operation = &apiv1.Operation{Type: string(w), ResumeToken: token}
	return a
}

func oldProof(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
	a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: a.Spec.Epoch - 1}
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
			step.Reason != apiv1.ReasonVMUnrecorded {
			t.Errorf("got %s at LUN %v for %q, want Pending without a LUN for %q", step.Status.State, step.Status.LUN,
				step.Reason, apiv1.ReasonVMUnrecorded)
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
	a.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: *objects.Ago(time.Second)}
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
	a.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: metav1.NewTime(objects.Now)}
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
