package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ReasonDetachedOutside is the reason of an attachment whose disk somebody else detached from the VM.
const ReasonDetachedOutside = "DetachedOutside"

// believedAfter is how long an attachment must have been attached before Azure's word to the contrary counts: what Azure lists may be a little
// behind what it has done.
const believedAfter = 30 * time.Second

// Contradicted says that an attachment is recorded as attached to the node's VM, and that Azure lists its disk there under another LUN, or not at all: it was detached
// by hand, or the VM was made anew under its name. A pod that was sent to that LUN could find another volume's disk there. seen is the disk as Azure listed it at
// the VM after the attachment was read, nil if it did not; the caller must see to it that the attachment has not changed since.
func Contradicted(a *apiv1.AzVolumeAttachment, vmID string, seen *provisioner.Attachment, now time.Time) bool {
	if a.DeletionTimestamp != nil || a.Status.State != apiv1.AttachmentAttached || a.Status.VMID == "" || OfAnotherVM(a, vmID) {
		return false
	}
	c := meta.FindStatusCondition(a.Status.Conditions, ConditionAttached)
	if c == nil || c.Status != metav1.ConditionTrue || leftOf(believedAfter, c.LastTransitionTime.Time, now) > 0 {
		return false
	}
	switch {
	case seen == nil:
		return true
	case seen.Detaching: // by the next look it is off, or is not
		return false
	default:
		return a.Status.LUN == nil || *a.Status.LUN != seen.LUN
	}
}

// AttachedAnew is the status of an attachment that is Contradicted, with which it is attached like a new one. Only for a node that has not staged the volume: who uses the
// disk has the right one, or has lost it, and neither is mended by this.
func AttachedAnew(a *apiv1.AzVolumeAttachment, seen *provisioner.Attachment, now time.Time) apiv1.AzVolumeAttachmentStatus {
	message := "Azure does not list the disk at the VM, though nobody here has detached it; it is attached anew"
	if seen != nil {
		message = fmt.Sprintf("Azure lists the disk at the VM under LUN %d, which is not the one recorded; it is attached anew", seen.LUN)
	}
	s := AttachmentStep{Status: *a.Status.DeepCopy()}
	s.Status.LUN = nil
	s.pending(AttachmentInput{Now: now, Attachment: a}, ReasonDetachedOutside, message)
	return s.Status
}
