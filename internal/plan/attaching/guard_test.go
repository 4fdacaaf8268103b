package attaching_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// leavingReplica is the attachment of a replica that was deleted.
func leavingReplica(state apiv1.AttachmentState) attaching.Input {
	a := objects.Deleted(objects.NewAttachment("x", apiv1.RoleReplica, 0, state))
	return attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("", 2, apiv1.OwnershipReleased)),
		VMID:         "/vm/x",
		HasFinalizer: true,
	}
}

// lostOwner is the attachment of a primary that was lost.
func lostOwner() attaching.Input {
	in := beingFenced()
	in.Attachment.Status.VMID = "vm-a"
	return in
}

func TestTheDiskIsNotDetachedFromANodeThatGuardsAgainstAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in        attaching.Input
		wantStart operation.Work // while it guards against another node; "" if the same work is begun later
	}{
		"a replica that is deleted":         {leavingReplica(apiv1.AttachmentAttached), operation.WorkNone},
		"a replica whose detach has failed": {leavingReplica(apiv1.AttachmentDetachFail), operation.WorkNone},
		"a replica whose status was lost": {func() attaching.Input {
			in := leavingReplica(
				"")
			in.Attachment.Status.VMID = ""
			return in
		}(), operation.WorkNone},
		"a primary that is lost": {lostOwner(), operation.WorkFence},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := test.in
			free := attaching.Next(in)
			if free.Start == operation.WorkNone || free.ReadOnly {
				t.Fatalf("got work %q, only a read %t, want a detach while no node is guarded against", free.Start, free.ReadOnly)
			}
			in.GuardsAgainst = "c"
			step := attaching.Next(in)
			if step.Start != test.wantStart || step.Start != operation.WorkNone && !step.ReadOnly {
				t.Errorf("got work %q, only a read %t, want no detach", step.Start, step.ReadOnly)
			}
			if step.Status.State != in.Attachment.Status.State || step.RemoveFinalizer {
				t.Errorf("got state %q, finalizer removed %t, want the state %q unchanged", step.Status.State,
					step.RemoveFinalizer, in.Attachment.Status.State)
			}
			c := meta.FindStatusCondition(step.Status.Conditions, apiv1.AttachmentConditionAttached)
			if c == nil || c.Reason != apiv1.ReasonGuardsFencedNode || step.RequeueAfter == 0 ||
				step.RequeueAfter > 5*time.Second {
				t.Errorf("got condition %+v, again after %s, want the reason GuardsFencedNode, and another try soon", c,
					step.RequeueAfter)
			}
		})
	}
}

func TestWhatEndsTheFenceOfANodeThatGuardsAgainstAnother(t *testing.T) {
	t.Parallel()
	ended := func(truth operation.Truth) operation.Job {
		truth.Epoch = 2
		return operation.Job{Work: operation.WorkFence, Phase: operation.PhaseEnded, Ended: objects.Now, Truth: truth}
	}
	begun := lostOwner()
	begun.Attachment.Status.Operation = &apiv1.Operation{Type: string(operation.WorkFence), ResumeToken: "token"}
	helped := lostOwner()
	helped.Helpers = []attaching.Helper{helper(asked("b", time.Second)).answered(reservationKey)}
	asks := lostOwner()
	asks.Helpers = []attaching.Helper{{NodeName: "b"}}
	read := func(truth operation.Truth) attaching.Input { in := lostOwner(); in.Job = ended(truth); return in }
	for name, test := range map[string]struct {
		in     attaching.Input
		proof  apiv1.ProofType
		ask    string
		resume string
	}{
		"the VM is gone":                         {in: read(operation.Truth{VMGone: true}), proof: apiv1.ProofVMDown},
		"the VM may run":                         {in: read(operation.Truth{OnlyRead: true, Attached: true})},
		"another node has taken the reservation": {in: helped, proof: apiv1.ProofPreempted},
		"another node can take the reservation":  {in: asks, ask: "b"},
		"a forced detach was requested before":   {in: begun, resume: "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := test.in
			in.GuardsAgainst = "c"
			step := attaching.Next(in)
			got := apiv1.ProofType("")
			if step.Status.Proof != nil {
				got = step.Status.Proof.Type
			}
			if got != test.proof || step.Ask != test.ask || step.Resume != test.resume {
				t.Errorf("got proof %q, ask %q, resume %q; want %q, %q, %q", got, step.Ask, step.Resume, test.proof, test.ask,
					test.resume)
			}
			if step.Start != operation.WorkNone && !step.ReadOnly && test.resume == "" {
				t.Errorf("got work %q, want no detach", step.Start)
			}
		})
	}
	free := read(operation.Truth{OnlyRead: true, Attached: true})
	if step := attaching.Next(free); step.Status.Proof != nil || step.RequeueAfter != operation.MinWait {
		t.Errorf("got proof %+v, again after %s, when no node is guarded against any more; want the forced detach at once",
			step.Status.Proof, step.RequeueAfter)
	}
}

func TestADiskIsKeptForANodeWhoseReservationMayBeTaken(t *testing.T) {
	t.Parallel()
	request := apiv1.FenceRequest{VolumeName: "vol", NodeName: "a", Epoch: 2}
	result := apiv1.FenceResult{VolumeName: "vol", NodeName: "a", Epoch: 2}
	taken := result
	taken.Key = reservationKey
	another, own := request, request
	another.VolumeName = "vol-2"
	own.NodeName, own.Epoch = "x", 0
	for name, test := range map[string]struct {
		proof   apiv1.ProofType
		request *apiv1.FenceRequest
		result  *apiv1.FenceResult
		want    string
	}{
		"nothing was asked":                        {},
		"the node was asked":                       {request: &request, want: "a"},
		"it was asked for another volume":          {request: &another},
		"it was asked about itself":                {request: &own},
		"it has taken the reservation":             {request: &request, result: &taken, want: "a"},
		"it could not take it":                     {request: &request, result: &result},
		"the lost node was proved fenced by Azure": {request: &request, result: &taken, proof: apiv1.ProofDetached},
		"the lost node was fenced by the reservation": {request: &request, result: &taken, proof: apiv1.ProofPreempted,
			want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
			if test.proof != "" {
				objects.Proved(lost, test.proof)
			}
			replica := objects.NewAttachment("x", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
			report := objects.Report("x")
			if test.request != nil {
				report.Spec.Requests = &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{*test.request}}
			}
			if test.result != nil {
				report.Status.FenceResults = append(report.Status.FenceResults, *test.result)
			}
			volume := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
			other := lost.DeepCopy()
			other.Name, other.Spec.VolumeName = "vol-2-a", "vol-2"
			all := objects.Attachments(other, lost, replica)
			if got := attaching.GuardsAgainst(volume, replica, all, report); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := attaching.GuardsAgainst(nil, replica, all[1:], report) +
				attaching.GuardsAgainst(volume, replica, all[1:], nil); got != "" && test.proof != apiv1.ProofPreempted {
				t.Errorf("got %q without an AzVolume or a report, want none", got)
			}
			objects.Proved(replica, apiv1.ProofPreempted)
			if got := attaching.GuardsAgainst(volume, replica, all, report); got != "" {
				t.Errorf("got %q for a node that was fenced itself, want none", got)
			}
		})
	}
}

func TestAReplicaThatGuardsAgainstANodeDoesNotGiveWay(t *testing.T) {
	t.Parallel()
	attached := apiv1.AttachmentAttached
	me := of("vol", "n", apiv1.RolePrimary, apiv1.AttachmentPending)
	full := []*apiv1.AzVolumeAttachment{of("x", "n", apiv1.RolePrimary, attached), of("y", "n", apiv1.RoleReplica, attached),
		of("z", "n", apiv1.RoleReplica, attached)}
	for name, test := range map[string]struct {
		kept []string
		want attaching.SlotDecision
	}{
		"none is kept":                        {nil, attaching.SlotDecision{GiveWay: "y-n"}},
		"one is kept":                         {[]string{"y-n"}, attaching.SlotDecision{GiveWay: "z-n"}},
		"all are kept, and the primary waits": {[]string{"y-n", "z-n"}, attaching.SlotDecision{Wait: true, Guards: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 3, OnNode: full}
			in.Guards = func(a *apiv1.AzVolumeAttachment) bool {
				for _, name := range test.kept {
					if a.Name == name {
						return true
					}
				}
				return false
			}
			got := attaching.Slots(in)
			got.Message = ""
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	me.Spec.Epoch = 2
	waits := attaching.Input{
		Now:          objects.Now,
		Attachment:   me,
		Volume:       objects.NewVolume(objects.Owned("n", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/n",
		HasFinalizer: true,
		Room:         attaching.SlotDecision{Wait: true, Guards: true},
	}
	if step := attaching.Next(waits); step.RequeueAfter == 0 || step.Reason != apiv1.ReasonWaitingForDiskSlot {
		t.Errorf("got reason %q, again after %s; want WaitingForDiskSlot and another look, because no event follows", step.Reason,
			step.RequeueAfter)
	}
}
