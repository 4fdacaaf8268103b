package attaching_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// edit changes an input.
type edit = func(*attaching.Input)

// on edits the attachment of an input.
func on(change func(a *apiv1.AzVolumeAttachment)) edit {
	return func(in *attaching.Input) { change(in.Attachment) }
}

// failing is the last error of an attachment, of this moment.
func failing(kind provisioner.Kind) edit {
	return on(func(a *apiv1.AzVolumeAttachment) {
		a.Status.Error = &apiv1.Error{Reason: string(kind), FailureTime: *objects.Ago(0)}
	})
}

// reasoned gives an attachment a condition that has been False for a time.
func reasoned(reason string, since time.Duration) edit {
	return on(func(a *apiv1.AzVolumeAttachment) {
		a.Status.Conditions = []metav1.Condition{{Type: apiv1.AttachmentConditionAttached, Status: metav1.ConditionFalse,
			Reason: reason, LastTransitionTime: *objects.Ago(since)}}
	})
}

func recorded(w operation.Work, token string) edit {
	return on(func(a *apiv1.AzVolumeAttachment) { withOperation(a, w, token) })
}

func accepted(w operation.Work, token string) edit {
	return func(in *attaching.Input) {
		in.Job = operation.Job{Work: w, Phase: operation.PhaseAccepted, Tokens: []string{token}, Accepted: objects.Now}
	}
}

func endedWork(w operation.Work, truth operation.Truth, err error) edit {
	return func(in *attaching.Input) { in.Job = endedJob(w, truth, err) }
}

func deletedNow(in *attaching.Input)   { objects.Deleted(in.Attachment) }
func proved(in *attaching.Input)       { objects.Proved(in.Attachment, apiv1.ProofUnstaged) }
func lostNode(in *attaching.Input)     { in.NodeLost = true }
func noVolume(in *attaching.Input)     { in.Volume = nil }
func noVM(in *attaching.Input)         { in.VMID = "" }
func noRecordedVM(in *attaching.Input) { in.Attachment.Status.VMID = "" }
func shared(in *attaching.Input)       { in.SharedWith = "vol-b" }
func guards(in *attaching.Input)       { in.GuardsAgainst = "c" }
func helperIsIdle(in *attaching.Input) { in.Helpers = []attaching.Helper{{NodeName: "b"}} }
func releases(in *attaching.Input) {
	in.Volume = objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
}
func failoverActs(in *attaching.Input)  { in.Volume.Status.Primary.Cause = apiv1.CauseNodeLost }
func newVM(in *attaching.Input)         { in.Attachment.Status.VMID = "/vm/former" }
func isUnproved(in *attaching.Input)    { in.Attachment.Status.LUN = new(int32(3)) }
func roomWaits(in *attaching.Input)     { in.Room.Wait = true }
func roomByReplica(in *attaching.Input) { in.Room.GiveWay = "r" }

func notReadyFor(d time.Duration) edit {
	return func(in *attaching.Input) { in.NotReadySince = objects.Now.Add(-d) }
}

// given is the input for the primary of epoch 2 at node a, which holds the volume.
func given(state apiv1.AttachmentState, edits ...edit) attaching.Input {
	in := attachingInput(objects.NewAttachment("a", apiv1.RolePrimary, 2, state))
	for _, e := range edits {
		e(&in)
	}
	return in
}

// summary is what a step does: the work with its token, the state, and the reason of the condition.
func summary(s attaching.Step) string {
	done := []string{string(s.Start) + s.Resume}
	if s.ReadOnly {
		done = append(done, "reads")
	}
	done = append(done, string(s.Status.State), s.Reason)
	if s.RemoveFinalizer {
		done = append(done, "removed")
	}
	if s.Start == operation.WorkNone && s.Status.Operation != nil {
		done = append(done, s.Status.Operation.ResumeToken)
	}
	if s.Ask != "" {
		done = append(done, "asks", s.Ask)
	}
	if s.GiveWay != "" {
		done = append(done, "takes", s.GiveWay)
	}
	return strings.Join(slices.DeleteFunc(done, func(s string) bool { return s == "" }), " ")
}

type nextTest struct {
	in   attaching.Input
	want string
}

func checkNext(t *testing.T, tests map[string]nextTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := summary(attaching.Next(test.in)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheNextStepOfAnAttach(t *testing.T) {
	t.Parallel()
	const attached, begun, failed = apiv1.AttachmentAttached, apiv1.AttachmentAttaching, apiv1.AttachmentFailed
	ends := func(truth operation.Truth, err error) edit { return endedWork(operation.WorkAttach, truth, err) }
	noSlot := ends(operation.Truth{}, provisioner.Errorf(provisioner.InsufficientCapacity, "no slot"))
	refused := ends(operation.Truth{}, errAttach)
	listed := ends(operation.Truth{Attached: true}, errAttach)
	unproved := func(more ...edit) attaching.Input {
		in := given(failed, append([]edit{isUnproved}, more...)...)
		in.Report = reported("")
		return in
	}
	replica := on(func(a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica })
	noDisk := func(in *attaching.Input) { in.Volume.Status.DiskID = "" }
	changed := on(func(a *apiv1.AzVolumeAttachment) { a.Generation = 2 })
	staging := func(in *attaching.Input) {
		in.Report = stagedUnder(2)
		in.Report.Status.StagedVolumes[0].Phase = apiv1.PhaseStaging
	}
	checkNext(t, map[string]nextTest{
		"a new attachment is attached":        {given(""), "AttachDisk Attaching DiskAttaching"},
		"an attach that was begun goes on":    {given(begun), "AttachDisk Attaching"},
		"its operation is resumed":            {given(begun, recorded("AttachDisk", ":t")), "AttachDisk:t Attaching"},
		"a detach is not resumed as attach":   {given(begun, recorded("DetachDisk", ":t")), "AttachDisk Attaching"},
		"its VM was lost":                     {given(begun, noRecordedVM, noVM), "Pending NodeUnknown"},
		"it failed without a recorded error":  {given(failed), "AttachDisk Attaching DiskAttaching"},
		"it failed just now":                  {given(failed, failing(provisioner.Conflict)), "AttachmentFailed"},
		"a fence had failed":                  {given("Detaching", failing("Conflict")), "AttachDisk Attaching DiskAttaching"},
		"a created volume names no disk":      {given("", noDisk), "Pending VolumeNotReady"},
		"no slot, and a replica gives way":    {given(begun, noSlot, roomByReplica), "Pending WaitingForDiskSlot takes r"},
		"no slot, and one is being freed":     {given(begun, noSlot, roomWaits), "Pending WaitingForDiskSlot"},
		"no slot, and none can be freed":      {given(begun, noSlot), "AttachmentFailed DiskAttachFailed"},
		"another refusal takes no replica":    {given(begun, refused, roomByReplica), "AttachmentFailed DiskAttachFailed"},
		"it succeeded without the disk":       {given(begun, ends(operation.Truth{}, nil)), "AttachmentFailed DiskAttachFailed"},
		"the node still waits for the device": {given(begun, listed, staging), "AttachmentFailed DiskAttachFailed"},
		"only a primary is fenced":            {given(attached, releases, lostNode, replica), "Attached DiskAttached"},
		"an unproved attach is undone":        {unproved(), "DetachDisk AttachmentFailed"},
		"at once for a changed spec":          {unproved(changed, failing("Conflict")), "DetachDisk AttachmentFailed"},
		"later after a refusal of Azure":      {unproved(failing("FailedPrecondition")), "AttachmentFailed"},
	})
}

func TestTheNextStepOfADetach(t *testing.T) {
	t.Parallel()
	const attached, detaching, begun = apiv1.AttachmentAttached, apiv1.AttachmentDetaching, "Detaching DiskDetaching"
	leaving := func(state apiv1.AttachmentState, edits ...edit) attaching.Input {
		return given(state, append([]edit{deletedNow, proved}, edits...)...)
	}
	noFinalizer := func(in *attaching.Input) { in.HasFinalizer = false }
	refused := endedWork(operation.WorkDetach, operation.Truth{}, errAttach)
	reports := func(in *attaching.Input) { in.ReportProof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 2} }
	checkNext(t, map[string]nextTest{
		"a disk that the node has released":   {leaving(attached), "DetachDisk " + begun},
		"a proof comes with the report":       {given(attached, deletedNow, releases, reports), "Attached WaitingForProof"},
		"an object without the finalizer":     {leaving(attached, noFinalizer), "Attached"},
		"no status":                           {leaving("", noRecordedVM), "DetachDisk " + begun},
		"no status, and no AzVolume":          {leaving("", noRecordedVM, noVolume), "DiskDetached removed"},
		"its operation is resumed":            {leaving(detaching, recorded("DetachDisk", ":t")), "DetachDisk:t " + begun},
		"its acceptance is recorded":          {leaving(detaching, accepted("DetachDisk", "t")), "Detaching t"},
		"another job of it runs":              {leaving(attached, accepted("FenceNode", "t")), "Attached"},
		"its fence failed just now":           {leaving(detaching, failing("Conflict")), "DetachDisk " + begun},
		"Azure refuses it":                    {leaving(detaching, refused), "DetachmentFailed DiskDetachFailed"},
		"another attachment names the VM":     {leaving(attached, shared), "Attached DiskDetached removed"},
		"and its detach runs":                 {leaving(detaching, shared, accepted("DetachDisk", "t")), "Detaching t"},
		"the node guards":                     {leaving(attached, guards, noVM), "Attached GuardsFencedNode"},
		"the node guards, and no VM is known": {leaving("", guards, noVM, noRecordedVM), "DiskDetached removed"},
		"the node guards by another's VM":     {leaving(attached, guards, shared), "Attached DiskDetached removed"},
	})
	for waits, want := range map[provisioner.WaitingFor]time.Duration{
		"": 3 * time.Second, provisioner.WaitingForQuota: time.Second,
	} {
		in := leaving(detaching)
		in.Job = operation.Job{Work: operation.WorkDetach, Phase: operation.PhaseBegun}
		in.Waiting = provisioner.Waiting{For: waits, Since: objects.Now.Add(-2 * time.Second)}
		if got := attaching.Next(in).RequeueAfter; got != want {
			t.Errorf("a detach that waits for %q: got the next look in %s, want %s", waits, got, want)
		}
	}
}

func TestTheNextStepOfAFence(t *testing.T) {
	t.Parallel()
	const attached, failed, begins = apiv1.AttachmentAttached, apiv1.AttachmentFailed, "FenceNode Detaching VolumeFencing"
	fence := func(edits ...edit) attaching.Input {
		return given(attached, append([]edit{releases, failoverActs, lostNode}, edits...)...)
	}
	ends := func(truth operation.Truth, err error) edit { return endedWork(operation.WorkFence, truth, err) }
	off, onlyRead := operation.Truth{Epoch: 2}, operation.Truth{Epoch: 2, OnlyRead: true, Attached: true}
	earlier := onlyRead
	earlier.Epoch = 1
	former := on(func(a *apiv1.AzVolumeAttachment) { a.Status.Proof = &apiv1.ReleaseProof{Epoch: 1} })
	answered := func(in *attaching.Input) {
		in.Helpers = []attaching.Helper{helper(asked("b", 0)).answered(reservationKey)}
	}
	never := on(func(a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0 })
	multi := func(in *attaching.Input) {
		in.Volume = objects.NewVolume(objects.NeverOwned, func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode })
		in.Attachment.Finalizers = []string{apiv1.FinalizerFenced}
	}
	flushes := func(in *attaching.Input) { in.Report = reported(apiv1.PhaseUnstaging) }
	flushesAnother := func(in *attaching.Input) {
		in.Alive, in.Report = true, reported(apiv1.PhaseUnstaging)
		in.Report.Status.StagedVolumes[0].VolumeName = "other"
	}
	checkNext(t, map[string]nextTest{
		"a lost node":                          {fence(), begins},
		"one whose attachment is deleted":      {fence(deletedNow, helperIsIdle), "FenceNode Detaching VolumeFencing asks b"},
		"one of a multi-node volume":           {given(attached, multi, deletedNow), begins},
		"no AzVolume":                          {given(attached, noVolume, noVM, deletedNow, never, lostNode), begins},
		"another attachment names the VM":      {fence(shared), begins},
		"another volume is flushed":            {given(attached, releases, lostNode, flushesAnother), begins},
		"an unproved attach at a dead node":    {given(failed, releases, lostNode, isUnproved, flushes), begins},
		"a helper can be asked":                {fence(helperIsIdle), "FenceNode Detaching VolumeFencing asks b"},
		"a former proof asks none the less":    {fence(former, helperIsIdle), "FenceNode Detaching VolumeFencing asks b"},
		"the disk is off, and no one is asked": {fence(ends(off, nil), helperIsIdle), "Pending VolumeFenced"},
		"a helper answered":                    {fence(answered), "FenceNode Detaching VolumeFenced"},
		"the node guards":                      {fence(guards), "FenceNode reads Attached GuardsFencedNode"},
		"its VM was read":                      {fence(guards, ends(onlyRead, nil)), "Attached GuardsFencedNode"},
		"it was read for an earlier epoch":     {fence(guards, ends(earlier, nil)), "FenceNode reads Attached GuardsFencedNode"},
		"its VM cannot be read":                {fence(guards, ends(onlyRead, errAttach)), "Attached VolumeFencing"},
		"the node guards, and no VM is known":  {fence(guards, noRecordedVM), "Attached GuardsFencedNode"},
		"the node guards by another's VM":      {fence(guards, shared), "Attached GuardsFencedNode"},
		"the node guards, and another job runs": {fence(guards, accepted("AttachDisk", "t")),
			"Attached GuardsFencedNode"},
		"the node guards, and an attach is recorded": {fence(guards, recorded("AttachDisk", "t")),
			"FenceNode reads Attached GuardsFencedNode"},
	})
}

// Law 3: the deletion of its object does not take the volume from a node that holds it. Only a replica
// to a former VM of that node does not count.
func TestADeletedAttachmentOfTheOwner(t *testing.T) {
	t.Parallel()
	never := on(func(a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0 })
	owner := func(edits ...edit) attaching.Input {
		return given(apiv1.AttachmentAttached, append([]edit{deletedNow}, edits...)...)
	}
	const kept = "Attached PrimaryHeld"
	checkNext(t, map[string]nextTest{
		"a primary":                          {owner(lostNode), kept},
		"a primary to a former VM":           {owner(lostNode, newVM), kept},
		"a replica to a former VM":           {owner(lostNode, newVM, never), "FenceNode Detaching VolumeFencing"},
		"the node is not Ready":              {owner(notReadyFor(time.Hour), newVM, never), kept},
		"a replica to its VM":                {owner(lostNode, never), kept},
		"a replica, and the VM is not known": {owner(lostNode, newVM, never, noVM), kept},
	})
}

func TestWhenTheNextLookIsDue(t *testing.T) {
	t.Parallel()
	long := reasoned(apiv1.ReasonDiskAttachFailed, 20*time.Second)
	noToken := func(in *attaching.Input) {
		in.Job = operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseAccepted}
	}
	failed := apiv1.AttachmentFailed
	for name, test := range map[string]struct {
		in   attaching.Input
		want time.Duration
	}{
		"the grace ends before the next try": {given(failed, failing("Conflict"), long, releases, notReadyFor(5*time.Second)),
			10 * time.Second},
		"the next try is before the grace ends": {given(failed, failing("Conflict"), reasoned("", time.Second), releases,
			notReadyFor(5*time.Second)), time.Second},
		"an attach is accepted whose token is not known yet": {given(apiv1.AttachmentAttaching, noToken), 0},
		"a Node that is not Ready holds the volume":          {given(apiv1.AttachmentAttached, notReadyFor(time.Second)), 0},
	} {
		if got := attaching.Next(test.in).RequeueAfter; got != test.want {
			t.Errorf("%s: got the next look in %s, want %s", name, got, test.want)
		}
	}
}

func TestAFenceSaysWhyItBegins(t *testing.T) {
	t.Parallel()
	deserted := []edit{releases, notReadyFor(time.Hour), func(in *attaching.Input) {
		in.Volume.Status.Primary.LastTransitionTime = objects.Ago(time.Hour)
	}}
	ready := func(in *attaching.Input) { in.NotReadySince = time.Time{} }
	decided := on(func(a *apiv1.AzVolumeAttachment) { a.Finalizers = []string{apiv1.FinalizerFenced} })
	for name, test := range map[string]struct {
		more     []edit
		notReady bool // is the reason
		reads    bool // the caller reads Node and pods again
	}{
		"no pod uses it at a Node that is not Ready": {nil, true, true},
		"the node is lost":                           {[]edit{lostNode}, false, false},
		"the node is lost and Ready":                 {[]edit{lostNode, ready}, false, false},
		"the failover has decided":                   {[]edit{failoverActs}, false, false},
		"it has begun, and the Node is Ready again":  {[]edit{ready, on(isDetaching)}, false, false},
		"it has decided for a multi-node volume":     {[]edit{deletedNow, decided}, true, false},
	} {
		step := attaching.Next(given(apiv1.AttachmentAttached, append(deserted[:3:3], test.more...)...))
		got := strings.Contains(step.Message, "is not Ready since")
		if step.Start != operation.WorkFence || got != test.notReady {
			t.Errorf("%s: got work %q because %q, want a fence because of a Node that is not Ready: %t", name, step.Start,
				step.Message, test.notReady)
		}
		if step.Deserted != test.reads {
			t.Errorf("%s: got that the pods are read again: %t, want %t", name, step.Deserted, test.reads)
		}
	}
}

func TestWhatTheDecisionReads(t *testing.T) {
	t.Parallel()
	alive := func(in *attaching.Input) { in.Alive = true }
	notReady := notReadyFor(time.Hour)
	stillDetaching := provisioner.Errorf(provisioner.Conflict, "detaching")
	stillDetaching.StillDetaching = true
	ends := func(w operation.Work, attached bool, err error) edit {
		return endedWork(w, operation.Truth{Attached: attached}, err)
	}
	const attach, detach = operation.WorkAttach, operation.WorkDetach
	for name, test := range map[string]struct {
		edits        []edit
		report, pods bool
	}{
		"nothing happens":                         {nil, false, false},
		"a release by a Node that is not Ready":   {[]edit{releases, notReady, alive}, true, true},
		"the Node is Ready":                       {[]edit{releases, alive}, false, false},
		"the node is lost":                        {[]edit{releases, alive, lostNode}, true, false},
		"the node is lost and not Ready":          {[]edit{releases, alive, lostNode, notReady}, true, false},
		"the node plug-in is dead":                {[]edit{releases, notReady}, false, true},
		"the volume is held":                      {[]edit{notReady, alive}, false, false},
		"a fence has begun":                       {[]edit{releases, notReady, alive, on(isDetaching)}, true, false},
		"an attach failed, and the VM lists it":   {[]edit{ends(attach, true, errAttach)}, true, false},
		"an attach failed, and it is not there":   {[]edit{ends(attach, false, errAttach)}, false, false},
		"an attach failed because of a detach":    {[]edit{ends(attach, false, stillDetaching)}, true, false},
		"an attach succeeded":                     {[]edit{ends(attach, true, nil)}, false, false},
		"a detach failed, and the VM lists it":    {[]edit{ends(detach, true, errAttach)}, false, false},
		"an attach that failed before is unknown": {[]edit{isUnproved, on(hasFailed)}, true, false},
	} {
		in := given(apiv1.AttachmentAttached, test.edits...)
		if got := attaching.NeedsReport(in); got != test.report {
			t.Errorf("%s: got that the report is read: %t, want %t", name, got, test.report)
		}
		if got := attaching.MayBeDeserted(in); got != test.pods {
			t.Errorf("%s: got that the pods are read: %t, want %t", name, got, test.pods)
		}
	}
}

func isDetaching(a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentDetaching }
func hasFailed(a *apiv1.AzVolumeAttachment)   { a.Status.State = apiv1.AttachmentFailed }

// Users read the proof beside the attachment, and the time of an error decides about the next try.
func TestWhatAnEndedAttachRecords(t *testing.T) {
	t.Parallel()
	for epoch, kept := range map[int64]bool{1: false, 2: true} {
		in := given(apiv1.AttachmentAttaching, endedWork(operation.WorkAttach, operation.Truth{Attached: true}, nil))
		in.Attachment.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: epoch}
		if got := attaching.Next(in).Status.Proof; (got != nil) != kept {
			t.Errorf("a proof of epoch %d under epoch 2: got %+v, want it kept: %t", epoch, got, kept)
		}
	}
	in := given(apiv1.AttachmentAttaching, endedWork(operation.WorkAttach, operation.Truth{}, errAttach))
	in.Job.Ended = objects.Now.Add(-10 * time.Second)
	if got := attaching.Next(in).Status.Error.FailureTime.Time; !got.Equal(in.Job.Ended) {
		t.Errorf("got an error of %s, want the end of the job, %s", got, in.Job.Ended)
	}
}

func TestTheProofSaysWhereTheDiskWasSought(t *testing.T) {
	t.Parallel()
	for want, vm := range map[string]edit{"at the VM": newVM, "at no VM": noRecordedVM} {
		off := endedWork(operation.WorkFence, operation.Truth{Epoch: 2}, nil)
		in := given(apiv1.AttachmentDetaching, releases, lostNode, vm, off)
		if p := attaching.Next(in).Status.Proof; p == nil || !strings.Contains(p.Message, want) {
			t.Errorf("got proof %+v, want one that says %q", p, want)
		}
	}
}

func TestAReplicaIsNotCreatedAgainBeforeThePrimaryHasItsSlot(t *testing.T) {
	t.Parallel()
	waits, noSlot := reasoned(apiv1.ReasonWaitingForDiskSlot, 0), reasoned(apiv1.ReasonNoDiskSlot, 0)
	for name, test := range map[string]struct {
		in   attaching.Input
		want bool
	}{
		"it waits for a slot":   {given(apiv1.AttachmentPending, waits), true},
		"no slot can be freed":  {given(apiv1.AttachmentFailed, noSlot), true},
		"Azure has no slot":     {given(apiv1.AttachmentFailed, failing(provisioner.InsufficientCapacity)), true},
		"Azure does not answer": {given(apiv1.AttachmentFailed, failing(provisioner.Unavailable)), false},
		"it waits for its VM":   {given(apiv1.AttachmentPending, reasoned(apiv1.ReasonNodeUnknown, 0)), false},
		"it is new":             {given(""), false},
		"it is deleted":         {given(apiv1.AttachmentPending, waits, deletedNow), false},
		"it is attached":        {given(apiv1.AttachmentAttached, waits), false},
		"it is a replica": {given(apiv1.AttachmentPending, waits,
			on(func(a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica })), false},
	} {
		if got := attaching.WaitsForSlot(test.in.Attachment); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestADiskIsFullOnlyBecauseOfVMsThatNoAttachmentNames(t *testing.T) {
	t.Parallel()
	one := objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	for unrecorded, want := range map[int]bool{-1: false, 0: false, 1: false, 2: true, 3: true} {
		v := objects.NewVolume()
		if unrecorded >= 0 {
			v.Status.Disk = &apiv1.DiskReading{MaxShares: 3}
		}
		for i := range unrecorded {
			v.Status.Disk.UnrecordedVMs = append(v.Status.Disk.UnrecordedVMs, fmt.Sprintf("/vm/%d", i))
		}
		if got := attaching.DiskFull(v, one); got != want {
			t.Errorf("%d VMs beside the attachment, of 3 shares: got %t, want %t", unrecorded, got, want)
		}
	}
	if attaching.DiskFull(nil, one) {
		t.Error("got that the disk of no AzVolume is full, want that it is not known")
	}
	all := append(one[:1:1], objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached),
		objects.NewAttachment("c", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	if attaching.DiskFull(objects.NewVolume(func(v *apiv1.AzVolume) { v.Status.Disk = &apiv1.DiskReading{} }), all) {
		t.Error("got that a disk is full by its attachments alone, want that a replica can give its share")
	}
}
