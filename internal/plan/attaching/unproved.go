package attaching

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// AttachUnproved reports whether the last attach has failed, and the VM nevertheless lists the disk,
// at the LUN that the status records, or is still to lose it. The VM may not have the disk.
func AttachUnproved(a *apiv1.AzVolumeAttachment) bool {
	return a.Status.State == apiv1.AttachmentFailed && (a.Status.LUN != nil || reasonOf(a) == apiv1.ReasonDiskStillDetaching)
}

// stillDetaching reports whether an attach has failed because the disk is on its way off the VM. Azure
// gives one answer to two states: a detach is in flight, or the last one has failed, and then nothing
// attaches the disk there before another detach has succeeded.
func stillDetaching(job operation.Job) bool {
	return job.Truth.Detaching || provisioner.StillDetaching(job.Err)
}

// unprovedNow reports whether the attach is unproved, or becomes so unless the node has found the
// device.
func unprovedNow(in Input) bool {
	return AttachUnproved(in.Attachment) || in.Job.EndedAs(operation.WorkAttach) && in.Job.Err != nil &&
		(in.Job.Truth.Attached || stillDetaching(in.Job))
}

// attachProved reports whether the VM has the disk that it lists after an attach. The list alone
// proves nothing: it shows the disk from the acceptance of the attach on, also if the operation
// fails. The proof is the success of the operation, or a node that has found the device: it reports
// the volume as Staged under the epoch of the attachment. An entry of an earlier epoch is about an
// attach before, and so may every entry of a multi-node volume be, whose attachments have one epoch.
func attachProved(in Input) bool {
	truth := in.Job.Truth
	return truth.Attached && !truth.Detaching && (in.Job.Err == nil || foundBy(in))
}

func foundBy(in Input) bool {
	if in.Volume != nil && in.Volume.Spec.Access == apiv1.AccessMultiNode {
		return false
	}
	return reported(in, func(entry apiv1.StagedVolume) bool {
		return entry.Phase == apiv1.PhaseStaged && entry.Epoch == in.Attachment.Spec.Epoch
	})
}

// undoAttach detaches the disk of an attachment that is unproved, so that the next attach begins
// with a VM that does not list it. The disk is not detached while its device may be in use, while
// another attachment names the VM, or while the node keeps another node from writing: then the
// attach is repeated as it is, and only its success is a proof. A disk that a VM outside of this
// cluster has as well is detached at once.
func (s *Step) undoAttach(in Input) {
	a := in.Attachment
	if in.Job.EndedAs(operation.WorkDetach) {
		s.attachUndone(in)
		return
	}
	keep := reasonOf(a) == apiv1.ReasonCustodyUnknown || MayReattach(in.Report, a.Spec.VolumeName) != "" ||
		reports(in, apiv1.PhaseUnstaging) || in.SharedWith != "" || in.GuardsAgainst != ""
	if e := a.Status.Error; e != nil && a.Status.ObservedGeneration == a.Generation && (keep || !justRefused(a)) {
		if s.RequeueAfter = operation.RetryIn(failingSince(a), e.FailureTime.Time, in.Now); s.RequeueAfter > 0 {
			return
		}
	}
	if keep {
		s.begin(in)
		return
	}
	// A former leader may still send a detach, which must not come after the next attach.
	if s.RequeueAfter = operation.Remaining(in.Overlap, in.LeadingSince, in.Now); s.RequeueAfter == 0 {
		s.Start = operation.WorkDetach
	}
}

// attachUndone is the end of the detach of undoAttach.
func (s *Step) attachUndone(in Input) {
	elsewhere, reason := refusedElsewhere(in.Attachment), apiv1.ReasonDiskAttachFailed
	switch {
	case in.Job.Err != nil:
		if was := reasonOf(in.Attachment); elsewhere || was == apiv1.ReasonDiskStillDetaching {
			reason = was
		}
		s.failed(in, apiv1.AttachmentFailed, reason, in.Job.Err)
	case elsewhere:
		s.Status.LUN = nil // the next try waits as after any failure
	default:
		s.Status.LUN = nil
		s.pending(in, apiv1.ReasonDiskAttachFailed, "the last attach failed, and the disk was detached; attaching it again")
	}
}
