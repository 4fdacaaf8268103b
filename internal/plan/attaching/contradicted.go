package attaching

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// believedAfter is how long an attachment must have been attached before a contradiction by Azure
// counts: Azure's lists may be out of date.
const believedAfter = 30 * time.Second

// ContradictedByAzure reports whether an attachment is recorded as attached to the node's VM, and
// whether Azure lists its disk there under another LUN, or not at all: the disk was detached
// manually, or the VM was re-created under its name. A pod that was sent to that LUN could find
// another volume's disk there. seen is the disk as Azure listed it at the VM after the attachment
// was read, nil if it did not; the caller must ensure that the attachment has not changed since.
func ContradictedByAzure(a *apiv1.AzVolumeAttachment, vmID string, seen *provisioner.Attachment, now time.Time) bool {
	if a.DeletionTimestamp != nil || a.Status.State != apiv1.AttachmentAttached || a.Status.VMID == "" ||
		ownership.AttachedToAnotherVM(a, vmID) {
		return false
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	if c == nil || c.Status != metav1.ConditionTrue || operation.Remaining(believedAfter, c.LastTransitionTime.Time, now) > 0 {
		return false
	}
	switch {
	case seen == nil:
		return true
	case seen.Detaching: // the next look shows whether it is detached
		return false
	default:
		return a.Status.LUN == nil || *a.Status.LUN != seen.LUN
	}
}

// MayReattach returns why the disk of an attachment that is ContradictedByAzure may not be attached
// again, or "" if it may. report is the node's, read at the API server; nil if there is none.
//
// If the volume is staged, the disk is not attached again: a pod uses the right disk, or has lost
// it, and another attachment beneath the pod repairs neither. While the volume is Staging the disk
// is attached again, because NodeStageVolume waits for it, with its entry in the report, as often
// as the kubelet calls. This is safe. Attaching detaches nothing. No pod uses the volume before the
// entry says Staged, unless its device was found missing. And the node reads the attachment again
// between finding a device and using it, and between mounting it and reporting Staged: a device
// that was found under the previous LUN is not used, and a mount of it is removed.
//
// While the volume is Unstaging the disk is attached again as well: the node must clear an
// interrupted format before it releases the volume, or no node could use the volume any more. A
// mount that remains then is of a device that is lost permanently, and whose path another device
// may have by now.
func MayReattach(report *apiv1.AzDriverNode, volume string) (why string) {
	switch {
	case report == nil:
		return "the node has no AzDriverNode, and so no report"
	case report.Status.MountsScannedTime == nil:
		return "the node plug-in has not yet compared its report with the node's mounts"
	}
	for _, entry := range report.Status.StagedVolumes {
		if entry.VolumeName == volume && entry.Phase == apiv1.PhaseStaged {
			return "the node reports the volume as " + string(entry.Phase)
		}
	}
	return ""
}

// StatusToAttachAgain is the status with which an attachment that is ContradictedByAzure is
// attached like a new one. Only if MayReattach allows it.
func StatusToAttachAgain(a *apiv1.AzVolumeAttachment, seen *provisioner.Attachment,
	now time.Time) apiv1.AzVolumeAttachmentStatus {
	message := "Azure does not list the disk at the VM, although the driver has not detached it; attaching it again"
	if seen != nil {
		message = fmt.Sprintf("Azure lists the disk at the VM under LUN %d, which is not the recorded LUN; attaching it again",
			seen.LUN)
	}
	s := Step{Status: *a.Status.DeepCopy()}
	s.Status.LUN, s.Status.Exclusive = nil, false
	s.pending(Input{Now: now, Attachment: a}, apiv1.ReasonDiskDetachedOutside, message)
	return s.Status
}
