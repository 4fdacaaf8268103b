// Package attaching decides the next step of one AzVolumeAttachment: attach, detach, fence, wait
// for a proof, or wait for a slot at the VM.
package attaching

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Input is the input of Next, the decision about an attachment.
type Input struct {
	Now time.Time
	// LeadingSince is since when this process leads, and Overlap how long after that a former
	// leader may still send requests; 0 if there was none.
	LeadingSince time.Time
	Overlap      time.Duration
	Attachment   *apiv1.AzVolumeAttachment
	// Volume is nil if the AzVolume does not exist.
	Volume *apiv1.AzVolume
	// VMID of the node, as Identify has established it; "" if it has not, and then VMUnknown says
	// why.
	VMID      string
	VMUnknown string
	// SharedWith is the attachment of another node that names the same VM and for which the disk
	// remains attached there; see SharedVM. "" if there is none.
	SharedWith string
	// GuardsAgainst is the node for which the disk must stay attached here; see the function GuardsAgainst. It
	// matters only if the attachment may be detached.
	GuardsAgainst string
	// NodeLost says that the node's report will not come: two independent signals say so, or the
	// node does not exist.
	NodeLost bool
	// Alive says that the heartbeat of the node plug-in is fresh.
	Alive bool
	// NotReadySince is since when the Node is not Ready; zero if it is Ready.
	NotReadySince time.Time
	// UsedByPod says that a pod on the node uses the volume: also a pod that is being deleted, but
	// not a pod that has ended. It matters only if MayBeDeserted.
	UsedByPod bool
	// ReportProof is the proof in the node's report, if ownership.ReportCounts; nil if there is
	// none.
	ReportProof *apiv1.ReleaseProof
	// Report is the node's report about the VM that the attachment names, read at the API server;
	// nil if there is none, and unless NeedsReport.
	Report *apiv1.AzDriverNode
	// HasFinalizer says that the driver's finalizer is on the attachment.
	HasFinalizer bool
	// Room is the decision about a slot on the node and at the disk; used only before an attach.
	Room SlotDecision
	// Helpers are the nodes that can take the reservation of the disk from the attachment's node,
	// in the order in which they are asked; nil unless MayPreempt.
	Helpers []Helper
	// Job for the attachment in this process.
	Job operation.Job
	// Waiting is the reason why Azure has not accepted the job's request yet.
	Waiting provisioner.Waiting
}

// Step is the next step of an attachment. At most one of AddFinalizer, RemoveFinalizer, GiveWay and
// Start is set. Status is written, if it changed, before Start and after everything else.
type Step struct {
	AddFinalizer    bool
	RemoveFinalizer bool
	// GiveWay is the name of the replica to delete so that its slot becomes free.
	GiveWay string
	// Start is the work to start or, with a token in Resume, to continue.
	Start  operation.Work
	Resume string
	// ReadOnly says that Start reads the VM and detaches nothing.
	ReadOnly bool
	// Deserted says that Start is a fence that relies on the Node and its pods in the cache. Before
	// it acts, the caller decides again from the API server.
	Deserted bool
	// Ask is the helper to ask to take the reservation of the disk; "" for none. It is asked after
	// Start, which does not wait.
	Ask string
	// Status to write.
	Status apiv1.AzVolumeAttachmentStatus
	// RequeueAfter is when to look again even if nothing happens; 0 for never.
	RequeueAfter time.Duration
	// Reason and Message of the condition that the step sets, for event and log.
	Reason, Message string
}

// Next decides the next step of an attachment.
//
//	Pending ──▶ Attaching ──▶ Attached ──(deleted, proof)──▶ Detaching ──▶ gone
//	   ▲            │  ▲                                        │  ▲
//	   │            ▼  │                                        ▼  │
//	   └───── AttachmentFailed                            DetachmentFailed
//
// Of a volume that is paused it begins nothing at Azure. What needs no request to Azure goes on: proofs by a
// report, the reservation that a helper takes, and the end of what had begun before.
func Next(in Input) Step {
	s := next(in)
	if in.Volume == nil || s.Start == operation.WorkNone && s.GiveWay == "" {
		return s
	}
	if paused := annotation.Paused.Switched(in.Volume.Annotations); paused != "" {
		return pausedStep(in, paused)
	}
	return s
}

// pausedStep is the step of an attachment that would need a request to Azure, while its volume is paused. The
// reason of a failure remains, because the next try depends on it.
func pausedStep(in Input, why string) Step {
	s := Step{Status: *in.Attachment.Status.DeepCopy()}
	if s.Status.State == "" {
		s.Status.State = apiv1.AttachmentPending
	}
	if s.preempt(in); s.Reason == "" && s.Status.State != apiv1.AttachmentFailed {
		s.condition(in, conditionNow(in.Attachment), apiv1.ReasonVolumePaused, "the AzVolume has "+why)
	}
	return s
}

func next(in Input) Step {
	s := Step{Status: *in.Attachment.Status.DeepCopy()}
	switch {
	case ownership.Copied(in.Attachment):
		s.discardCopy(in)
	case in.Attachment.DeletionTimestamp != nil:
		s.leave(in)
	case !in.HasFinalizer:
		s.AddFinalizer = true
	case wantsFence(in) || ownership.Preempted(in.Attachment):
		s.fence(in)
		s.preempt(in)
	case fenced(in):
		// The disk remains detached until the ownership is released; then the object is deleted.
	default:
		s.attach(in)
	}
	_, wait := deserted(in)
	s.soon(wait)
	if in.Attachment.Status.State == "" && s.Status.State != "" &&
		meta.FindStatusCondition(s.Status.Conditions, apiv1.AttachmentConditionAttached) == nil {
		// The first step is a fence: the attachment was re-created, and names no VM.
		s.condition(in, metav1.ConditionUnknown, cmp.Or(s.Reason, apiv1.ReasonNotYetKnown), s.Message)
	}
	if s.Status.VMID != "" {
		s.Status.UID = in.Attachment.UID
	}
	s.Status.Exclusive = s.Status.Exclusive && s.Status.State == apiv1.AttachmentAttached
	return s
}

// discardCopy discards a status that was restored from a backup. The VM that it names may be
// another cluster's, from which this driver must not detach the disk, and its proof may be about
// another cluster's node. What the attachment has at Azure is found as for an object that was
// restored without a status.
func (s *Step) discardCopy(in Input) {
	s.Status = apiv1.AzVolumeAttachmentStatus{}
	s.pending(in, apiv1.ReasonStatusRestored, "the status was recorded for another object, and is discarded: the attachment was restored from a backup")
}

// fenced reports whether the node was lost and the release of the ownership is not recorded yet. The
// proof exists, because wantsFence holds until then.
func fenced(in Input) bool {
	a := in.Attachment
	return a.Spec.Role == apiv1.RolePrimary && ownership.FenceDecided(in.Volume, a.Spec.NodeName)
}

// wantsFence reports whether the ownership is being released for a node that will not answer, or
// for one whose fence has begun and that may be Ready again since: that decision is carried out.
func wantsFence(in Input) bool {
	_, leaving := leavingSince(in)
	return in.Attachment.Spec.Role == apiv1.RolePrimary && leaving && unanswered(in)
}

// unanswered says of a volume that is being released whether the node's report is not waited for. It
// is waited for while the node plug-in is releasing the volume, also if the Node was deleted.
func unanswered(in Input) bool {
	is, _ := deserted(in)
	return is || in.NodeLost && flushing(in) == 0 || fenceBegun(in.Attachment) ||
		ownership.FenceDecided(in.Volume, in.Attachment.Spec.NodeName)
}

func (s *Step) attach(in Input) {
	a := in.Attachment
	if in.Job.Phase == operation.PhaseEnded && in.Job.Work == operation.WorkAttach {
		s.attachEnded(in)
		return
	}
	if in.Job.Running() {
		s.attachRunning(in)
		return
	}
	if AttachUnproved(a) {
		s.undoAttach(in)
		return
	}
	if a.Status.State == apiv1.AttachmentAttached && a.Status.VMID == "" {
		// The status was edited, or written after it had been lost. Without the VM nothing can
		// compare the LUN with what Azure lists. Attaching a disk that is attached changes nothing.
		s.Status.LUN = nil
		s.pending(in, apiv1.ReasonVMUnrecorded,
			"the status says Attached and names no VM; the disk is attached again to record the VM and the LUN")
		return
	}
	if a.Status.State == apiv1.AttachmentAttached {
		s.attached(in, a.Status.LUN)
		return
	}
	if a.Status.State == apiv1.AttachmentAttaching && a.Status.VMID != "" && in.Volume != nil {
		// Begun by a process that has ended, or just before this.
		s.Start = operation.WorkAttach
		if op := a.Status.Operation; op != nil && op.Type == string(operation.WorkAttach) {
			s.Resume = op.ResumeToken
		}
		return
	}
	if a.Status.State == apiv1.AttachmentFailed && a.Status.ObservedGeneration == a.Generation && a.Status.Error != nil {
		wait := max(operation.RetryIn(failingSince(a), a.Status.Error.FailureTime.Time, in.Now), yieldingFor(a, in.Now))
		if disk.DiskDiffers(in.Volume, a) {
			wait = operation.Remaining(operation.FirstRetry, a.Status.Error.FailureTime.Time, in.Now)
		}
		if wait > 0 {
			s.RequeueAfter = wait
			return
		}
	}
	s.begin(in)
}

func (s *Step) begin(in Input) {
	switch {
	case in.Attachment.Spec.Role == apiv1.RolePrimary && ownership.ProvedReleased(in.Volume, in.Attachment):
		// The ownership is released, and the controller is about to delete the object or to make it
		// a replica. If the disk were attached before that, a node that was fenced could write to
		// it again.
	case in.Volume == nil:
		s.pending(in, apiv1.ReasonVolumeNotReady, "there is no AzVolume "+in.Attachment.Spec.VolumeName)
	case in.Volume.Status.DiskID == "" || !diskUsable(in.Volume, in.Now):
		s.pending(in, apiv1.ReasonVolumeNotReady, fmt.Sprintf("the volume is %s", in.Volume.Status.State))
		s.RequeueAfter = operation.Sooner(s.RequeueAfter, disk.Changing(in.Volume, in.Now))
	case in.VMID == "":
		s.pending(in, apiv1.ReasonNodeUnknown, in.VMUnknown)
		s.RequeueAfter = operation.LastRetry
	case in.Room.GiveWay != "":
		s.GiveWay = in.Room.GiveWay
		s.pending(in, apiv1.ReasonWaitingForDiskSlot, "replica "+in.Room.GiveWay+" is deleted to free its slot")
	case in.Room.Wait:
		s.pending(in, apiv1.ReasonWaitingForDiskSlot, in.Room.Message)
		if in.Room.Guards {
			s.RequeueAfter = guardRetry
		}
	case in.Room.Full:
		s.failed(in, apiv1.AttachmentFailed, apiv1.ReasonNoDiskSlot,
			provisioner.Errorf(provisioner.InsufficientCapacity, "%s", in.Room.Message))
	default:
		s.Start = operation.WorkAttach
		s.Status.State = apiv1.AttachmentAttaching
		s.Status.VMID = in.VMID
		s.Status.Operation = nil
		s.Status.LUN = nil
		s.condition(in, metav1.ConditionFalse, apiv1.ReasonDiskAttaching, "asking Azure to attach the disk")
	}
}

func diskUsable(v *apiv1.AzVolume, now time.Time) bool {
	switch v.Status.State {
	case apiv1.VolumeCreated, apiv1.VolumeUpdateFailed:
		return !v.Leaving()
	case apiv1.VolumeUpdating:
		// After that, Azure decides whether the disk can be attached already.
		return !v.Leaving() && v.Status.Operation != nil && disk.Changing(v, now) == 0
	default:
		return false
	}
}

func (s *Step) attachRunning(in Input) {
	if in.Job.Work != operation.WorkAttach {
		return
	}
	s.Status.State = apiv1.AttachmentAttaching
	if op := in.Job.Operation(); op != nil {
		s.Status.Operation = operation.KeepStartTime(s.Status.Operation, op)
		s.Status.Error = nil
		s.condition(in, metav1.ConditionFalse, apiv1.ReasonDiskAttaching, "Azure has accepted to attach the disk")
		return
	}
	s.tellWaiting(in, apiv1.ReasonDiskAttaching)
}

func (s *Step) attachEnded(in Input) {
	truth, err := in.Job.Truth, in.Job.Err
	s.Status.VMID = cmp.Or(s.Status.VMID, truth.VMID) // the status may have been lost after the VM was recorded
	switch {
	case truth.OtherClusterVM != "":
		s.usedElsewhere(in)
		return
	case attachProved(in):
		s.attached(in, &truth.LUN)
		s.Status.Exclusive = truth.Exclusive
		return
	case err == nil:
		err = provisioner.Errorf(provisioner.Conflict, "Azure completed the attach, but the disk is not attached to the VM")
	case truth.Attached && !truth.Detaching:
		s.Status.LUN = &truth.LUN
		reason := apiv1.ReasonDiskAttachFailed
		if truth.Unasked {
			reason = apiv1.ReasonCustodyUnknown
		}
		s.failed(in, apiv1.AttachmentFailed, reason, err)
		return
	}
	if provisioner.KindOf(err) == provisioner.InsufficientCapacity && (in.Room.GiveWay != "" || in.Room.Wait) {
		s.GiveWay = in.Room.GiveWay
		s.pending(in, apiv1.ReasonWaitingForDiskSlot, "Azure has no free slot; a replica is deleted to free one")
		return
	}
	reason := apiv1.ReasonDiskAttachFailed
	if stillDetaching(in.Job) {
		reason = apiv1.ReasonDiskStillDetaching
	}
	s.failed(in, apiv1.AttachmentFailed, reason, err)
}

func (s *Step) attached(in Input, lun *int32) {
	s.Status.State = apiv1.AttachmentAttached
	s.Status.Role = in.Attachment.Spec.Role
	s.Status.LUN = lun
	s.Status.Operation = nil
	s.Status.Error = nil
	if p := s.Status.Proof; p != nil && p.Epoch < in.Attachment.Spec.Epoch {
		s.Status.Proof = nil // from an earlier time as primary; users would read it as a current one
	}
	s.condition(in, metav1.ConditionTrue, apiv1.ReasonDiskAttached, "")
}

func (s *Step) pending(in Input, reason, message string) {
	s.Status.State = apiv1.AttachmentPending
	s.Status.Operation = nil
	s.Status.Error = nil
	s.condition(in, metav1.ConditionFalse, reason, message)
}

func (s *Step) failed(in Input, state apiv1.AttachmentState, reason string, err error) {
	s.Status.State = state
	s.Status.Operation = nil
	s.Status.Error = operation.Failure(err, decidedAt(in))
	s.condition(in, metav1.ConditionFalse, reason, s.Status.Error.Message)
	s.RequeueAfter = max(operation.RetryIn(failingSince(in.Attachment), s.Status.Error.FailureTime.Time, in.Now),
		operation.FirstRetry)
}

// decidedAt is the time that a status records: it is the same each time the status is derived from
// one job.
func decidedAt(in Input) time.Time {
	if in.Job.Phase == operation.PhaseEnded {
		return in.Job.Ended
	}
	return in.Now
}

func (s *Step) condition(in Input, status metav1.ConditionStatus, reason, message string) {
	message = operation.Shorten(message)
	s.Reason, s.Message = reason, message
	s.Status.ObservedGeneration = in.Attachment.Generation
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type:               apiv1.AttachmentConditionAttached,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: in.Attachment.Generation,
		LastTransitionTime: metav1.NewTime(in.Now),
	})
}

// failingSince is when the attachment was last known to be without failure.
func failingSince(a *apiv1.AzVolumeAttachment) time.Time {
	if c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached); c != nil {
		return c.LastTransitionTime.Time
	}
	return a.CreationTimestamp.Time
}
