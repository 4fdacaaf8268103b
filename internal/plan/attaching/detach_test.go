package attaching_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/meta"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// An attachment that was re-created names no VM, and the disk may be attached nevertheless.
func TestLaw3AnAttachmentThatNamesNoVMIsNoProofThatThereIsNone(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, ""),
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		HasFinalizer: true,
		NodeLost:     true,
	}
	step := attaching.Next(in)
	if step.Start != operation.WorkFence || step.Status.Proof != nil {
		t.Fatalf("start %q, proof %+v", step.Start, step.Status.Proof)
	}
	in.Attachment = objects.Deleted(in.Attachment)
	if step := attaching.Next(in); step.Start != operation.WorkFence || step.Status.Proof != nil || step.RemoveFinalizer {
		t.Fatalf("deleted: start %q, proof %+v", step.Start, step.Status.Proof)
	}
	in.Job = operation.Job{
		Work:  operation.WorkFence,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Truth: operation.Truth{Epoch: 2},
	}
	if p := attaching.Next(in).Status.Proof; p == nil || p.Type != apiv1.ProofDetached || p.Epoch != 2 {
		t.Errorf("got proof %+v after Azure listed the disk at no VM, want Detached with epoch 2", p)
	}
}

// The condition of an attachment that is being deleted shows if the disk is still attached.
func TestWhatIsHeldSaysWhetherItIsAttached(t *testing.T) {
	t.Parallel()
	for state, want := range map[apiv1.AttachmentState]metav1.ConditionStatus{
		apiv1.AttachmentAttached: metav1.ConditionTrue, apiv1.AttachmentFailed: metav1.ConditionFalse,
	} {
		a := objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, state))
		step := attaching.Next(attaching.Input{Now: objects.Now, Attachment: a, HasFinalizer: true,
			Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))})
		c := meta.FindStatusCondition(step.Status.Conditions, apiv1.AttachmentConditionAttached)
		if c == nil || c.Reason != apiv1.ReasonPrimaryHeld || c.Status != want {
			t.Errorf("%s: got condition %+v, want %s with reason %s", state, c, want, apiv1.ReasonPrimaryHeld)
		}
	}
}

// Issue 11.11: the fence of a lost node began only when the attach in flight had ended, some 13
// seconds later.
func TestAFenceStartsWhileAnotherJobOfTheAttachmentIsInFlight(t *testing.T) {
	t.Parallel()
	recorded := &apiv1.Operation{Type: string(operation.WorkAttach), ResumeToken: "attach"}
	for name, job := range map[string]operation.Job{
		"an attach that is being sent": {Work: operation.WorkAttach, Phase: operation.PhaseBegun},
		"an attach that Azure has accepted": {Work: operation.WorkAttach, Phase: operation.PhaseAccepted,
			Tokens: []string{"attach"}, Accepted: objects.Now},
		"an attach that has ended":        {Work: operation.WorkAttach, Phase: operation.PhaseEnded, Ended: objects.Now},
		"an attach of an earlier process": {},
		"a detach that Azure has accepted": {Work: operation.WorkDetach, Phase: operation.PhaseAccepted,
			Tokens: []string{"detach"}, Accepted: objects.Now},
		"a detach of an earlier object, sending": {Work: operation.WorkDetach, Phase: operation.PhaseBegun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.Input{
				Now:          objects.Now,
				Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching),
				Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
				HasFinalizer: true,
				NodeLost:     true,
				Job:          job,
			}
			in.Attachment.Status.Operation = recorded
			for _, a := range objects.Attachments(in.Attachment, objects.Deleted(in.Attachment.DeepCopy())) {
				in.Attachment = a
				step := attaching.Next(in)
				if step.Start != operation.WorkFence || step.Resume != "" || step.Status.State != apiv1.AttachmentDetaching ||
					step.Status.Proof != nil {
					t.Errorf("deleted %v: got start %q, resume %q, state %s, proof %v; want %q without a token, %s and no proof",
						a.DeletionTimestamp != nil, step.Start, step.Resume, step.Status.State, step.Status.Proof,
						operation.WorkFence, apiv1.AttachmentDetaching)
				}
			}
		})
	}
}

func TestAFenceInFlightIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching),
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		HasFinalizer: true,
		NodeLost:     true,
		Job: operation.Job{
			Work:     operation.WorkFence,
			Phase:    operation.PhaseAccepted,
			Tokens:   []string{"fence"},
			Accepted: objects.Now,
		},
	}
	step := attaching.Next(in)
	if op := step.Status.Operation; step.Start != operation.WorkNone || op == nil || op.ResumeToken != "fence" {
		t.Errorf("got start %q, operation %+v; want no start and the recorded token", step.Start, op)
	}
}

func TestAnOrderlyDetachWaitsForTheAttachInFlight(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttaching)),
		Volume:       objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
		HasFinalizer: true,
		NodeLost:     true,
		Job: operation.Job{
			Work:     operation.WorkAttach,
			Phase:    operation.PhaseAccepted,
			Tokens:   []string{"attach"},
			Accepted: objects.Now,
		},
	}
	if step := attaching.Next(in); step.Start != operation.WorkNone || step.Status.Operation == nil {
		t.Errorf("got start %q, operation %+v; want no start and the attach recorded", step.Start, step.Status.Operation)
	}
}

// Seeds 86022 and 141584 of the simulation: a leader that had lost its lease sent an attach seven
// seconds later. The next leader had detached the disk by then and removed the object.
func TestADetachWaitsUntilAFormerLeaderCanNoLongerAttach(t *testing.T) {
	t.Parallel()
	is := func(state apiv1.AttachmentState, attached metav1.ConditionStatus, reason string,
		since time.Duration) *apiv1.AzVolumeAttachment {
		a := objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, state))
		a.Status.VMID = "/vm/a"
		a.Status.Conditions = []metav1.Condition{{
			Type:               apiv1.AttachmentConditionAttached,
			Status:             attached,
			Reason:             reason,
			LastTransitionTime: *objects.Ago(since),
		}}
		return a
	}
	for name, test := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		leadingFor time.Duration // 0 where no other process leads
		wait       time.Duration // 0 for a detach
	}{
		"a leader begins to attach it": {is(apiv1.AttachmentAttaching, metav1.ConditionFalse,
			apiv1.ReasonDiskAttaching, time.Hour), 3 * time.Second, 7 * time.Second},
		"the attach has failed": {is(apiv1.AttachmentFailed, metav1.ConditionFalse,
			apiv1.ReasonDiskAttachFailed, time.Hour), 3 * time.Second, 7 * time.Second},
		"it was detached by force": {is(apiv1.AttachmentPending, metav1.ConditionFalse,
			apiv1.ReasonVolumeFenced, time.Hour), 3 * time.Second, 7 * time.Second},
		"it was attached by two leaders at once": {is(apiv1.AttachmentAttached, metav1.ConditionTrue,
			apiv1.ReasonDiskAttached, 2*time.Second), 3 * time.Second, 7 * time.Second},
		"it was attached just before this leader": {is(apiv1.AttachmentAttached, metav1.ConditionTrue,
			apiv1.ReasonDiskAttached, 8*time.Second), 3 * time.Second, 2 * time.Second},
		"it was attached long before": {is(apiv1.AttachmentAttached, metav1.ConditionTrue,
			apiv1.ReasonDiskAttached, time.Minute), 3 * time.Second, 0},
		"its detach has begun": {is(apiv1.AttachmentDetaching, metav1.ConditionFalse,
			apiv1.ReasonDiskDetaching, time.Second), 3 * time.Second, 0},
		"its fence has begun": {is(apiv1.AttachmentDetaching, metav1.ConditionFalse,
			apiv1.ReasonVolumeFencing, time.Hour), 3 * time.Second, 7 * time.Second},
		"its detach has failed": {is(apiv1.AttachmentDetachFail, metav1.ConditionFalse,
			apiv1.ReasonDiskDetachFailed, time.Second), 3 * time.Second, 0},
		"another leader began to attach it after that": {is(apiv1.AttachmentAttaching, metav1.ConditionFalse,
			apiv1.ReasonDiskDetaching, time.Second), 3 * time.Second, 7 * time.Second},
		"every former leader has ended": {is(apiv1.AttachmentAttaching, metav1.ConditionFalse,
			apiv1.ReasonDiskAttaching, time.Hour), 10 * time.Second, 0},
		"no other process leads": {is(apiv1.AttachmentAttaching, metav1.ConditionFalse,
			apiv1.ReasonDiskAttaching, time.Hour), 0, 0},
		"a leader begins to attach it, in this moment": {is(apiv1.AttachmentAttaching, metav1.ConditionFalse,
			apiv1.ReasonDiskAttaching, 0), time.Millisecond, 10*time.Second - time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.Input{
				Now:          objects.Now,
				Attachment:   test.attachment,
				Volume:       objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
				VMID:         "/vm/a",
				HasFinalizer: true,
			}
			if test.leadingFor > 0 {
				in.LeadingSince, in.Overlap = objects.Now.Add(-test.leadingFor), 10*time.Second
			}
			want := operation.WorkDetach
			if test.wait > 0 {
				want = operation.WorkNone
			}
			if step := attaching.Next(in); step.Start != want || step.RequeueAfter != test.wait || step.RemoveFinalizer {
				t.Errorf("got start %q, again in %v, finalizer removed %t; want start %q, again in %v", step.Start,
					step.RequeueAfter, step.RemoveFinalizer, want, test.wait)
			}
		})
	}
}

func TestAFenceDoesNotWaitForAFormerLeader(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching),
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		HasFinalizer: true,
		NodeLost:     true,
		LeadingSince: objects.Now,
		Overlap:      10 * time.Second,
	}
	if step := attaching.Next(in); step.Start != operation.WorkFence {
		t.Errorf("got start %q, want %q", step.Start, operation.WorkFence)
	}
}

// Seed 86022: the other leader had recorded that Azure accepted its attach when this leader's
// detach ended.
func TestADetachThatAnotherLeadersAttachFollowedIsBegunAgain(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now: objects.Now,
		Attachment: withOperation(objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttaching)),
			operation.WorkAttach, "theirs"),
		Volume:       objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
		Job:          operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseEnded, Ended: objects.Now},
	}
	step := attaching.Next(in)
	if step.RemoveFinalizer || step.Start != operation.WorkDetach || step.Resume != "" || step.Status.Operation != nil ||
		step.Status.State != apiv1.AttachmentDetaching {
		t.Errorf("got finalizer removed %t, start %q, resume %q, operation %+v, state %s; want a new detach",
			step.RemoveFinalizer, step.Start, step.Resume, step.Status.Operation, step.Status.State)
	}
}

// Seed 184258: a node acquired the volume again while its fence ended. The result was recorded as a
// proof for the new epoch, and neither was the disk attached again nor the node fenced under it.
func TestLaw3AFenceProvesNothingForALaterEpoch(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 3, apiv1.AttachmentPending),
		Volume:       objects.NewVolume(objects.Owned("a", 3, apiv1.OwnershipReleasing)),
		VMID:         "/vm/a",
		HasFinalizer: true,
		NodeLost:     true,
		Job: operation.Job{
			Work:  operation.WorkFence,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Epoch: 2},
		},
	}
	if step := attaching.Next(in); step.Start != operation.WorkFence || step.Status.Proof != nil {
		t.Errorf("after the fence of epoch 2: got start %q, proof %+v; want another fence and no proof", step.Start,
			step.Status.Proof)
	}
	in.Job.Truth.Epoch = 3
	if step := attaching.Next(in); step.Start != operation.WorkNone || step.Status.Proof == nil || step.Status.Proof.Epoch != 3 {
		t.Errorf("after the fence of epoch 3: got start %q, proof %+v; want the proof", step.Start, step.Status.Proof)
	}
}

func TestAnAttachmentWithoutVMAndVolumeIsDeleted(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, "")),
		HasFinalizer: true,
		NodeLost:     true,
	}
	if step := attaching.Next(in); !step.RemoveFinalizer || step.Start != operation.WorkNone {
		t.Fatalf("%+v", step)
	}
	in.VMID = "/vm/a"
	if step := attaching.Next(in); step.RemoveFinalizer || step.Start != operation.WorkFence {
		t.Errorf("there is a VM that can be asked: %+v", step)
	}
}

func TestWhatKeepsAFenceIsSaidInTheCondition(t *testing.T) {
	t.Parallel()
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching),
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		HasFinalizer: true,
		NodeLost:     true,
		Job: operation.Job{
			Work:  operation.WorkFence,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Err:   provisioner.Errorf(provisioner.Conflict, "attached to that of node c"),
		},
	}
	condition := func() *metav1.Condition {
		in.Attachment.Status = attaching.Next(in).Status
		return meta.FindStatusCondition(in.Attachment.Status.Conditions, apiv1.AttachmentConditionAttached)
	}
	if c := condition(); c == nil || c.Reason != apiv1.ReasonVolumeFencing ||
		!strings.Contains(c.Message, "attached to that of node c") {
		t.Fatalf("condition %+v", c)
	}
	in.Job.Err, in.Job.Truth.Epoch = nil, 2
	if c := condition(); c == nil || c.Reason != apiv1.ReasonVolumeFenced || strings.Contains(c.Message, "node c") {
		t.Errorf("condition %+v after the proof", c)
	}
}

func TestSuspects(t *testing.T) {
	t.Parallel()
	to := func(node, vm string) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
		a.Status.VMID = vm
		return a
	}
	is := func(pairs ...string) map[string]identity.Identity {
		all := map[string]identity.Identity{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = identity.Identity{Name: pairs[i], VMID: pairs[i+1]}
		}
		return all
	}
	for name, test := range map[string]struct {
		attachedTo  []string
		attachments []*apiv1.AzVolumeAttachment
		nodes       map[string]identity.Identity
		cut         []string
		contested   string
		unknown     []string
	}{
		"a disk that is attached to no VM": {nil, objects.Attachments(to("a", "")), is("b", "/vm/b"), nil, "", nil},
		"a VM that belongs to no known node": {[]string{"/vm/x"}, objects.Attachments(to("a", "")),
			is("b", "/vm/b"), nil, "", []string{"/vm/x"}},
		"a VM of nodes whose VM is not established": {[]string{"/vm/x"}, objects.Attachments(to("a", "")), is("b", ""),
			nil, "", []string{"/vm/x"}},
		"the VM that the node is now": {[]string{"/VM/A"}, objects.Attachments(to("a", "")),
			is("a", "/vm/a"), []string{"/VM/A"}, "", nil},
		"that VM, which the node's attachment names": {[]string{"/vm/a"}, objects.Attachments(to("a", "/vm/a")),
			is("a", "/vm/a"), []string{"/vm/a"}, "", nil},
		"that VM, which another node's attachment names too": {[]string{"/vm/a"},
			objects.Attachments(to("a", ""), to("b", "/vm/a")), is("a", "/vm/a"), nil, "b", nil},
		"the node's recorded VM, which is another's": {[]string{"/vm/b"},
			objects.Attachments(to("a", "/vm/b"), to("b", "/vm/b")), is("b", "/vm/b"), nil, "", nil},
		"that of another attachment": {[]string{"/VM/B"},
			objects.Attachments(to("a", ""), to("b", "/vm/b")), is("b", "/vm/b"), nil, "", nil},
		"that of another attachment whose node is gone": {[]string{"/vm/b"},
			objects.Attachments(to("a", ""), to("b", "/vm/b")), nil, nil, "", nil},
		"that of a node without an attachment": {[]string{"/vm/c"}, objects.Attachments(to("a", "")),
			is("b", "/vm/b", "c", "/VM/c"), nil, "c", nil},
		"that of a node whose attachment does not name it yet": {[]string{"/vm/b"}, objects.Attachments(to("a", ""), to("b", "")),
			is("b", "/vm/b"), nil, "b", nil},
		"several": {[]string{"/vm/b", "/vm/x", "/vm/a", "/vm/y"}, objects.Attachments(to("a", ""), to("b", "/vm/b")),
			is("a", "/vm/a", "b", "/vm/b"), []string{"/vm/a"}, "", []string{"/vm/x", "/vm/y"}},
		// An attach that was asked for before the attachment lost its status may be under way, and
		// Azure does not list the disk at the VM yet.
		"the node's VM, which does not have the disk": {nil, objects.Attachments(to("a", "")),
			is("a", "/vm/a"), []string{"/vm/a"}, "", nil},
		"the node's VM, also when there is no attachment": {nil, nil, is("a", "/vm/a"), []string{"/vm/a"}, "", nil},
		"the node's VM, after those that have the disk": {[]string{"/vm/x"}, objects.Attachments(to("a", "")),
			is("a", "/vm/a"), []string{"/vm/a"}, "", []string{"/vm/x"}},
		"the node's VM without the disk, which another's attachment names": {nil,
			objects.Attachments(to("a", ""), to("b", "/VM/A")), is("a", "/vm/a"), nil, "", nil},
		"the node's VM without the disk, which was attached to another VM": {nil,
			objects.Attachments(to("a", "/vm/x"), to("b", "/vm/x")), is("a", "/vm/a"), nil, "", nil},
		"the node's VM without the disk, while another node's attachment is to a VM of its own": {nil,
			objects.Attachments(to("a", ""), to("b", "/vm/b")), is("a", "/vm/a", "b", "/vm/b"), []string{"/vm/a"}, "", nil},
		"two VMs, one of a node without an attachment": {[]string{"/vm/x", "/vm/c"},
			objects.Attachments(to("a", "")), is("c", "/vm/c"), nil, "c", []string{"/vm/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cut, contested, unknown := attaching.VMsToDetach(test.attachedTo, "a", test.attachments, test.nodes)
			if !slices.Equal(cut, test.cut) || contested != test.contested || !slices.Equal(unknown, test.unknown) {
				t.Fatalf("got cut %q, contested by %q, unknown %q; want %q, %q, %q", cut, contested, unknown, test.cut,
					test.contested, test.unknown)
			}
		})
	}
}

// Two attachments of one volume name one VM: one of them is wrong, and if one is deleted, the disk
// remains attached for the other.
func TestADiskStaysForTheOtherAttachmentThatNamesItsVM(t *testing.T) {
	t.Parallel()
	const victim = "/vm/victim"
	at := func(node, vm string, change ...func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
		a.Status.VMID = vm
		for _, c := range change {
			c(a)
		}
		return a
	}
	going := func(a *apiv1.AzVolumeAttachment) { objects.Deleted(a) }
	primary := func(a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 1 }
	volume := objects.NewVolume(objects.Owned("y", 1, apiv1.OwnershipHeld))
	for name, test := range map[string]struct {
		a     *apiv1.AzVolumeAttachment
		other *apiv1.AzVolumeAttachment
		want  string
	}{
		"another VM":                               {at("m", victim, going), at("z", "/vm/z"), ""},
		"no VM":                                    {at("m", "", going), at("z", ""), ""},
		"the other is a primary":                   {at("m", victim, going), at("z", "/VM/Victim", primary), "vol-z"},
		"the other is a replica":                   {at("m", victim, going), at("z", victim), "vol-z"},
		"the other is deleted and has no proof":    {at("m", victim, going), at("z", victim, primary, going), "vol-z"},
		"both may go, and this is the first":       {at("m", victim, going), at("z", victim, going), ""},
		"both may go, and the other is the first":  {at("m", victim, going), at("b", victim, going), "vol-b"},
		"an attachment is no other than itself":    {at("m", victim, going), at("m", victim), ""},
		"the other is that of a node without a VM": {at("m", victim, going), at("z", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attaching.SharedVM(volume, test.a, "", objects.Attachments(test.a, test.other))
			if got != test.want {
				t.Fatalf("got shared with %q, want %q", got, test.want)
			}
			step := attaching.Next(attaching.Input{
				Now:          objects.Now,
				Attachment:   test.a,
				Volume:       volume,
				HasFinalizer: true,
				SharedWith:   got,
			})
			detaches := test.want == "" && test.a.Status.VMID != ""
			if (step.Start == operation.WorkDetach) != detaches || step.RemoveFinalizer == detaches {
				t.Errorf("got start %q, finalizer removed %t; want a detach: %t", step.Start, step.RemoveFinalizer, detaches)
			}
		})
	}
}

// It was re-created for a disk that Azure has attached, or restored without its status. If it were
// deleted without a detach, the disk would remain attached.
func TestAnAttachmentThatNamesNoVMIsDetachedFromItsNodesVM(t *testing.T) {
	t.Parallel()
	ended := func(work operation.Work) operation.Job {
		return operation.Job{Work: work, Phase: operation.PhaseEnded, Ended: objects.Now}
	}
	for name, test := range map[string]struct {
		state  apiv1.AttachmentState
		vmID   string
		shared string
		job    operation.Job
		want   operation.Work
	}{
		"no status": {"", "/vm/a", "", operation.Job{}, operation.WorkDetach},
		"no status, and another attachment names the VM": {"", "/vm/a", "vol-b", operation.Job{}, operation.WorkNone},
		"no status, and no VM of the node":               {"", "", "", operation.Job{}, operation.WorkNone},
		// The status was lost after Azure was asked, and the attachment has waited since, as for a
		// disk that is being changed.
		"a status without a VM": {apiv1.AttachmentPending, "/vm/a", "", operation.Job{}, operation.WorkDetach},
		// The status was lost before the end of the job was written.
		"no status, and an attach of this process has ended": {"", "/vm/a", "", ended(operation.WorkAttach),
			operation.WorkDetach},
		"no status, and a detach of this process runs": {"", "/vm/a", "",
			operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseAccepted}, operation.WorkDetach},
		"no status, and a detach of this process has ended": {"", "/vm/a", "", ended(operation.WorkDetach), operation.WorkNone},
	} {
		a := objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, test.state))
		step := attaching.Next(attaching.Input{
			Now:          objects.Now,
			Attachment:   a,
			Volume:       objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
			VMID:         test.vmID,
			HasFinalizer: true,
			SharedWith:   test.shared,
			Job:          test.job,
		})
		if step.Start != test.want || step.RemoveFinalizer != (test.want == operation.WorkNone) ||
			test.want != operation.WorkNone && step.Status.VMID != test.vmID {
			t.Errorf("%s: got start %q, finalizer removed %t, VM %q; want start %q", name, step.Start, step.RemoveFinalizer,
				step.Status.VMID, test.want)
		}
	}
}

func TestAFenceWithoutAzVolumeWaitsIfAnotherAttachmentNamesTheVM(t *testing.T) {
	t.Parallel()
	a := objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached))
	step := attaching.Next(attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		VMID:         "/vm/a",
		NodeLost:     true,
		HasFinalizer: true,
		SharedWith:   "vol-b",
	})
	if step.Start != operation.WorkNone || !strings.Contains(step.Message, "vol-b") {
		t.Errorf("got start %q, message %q; want neither work nor silence about vol-b", step.Start, step.Message)
	}
}

// A time of a leader whose clock was ahead put the next try off for as long as it was ahead.
func TestATimeOfAClockThatWasAheadPutsNothingOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ahead time.Duration
		due   bool
	}{
		"a rounding":                      {time.Second, false},
		"clocks that differ a little":     {2 * time.Second, false},
		"a clock that was ahead":          {3 * time.Second, true},
		"a clock that was ahead by hours": {5 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := objects.Now.Add(test.ahead)
			if wait := operation.RetryIn(objects.Now.Add(-time.Hour), failed, objects.Now); (wait == 0) != test.due ||
				wait > time.Minute {
				t.Errorf("the next try is in %s", wait)
			}
			a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)
			a.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: metav1.NewTime(failed)}
			step := attaching.Next(attaching.Input{
				Now:          objects.Now,
				Attachment:   a,
				Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
				HasFinalizer: true,
				NodeLost:     true,
			})
			if due := step.Start == operation.WorkFence; due != test.due || step.RequeueAfter > 8*time.Second {
				t.Errorf("the fence starts %q, again in %s", step.Start, step.RequeueAfter)
			}
		})
	}
}

// Two disks of one VM were detached by two updates, one after the other, because their fences tried
// again at different times.
func TestTheFencesOfAVMTryAgainTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		start := objects.Now.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(rt, "start ms")) * time.Millisecond)
		since := start.Add(-time.Duration(rapid.IntRange(10, 600).Draw(rt, "failing for s")) * time.Second)
		var next []time.Time
		for i := range 2 {
			ended := start.Add(time.Duration(rapid.IntRange(0, 7000).Draw(rt, "ended after ms")) * time.Millisecond)
			next = append(next, nextFence(rt, since, ended))
			if wait := next[i].Sub(ended.Truncate(time.Second)); wait > 8*time.Second {
				rt.Errorf("a fence that failed at %s tries again after %s, want at most 8s", ended, wait)
			}
		}
		if d := next[1].Sub(next[0]).Abs() + 50*time.Millisecond; d%(8*time.Second) > 100*time.Millisecond {
			rt.Errorf("got tries at %s and %s, want the same instant or one whole period apart", next[0], next[1])
		}
	})
}

// nextFence returns when a fence that failed at ended, and has failed since, starts again.
func nextFence(t *rapid.T, since, ended time.Time) time.Time {
	in := attaching.Input{
		Now:          ended,
		Attachment:   objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching),
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		HasFinalizer: true,
		NodeLost:     true,
		Job: operation.Job{
			Work:  operation.WorkFence,
			Phase: operation.PhaseEnded,
			Ended: ended.Truncate(time.Second),
			Err:   provisioner.Errorf(provisioner.Unavailable, "503"),
		},
	}
	in.Attachment.Status.Conditions = []metav1.Condition{{
		Type:               apiv1.AttachmentConditionAttached,
		Status:             metav1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(since),
	}}
	for range 5 {
		step := attaching.Next(in)
		if step.Start == operation.WorkFence {
			return in.Now
		}
		if step.RequeueAfter <= 0 {
			t.Fatalf("the fence that failed does not look again: %+v", step)
		}
		in.Attachment.Status, in.Job, in.Now = step.Status, operation.Job{}, in.Now.Add(step.RequeueAfter)
	}
	t.Fatal("the fence does not start again")
	return time.Time{}
}

func TestADiskIsAttachedAgainUnlessItsVolumeIsInUse(t *testing.T) {
	t.Parallel()
	report := func(entries ...apiv1.StagedVolume) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{
			MountsScannedTime: &metav1.MicroTime{Time: objects.Now},
			StagedVolumes:     entries,
		}}
	}
	for name, test := range map[string]struct {
		report *apiv1.AzDriverNode
		want   bool
	}{
		"a node without a report":                {nil, false},
		"a node that has not scanned its mounts": {&apiv1.AzDriverNode{}, false},
		"a volume that is not in the report": {
			report(apiv1.StagedVolume{VolumeName: "other", Phase: apiv1.PhaseStaged}), true},
		"a volume that is staged": {
			report(apiv1.StagedVolume{VolumeName: "vol", Phase: apiv1.PhaseStaged}), false},
		"a volume that is being unstaged": {
			report(apiv1.StagedVolume{VolumeName: "vol", Phase: apiv1.PhaseUnstaging}), true},
		"a volume whose device is awaited": {
			report(apiv1.StagedVolume{VolumeName: "vol", Phase: apiv1.PhaseStaging}), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if why := attaching.MayReattach(test.report, "vol"); (why == "") != test.want {
				t.Errorf("MayReattach = %q, want it to be allowed: %t", why, test.want)
			}
		})
	}
}

func TestContradicted(t *testing.T) {
	t.Parallel()
	attached := func(change ...func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
		a.Status.LUN = new(int32(2))
		a.Status.Conditions = []metav1.Condition{{
			Type:               apiv1.AttachmentConditionAttached,
			Status:             metav1.ConditionTrue,
			LastTransitionTime: *objects.Ago(time.Minute),
		}}
		for _, c := range change {
			c(a)
		}
		return a
	}
	state := func(s apiv1.AttachmentState) func(*apiv1.AzVolumeAttachment) {
		return func(a *apiv1.AzVolumeAttachment) { a.Status.State = s }
	}
	for name, test := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		seen       *provisioner.Attachment
		want       bool
	}{
		"as recorded":       {attached(), &provisioner.Attachment{LUN: 2}, false},
		"not there":         {attached(), nil, true},
		"under another LUN": {attached(), &provisioner.Attachment{LUN: 3}, true},
		"without a LUN on record": {attached(func(a *apiv1.AzVolumeAttachment) { a.Status.LUN = nil }),
			&provisioner.Attachment{LUN: 2}, true},
		"on its way out": {attached(), &provisioner.Attachment{LUN: 3, Detaching: true}, false},
		"attached a moment ago": {attached(func(a *apiv1.AzVolumeAttachment) {
			a.Status.Conditions[0].LastTransitionTime = *objects.Ago(time.Second)
		}), nil, false},
		"attached by a clock that was ahead": {attached(func(a *apiv1.AzVolumeAttachment) {
			a.Status.Conditions[0].LastTransitionTime = *objects.Ago(-time.Hour)
		}), nil, true},
		"being deleted":       {objects.Deleted(attached()), nil, false},
		"of another VM":       {attached(func(a *apiv1.AzVolumeAttachment) { a.Status.VMID = "/vm/old" }), nil, false},
		"of no recorded VM":   {attached(func(a *apiv1.AzVolumeAttachment) { a.Status.VMID = "" }), nil, false},
		"without a condition": {attached(func(a *apiv1.AzVolumeAttachment) { a.Status.Conditions = nil }), nil, false},
		"with a condition that denies it": {attached(func(a *apiv1.AzVolumeAttachment) {
			a.Status.Conditions[0].Status = metav1.ConditionFalse
		}), nil, false},
		"not attached yet": {attached(state(apiv1.AttachmentAttaching)), nil, false},
		"being detached":   {attached(state(apiv1.AttachmentDetaching)), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := attaching.ContradictedByAzure(test.attachment, "/VM/a", test.seen, objects.Now); got != test.want {
				t.Fatal(got)
			}
			if !test.want {
				return
			}
			test.attachment.Status = attaching.StatusToAttachAgain(test.attachment, test.seen, objects.Now)
			if s := test.attachment.Status; s.State != apiv1.AttachmentPending || s.LUN != nil || s.VMID != "/vm/a" ||
				s.Conditions[0].Reason != apiv1.ReasonDiskDetachedOutside ||
				test.seen != nil && !strings.Contains(s.Conditions[0].Message, fmt.Sprintf("LUN %d", test.seen.LUN)) {
				t.Errorf("set back to %+v", s)
			}
			step := attaching.Next(attaching.Input{
				Now:          objects.Now,
				Attachment:   test.attachment,
				Volume:       objects.NewVolume(),
				VMID:         "/vm/a",
				HasFinalizer: true,
			})
			if step.Start != operation.WorkAttach {
				t.Errorf("got step %+v, want the disk attached again", step)
			}
		})
	}
}

func TestFencedAttachmentIsNotAttachedAgainBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	for name, owned := range map[string]func(*apiv1.AzVolume){
		"after the release":                        objects.Owned("", 3, apiv1.OwnershipReleased),
		"after another node acquired the volume":   objects.Owned("m", 4, apiv1.OwnershipHeld),
		"after the node acquired the volume again": objects.Owned("n", 4, apiv1.OwnershipHeld),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := objects.Proved(objects.NewAttachment("n", apiv1.RolePrimary, 3, apiv1.AttachmentPending), apiv1.ProofDetached)
			step := attaching.Next(attaching.Input{
				Now:          objects.Now,
				Attachment:   a,
				Volume:       objects.NewVolume(owned),
				VMID:         "/vm/n",
				HasFinalizer: true,
			})
			if step.Start != operation.WorkNone || step.Status.State != apiv1.AttachmentPending {
				t.Fatalf("%s, %s", step.Start, step.Status.State)
			}
		})
	}
}
