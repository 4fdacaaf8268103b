package attaching_test

import (
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// The kubelet of a node was dead and its node plug-in lived: the heartbeat was fresh, the report
// said that the volume is staged, and the driver waited for ever.
func TestAVolumeThatIsDesertedIsFenced(t *testing.T) {
	t.Parallel()
	grace := attaching.DesertedGrace
	owned := func(state apiv1.OwnershipState, since time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status.Primary = &apiv1.Ownership{
				NodeName:           "a",
				Epoch:              2,
				State:              state,
				Cause:              apiv1.CauseUnpublished,
				LastTransitionTime: objects.Ago(since),
			}
		}
	}
	multiNode := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	primary := func(change ...func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
		for _, c := range change {
			c(a)
		}
		return a
	}
	deletedFor := func(d time.Duration) func(*apiv1.AzVolumeAttachment) {
		return func(a *apiv1.AzVolumeAttachment) { a.DeletionTimestamp = objects.Ago(d) }
	}
	hasReported := func(a *apiv1.AzVolumeAttachment) { objects.Proved(a, apiv1.ProofUnstaged) }
	for name, test := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		volume     *apiv1.AzVolume
		notReady   time.Duration // 0 for a Node that is Ready
		used       bool
		start      operation.Work
		again      time.Duration
	}{
		"the grace is over": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, grace)), grace, false, operation.WorkFence, 0},
		"the release has lasted for too short a time": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, 5*time.Second)), time.Hour, false, operation.WorkNone,
			grace - 5*time.Second},
		"the Node has not been Ready for too short a time": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, time.Hour)), 2 * time.Second, false, operation.WorkNone,
			grace - 2*time.Second},
		"the Node is Ready": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, time.Hour)), 0, false, operation.WorkNone, 0},
		"a pod there uses it": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, time.Hour)), time.Hour, true, operation.WorkNone, 0},
		"law 3: the node holds its ownership": {primary(),
			objects.NewVolume(owned(apiv1.OwnershipHeld, time.Hour)), time.Hour, false, operation.WorkNone, 0},
		"the node has reported": {primary(hasReported),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, time.Hour)), time.Hour, false, operation.WorkNone, 0},
		"an attachment that is deleted while the ownership is being released": {primary(deletedFor(time.Hour)),
			objects.NewVolume(owned(apiv1.OwnershipReleasing, grace)), grace, false, operation.WorkFence, 0},
		"an attachment that is deleted while the ownership is held": {primary(deletedFor(time.Hour)),
			objects.NewVolume(owned(apiv1.OwnershipHeld, time.Hour)), time.Hour, false, operation.WorkNone, 0},
		"a node of a multi-node volume": {primary(deletedFor(grace)),
			objects.NewVolume(multiNode), grace, false, operation.WorkFence, 0},
		"a node of a multi-node volume, within the grace": {primary(deletedFor(5 * time.Second)),
			objects.NewVolume(multiNode), time.Hour, false, operation.WorkNone, grace - 5*time.Second},
		"a node of a multi-node volume, with a pod": {primary(deletedFor(time.Hour)),
			objects.NewVolume(multiNode), time.Hour, true, operation.WorkNone, 0},
		"a node of a multi-node volume that keeps it": {primary(), objects.NewVolume(multiNode),
			time.Hour, false, operation.WorkNone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.Input{
				Now:          objects.Now,
				Attachment:   test.attachment,
				Volume:       test.volume,
				VMID:         "/vm/a",
				HasFinalizer: true,
				UsedByPod:    test.used,
			}
			if test.notReady > 0 {
				in.NotReadySince = objects.Now.Add(-test.notReady)
			}
			step := attaching.Next(in)
			if step.Start == operation.WorkDetach {
				step.Start = operation.WorkNone // what follows a proof
			}
			if step.Start != test.start || step.RequeueAfter != test.again {
				t.Errorf("got %q, again in %s; want %q, again in %s", step.Start, step.RequeueAfter, test.start, test.again)
			}
			if step.Deserted != (test.start == operation.WorkFence) {
				t.Errorf("got Deserted %t; the API server has to be asked before a fence, and only then", step.Deserted)
			}
		})
	}
}

// The kubelet returned while the disk was being detached by force. If the disk were attached again
// at that time, a process there could see either state.
func TestAFenceContinuesAlthoughTheNodeIsReadyAgain(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*apiv1.AzVolumeAttachment{
		"an attachment": objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached),
		"an attachment that is being deleted": objects.Deleted(
			objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.Input{
				Now:           objects.Now,
				Attachment:    a,
				Volume:        objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
				VMID:          "/vm/a",
				HasFinalizer:  true,
				NotReadySince: objects.Now.Add(-time.Hour),
			}
			a.Status = attaching.Next(in).Status
			in.NotReadySince = time.Time{}
			if step := attaching.Next(in); step.Start != operation.WorkFence || step.Deserted {
				t.Errorf("a new process: got %q (from the API server again: %t), want the fence, without a further look",
					step.Start, step.Deserted)
			}
			in.Job = operation.Job{
				Work:  operation.WorkFence,
				Phase: operation.PhaseEnded,
				Ended: objects.Now,
				Truth: operation.Truth{Epoch: 2},
			}
			if p := attaching.Next(in).Status.Proof; p == nil || p.Type != apiv1.ProofDetached {
				t.Errorf("got proof %+v, want %s", p, apiv1.ProofDetached)
			}
			objects.Proved(a, apiv1.ProofUnstaged)
			if got := ownership.Demotion(objects.NewVolume(objects.Owned("", 2, apiv1.OwnershipReleased)), a,
				objects.Attachments(a)); got != ownership.Remove {
				t.Errorf("the node reported after all: got %s, want %s, because the disk may be off", got, ownership.Remove)
			}
		})
	}
}

// A node that shut down in good order was cut off in the middle of its flush: the fence went by the
// Node, its pods and the age of the release, and not by the report.
func TestAFenceWaitsForANodeThatIsReleasingTheVolume(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dead    bool // the heartbeat is stale
		deleted bool // the Node is
		decided bool // the failover has decided to fence the node
		report  *apiv1.AzDriverNode
		since   time.Duration
		fence   bool
	}{
		"it unmounts and flushes":              {report: reported(apiv1.PhaseUnstaging), since: time.Minute},
		"its Node was deleted":                 {report: reported(apiv1.PhaseUnstaging), since: time.Minute, deleted: true},
		"the volume is staged, without a call": {report: reported(apiv1.PhaseStaged), since: time.Minute, fence: true},
		"the same, and its Node was deleted": {report: reported(apiv1.PhaseStaged), since: time.Minute,
			deleted: true, fence: true},
		"the flush hangs": {report: reported(apiv1.PhaseUnstaging), since: attaching.FlushPatience,
			fence: true},
		"the flush hangs, the Node was deleted": {report: reported(apiv1.PhaseUnstaging), since: attaching.FlushPatience,
			deleted: true, fence: true},
		"the node plug-in is dead": {report: reported(apiv1.PhaseUnstaging), since: time.Minute, dead: true, fence: true},
		"there is no report":       {since: time.Minute, fence: true},
		"the fence was decided by the failover": {report: reported(apiv1.PhaseUnstaging), since: time.Minute,
			decided: true, fence: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attaching.Input{
				Now:        objects.Now,
				Attachment: objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached),
				Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing), func(v *apiv1.AzVolume) {
					v.Status.Primary.LastTransitionTime = objects.Ago(test.since)
					if test.decided {
						v.Status.Primary.Cause = apiv1.CauseNodeLost
					}
				}),
				VMID:          "/vm/a",
				HasFinalizer:  true,
				Alive:         !test.dead,
				NodeLost:      test.deleted,
				NotReadySince: objects.Now.Add(-time.Hour),
			}
			if test.deleted {
				in.NotReadySince = time.Time{}
			}
			if needs := attaching.NeedsReport(in); needs {
				in.Report = test.report
			}
			if step := attaching.Next(in); (step.Start == operation.WorkFence) != test.fence {
				t.Errorf("got work %q, want a fence: %t", step.Start, test.fence)
			}
		})
	}
}
