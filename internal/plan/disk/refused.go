package disk

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// refusedAt returns when Azure refused to attach the disk for a reason that the disk may explain:
// it is not what the AzVolume says, or another VM has it. refused is false if Azure did not refuse
// the attachment, or for another reason.
func refusedAt(a *apiv1.AzVolumeAttachment) (at time.Time, refused bool) {
	e, c := a.Status.Error, meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	if a.Status.State != apiv1.AttachmentFailed || a.DeletionTimestamp != nil || e == nil || c == nil ||
		c.Reason != apiv1.ReasonDiskAttachFailed {
		return time.Time{}, false
	}
	switch provisioner.Kind(e.Reason) {
	case provisioner.InvalidArgument, provisioner.FailedPrecondition, provisioner.InsufficientCapacity,
		provisioner.NotFound, provisioner.Unsupported:
		return e.FailureTime.Time, true
	default:
		return time.Time{}, false
	}
}

// DiskMustBeRead reports whether Azure has refused to attach the disk and the disk has not been
// read since. The times have full seconds: a second refusal in one second leads to no second read.
func DiskMustBeRead(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) bool {
	at, refused := refusedAt(a)
	return refused && v != nil && (v.Status.Disk == nil || at.After(v.Status.Disk.ReadTime.Time))
}

// DiskDiffers reports whether the disk, read after Azure refused to attach it, differs from the
// disk of the refused request. The next request is another one, and need not wait as a repetition
// does.
func DiskDiffers(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) bool {
	at, refused := refusedAt(a)
	if !refused || v == nil || v.Status.Disk == nil || v.Status.Disk.ChangedTime == nil {
		return false
	}
	return !v.Status.Disk.ChangedTime.Time.Before(at)
}
