package attaching

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// DesertedGrace is how long the release of a volume must have lasted, and the Node must have been
// not Ready, before the driver fences a volume that no pod on that node uses. It covers the
// kubelet's status period of 10 s, so that a kubelet that is running again has reported, and the
// second or two in which a kubelet that works, although its Node is not Ready, unmounts and the
// node plug-in reports.
const DesertedGrace = 15 * time.Second

// FlushPatience is how long after the begin of the release a fence waits for a node that is
// releasing the volume: it unmounts and flushes what was not written yet. That takes minutes if much
// is dirty. It is bounded because a flush can hang.
const FlushPatience = 5 * time.Minute

// NeedsReport reports whether the decision about an attachment needs Input.Report.
func NeedsReport(in Input) bool {
	_, leaving := leavingSince(in)
	return unprovedNow(in) || in.Alive && leaving && (in.NodeLost || !in.NotReadySince.IsZero())
}

// reports reports whether the node reports the volume in a phase.
func reports(in Input, phase apiv1.StagePhase) bool {
	return reported(in, func(entry apiv1.StagedVolume) bool { return entry.Phase == phase })
}

// reported reports whether the node's report has an entry of the volume for which is holds.
func reported(in Input, is func(apiv1.StagedVolume) bool) bool {
	return in.Report != nil && slices.ContainsFunc(in.Report.Status.StagedVolumes, func(entry apiv1.StagedVolume) bool {
		return entry.VolumeName == in.Attachment.Spec.VolumeName && is(entry)
	})
}

// flushing returns for how long a fence still waits because the node plug-in lives and is releasing
// the volume; 0 if it does not wait.
func flushing(in Input) time.Duration {
	if !in.Alive || !reports(in, apiv1.PhaseUnstaging) {
		return 0
	}
	since, _ := leavingSince(in)
	return operation.Remaining(FlushPatience, since, in.Now)
}

// deserted reports whether the report of a node will not come although its node plug-in may run:
// the volume is being released, Kubernetes has lost the kubelet, which alone calls the plug-in to
// unmount, no pod there uses the volume, and the plug-in is not releasing it. wait is how long until
// the grace or the patience ends, if only time is missing.
func deserted(in Input) (is bool, wait time.Duration) {
	since, leaving := leavingSince(in)
	if !leaving || in.NotReadySince.IsZero() || in.UsedByPod {
		return false, 0
	}
	wait = max(operation.Remaining(DesertedGrace, since, in.Now), operation.Remaining(DesertedGrace, in.NotReadySince, in.Now),
		flushing(in))
	return wait == 0, wait
}

// leavingSince returns since when the release of the volume by the attachment's node has been
// recorded. leaving is false, and the time zero, if it is not being released, and if there is a proof
// already.
func leavingSince(in Input) (since time.Time, leaving bool) {
	a := in.Attachment
	if ownership.ProvedReleased(in.Volume, a) {
		return time.Time{}, false
	}
	if ownership.OwnedBy(in.Volume, a.Spec.NodeName) {
		primary := in.Volume.Status.Primary
		if primary.State != apiv1.OwnershipReleasing {
			return time.Time{}, false
		}
		if primary.LastTransitionTime != nil {
			since = primary.LastTransitionTime.Time
		}
		return since, true
	}
	if a.DeletionTimestamp == nil {
		return time.Time{}, false
	}
	return a.DeletionTimestamp.Time, true
}

// MayBeDeserted reports whether it matters if a pod uses the volume on the attachment's node.
func MayBeDeserted(in Input) bool {
	_, leaving := leavingSince(in)
	return leaving && !in.NotReadySince.IsZero() && !in.NodeLost && !fenceBegun(in.Attachment)
}

// fenceBegun reports whether an attachment without a proof records a fence: the forced detach may be
// in flight, so it is carried out even if the node is Ready again. A plain detach, which has the same
// state, begins only after the proof.
func fenceBegun(a *apiv1.AzVolumeAttachment) bool {
	return a.Status.State == apiv1.AttachmentDetaching
}

// fenceReason says why a fence begins, for the user.
func fenceReason(in Input) string {
	if is, _ := deserted(in); !is || in.NodeLost || ownership.FenceDecided(in.Volume, in.Attachment.Spec.NodeName) {
		return "the node does not answer; asking Azure for a proof that the node cannot write any more"
	}
	return fmt.Sprintf("node %s is not Ready since %s, and no pod there uses the volume; asking Azure for a proof that the node cannot write any more",
		in.Attachment.Spec.NodeName, in.NotReadySince.UTC().Format(time.RFC3339))
}
