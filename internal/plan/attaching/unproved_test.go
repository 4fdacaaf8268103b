package attaching_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

var errAttach = provisioner.Errorf(provisioner.Unavailable, "the host did not attach the disk")

// reported is a report of a node, with the volume in a phase; "" for a report without it.
func reported(phase apiv1.StagePhase) *apiv1.AzDriverNode {
	if phase == "" {
		return objects.Report("a")
	}
	r := objects.Report("a", "vol")
	r.Status.StagedVolumes[0].Phase = phase
	return r
}

func attachingInput(a *apiv1.AzVolumeAttachment) attaching.Input {
	return attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
	}
}

func endedJob(w operation.Work, truth operation.Truth, err error) operation.Job {
	return operation.Job{Work: w, Phase: operation.PhaseEnded, Ended: objects.Now, Truth: truth, Err: err}
}

// stagedUnder is the report of a node that staged the volume under an epoch.
func stagedUnder(epoch int64) *apiv1.AzDriverNode {
	r := reported(apiv1.PhaseStaged)
	r.Status.StagedVolumes[0].Epoch = epoch
	return r
}

// An attach whose operation had failed became Attached, because the VM listed the disk as it lists
// each disk that it is to have. The node waited for a device that did not come.
func TestTheListOfAVMDoesNotProveAnAttachThatFailed(t *testing.T) {
	t.Parallel()
	listed := operation.Truth{VMID: "/vm/a", Attached: true, LUN: 3}
	for name, test := range map[string]struct {
		truth  operation.Truth
		report *apiv1.AzDriverNode
		state  apiv1.AttachmentState
		lun    bool // is recorded
	}{
		"the VM lists the disk":     {listed, reported(""), apiv1.AttachmentFailed, true},
		"there is no report":        {listed, nil, apiv1.AttachmentFailed, true},
		"the node waits for it":     {listed, reported(apiv1.PhaseStaging), apiv1.AttachmentFailed, true},
		"the node has found it":     {listed, stagedUnder(2), apiv1.AttachmentAttached, true},
		"the node found it before":  {listed, stagedUnder(1), apiv1.AttachmentFailed, true},
		"it is being detached":      {operation.Truth{Attached: true, Detaching: true}, reported(""), apiv1.AttachmentFailed, false},
		"the VM does not list it":   {operation.Truth{}, reported(""), apiv1.AttachmentFailed, false},
		"the list cannot be read":   {operation.Truth{VMID: "/vm/a"}, reported(""), apiv1.AttachmentFailed, false},
		"not listed, though staged": {operation.Truth{}, reported(apiv1.PhaseStaged), apiv1.AttachmentFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attachingInput(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching))
			in.Job = endedJob(operation.WorkAttach, test.truth, errAttach)
			if attaching.NeedsReport(in) {
				in.Report = test.report
			}
			withoutVolume := in
			withoutVolume.Volume = nil
			for _, in := range []attaching.Input{in, withoutVolume} {
				if got := attaching.Next(in).Status; got.State != test.state || (got.LUN != nil) != test.lun {
					t.Errorf("got %s at LUN %v, want %s and a LUN: %t", got.State, got.LUN, test.state, test.lun)
				}
			}
		})
	}
}

// All attachments of a multi-node volume have one epoch, so an entry may be about an attach before.
func TestAnEntryOfAMultiNodeVolumeDoesNotProveAnAttachThatFailed(t *testing.T) {
	t.Parallel()
	in := attachingInput(objects.NewAttachment("a", apiv1.RolePrimary, ownership.MultiNodeEpoch, apiv1.AttachmentAttaching))
	in.Volume.Spec.Access = apiv1.AccessMultiNode
	in.Job = endedJob(operation.WorkAttach, operation.Truth{VMID: "/vm/a", Attached: true, LUN: 3}, errAttach)
	in.Report = stagedUnder(ownership.MultiNodeEpoch)
	if got := attaching.Next(in).Status.State; got != apiv1.AttachmentFailed {
		t.Errorf("got %s, want %s", got, apiv1.AttachmentFailed)
	}
}

func TestADiskWhoseAttachFailedIsDetachedAndAttachedAgain(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)
	a.Status.Conditions = []metav1.Condition{{
		Type: apiv1.AttachmentConditionAttached, Status: metav1.ConditionFalse, LastTransitionTime: *objects.Ago(8 * time.Second),
	}}
	in := attachingInput(a)
	in.Job = endedJob(operation.WorkAttach, operation.Truth{Attached: true}, errAttach)
	in.Report = reported("")
	next := func(what string, want operation.Work) attaching.Step {
		t.Helper()
		step := attaching.Next(in)
		if step.Start != want {
			t.Fatalf("%s: got work %q, want %q", what, step.Start, want)
		}
		a.Status, in.Job = step.Status, operation.Job{}
		return step
	}
	next("the attach failed", operation.WorkNone)
	if left := next("a moment later", operation.WorkNone).RequeueAfter; left < 7*time.Second {
		t.Errorf("got a further try in %s, want it after as long as the failures have lasted", left)
	}
	in.Now = objects.Now.Add(9 * time.Second)
	next("after the pause", operation.WorkDetach)
	in.Job = operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseAccepted, Tokens: []string{"t"}}
	next("during the detach", operation.WorkNone)
	in.Job = endedJob(operation.WorkDetach, operation.Truth{}, errAttach)
	next("the detach failed", operation.WorkNone)
	in.Now = in.Now.Add(time.Minute)
	next("after another pause", operation.WorkDetach)
	in.Job = endedJob(operation.WorkDetach, operation.Truth{}, nil)
	if got := next("the detach succeeded", operation.WorkNone).Status; got.State != apiv1.AttachmentPending || got.LUN != nil {
		t.Errorf("got %s at LUN %v after the detach, want Pending and no LUN", got.State, got.LUN)
	}
	next("the disk is off", operation.WorkAttach)
}

// A disk whose last detach had failed was never attached to that VM again: Azure refuses each attach
// until another detach succeeds, and a driver that had not sent the first one sent none.
func TestADiskThatIsStillBeingDetachedIsDetachedFirst(t *testing.T) {
	t.Parallel()
	refused := provisioner.Errorf(provisioner.Conflict, "the last detach has failed")
	refused.StillDetaching = true
	for name, test := range map[string]struct {
		truth  operation.Truth
		err    error
		report *apiv1.AzDriverNode
		want   operation.Work
	}{
		"the VM does not list it":      {operation.Truth{}, refused, reported(""), operation.WorkDetach},
		"the VM lists it as detaching": {operation.Truth{Attached: true, Detaching: true}, nil, reported(""), operation.WorkDetach},
		"the attach failed afterwards": {operation.Truth{Attached: true, Detaching: true}, errAttach, reported(""), operation.WorkDetach},
		"the node has it staged":       {operation.Truth{}, refused, reported(apiv1.PhaseStaged), operation.WorkAttach},
		"another conflict": {operation.Truth{}, provisioner.Errorf(provisioner.Conflict, "another operation"), reported(""),
			operation.WorkAttach},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)
			in := attachingInput(a)
			in.Job = endedJob(operation.WorkAttach, test.truth, test.err)
			step := attaching.Next(in)
			if step.Start != operation.WorkNone || step.Status.State != apiv1.AttachmentFailed {
				t.Fatalf("after the attach: got %s and work %q, want AttachmentFailed and none", step.Status.State, step.Start)
			}
			a.Status, in.Job, in.Now = step.Status, operation.Job{}, objects.Now.Add(time.Minute)
			if attaching.NeedsReport(in) {
				in.Report = test.report
			}
			if got := attaching.Next(in).Start; got != test.want {
				t.Fatalf("after the pause: got work %q, want %q", got, test.want)
			}
			if test.want != operation.WorkDetach {
				return
			}
			in.Job = endedJob(operation.WorkDetach, operation.Truth{}, errAttach)
			a.Status, in.Job, in.Now = attaching.Next(in).Status, operation.Job{}, in.Now.Add(time.Hour)
			if got := attaching.Next(in).Start; got != operation.WorkDetach {
				t.Errorf("after a detach that failed: got work %q, want another one", got)
			}
			in.Job = endedJob(operation.WorkDetach, operation.Truth{}, nil)
			a.Status, in.Job = attaching.Next(in).Status, operation.Job{}
			if got := attaching.Next(in).Start; got != operation.WorkAttach {
				t.Errorf("after the detach: got work %q, want an attach", got)
			}
		})
	}
}

func TestADiskWhoseAttachFailedIsNotDetachedWhileItMayBeUsed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(in *attaching.Input)
		want   operation.Work
	}{
		"unused": {func(*attaching.Input) {}, operation.WorkDetach},
		"the node waits for the device": {func(in *attaching.Input) { in.Report = reported(apiv1.PhaseStaging) },
			operation.WorkDetach},
		"staged": {
			func(in *attaching.Input) { in.Report = reported(apiv1.PhaseStaged) }, operation.WorkAttach},
		"being unstaged": {
			func(in *attaching.Input) { in.Report = reported(apiv1.PhaseUnstaging) }, operation.WorkAttach},
		"there is no report":                      {func(in *attaching.Input) { in.Report = nil }, operation.WorkAttach},
		"another attachment names the VM":         {func(in *attaching.Input) { in.SharedWith = "v-b" }, operation.WorkAttach},
		"the node keeps another one from writing": {func(in *attaching.Input) { in.GuardsAgainst = "b" }, operation.WorkAttach},
		"a former leader may still send a detach": {func(in *attaching.Input) {
			in.LeadingSince, in.Overlap = objects.Now.Add(-time.Second), 10*time.Second
		}, operation.WorkNone},
		"it is being fenced": {func(in *attaching.Input) {
			in.Volume = objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
			in.NodeLost = true
		}, operation.WorkFence},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentFailed)
			a.Status.LUN, a.Status.Error = new(int32(3)), &apiv1.Error{Reason: "Unavailable",
				FailureTime: *objects.Ago(time.Hour)}
			in := attachingInput(a)
			in.Report = reported("")
			test.change(&in)
			if step := attaching.Next(in); step.Start != test.want {
				t.Errorf("got work %q, want %q", step.Start, test.want)
			}
		})
	}
}
