package attaching

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A VM outside of this cluster has the disk. The attachment fails, the disk is detached if it was
// attached, and the next try asks Azure first. As long as it is attached, the other cluster is
// refused by it as this one is by the other's VM. Two clusters that attach the disk at once both
// detach it, and would do the same in step for ever. Both see the same VMs in Azure's answer, and no
// identity of the other cluster, so the VMs' IDs decide: where the other VM's ID is first, this
// cluster leaves the disk alone for long enough that the other one can attach it and ask.

// yieldFor is how long a VM lets another cluster's try first. A detach, the wait before the other
// one's next try, and an attach take less.
const yieldFor = 2 * time.Minute

// AskBeforeAttach reports whether Azure is asked for VMs outside of this cluster also before an
// attach: it is not confirmed that this cluster uses the disk, or the disk was detached outside the
// driver, or was found in use elsewhere before.
func AskBeforeAttach(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) bool {
	switch reasonOf(a) {
	case apiv1.ReasonDiskDetachedOutside, apiv1.ReasonVMUnrecorded, apiv1.ReasonUsedOutsideCluster,
		apiv1.ReasonYieldsToAnotherCluster:
		return true
	default:
		return !ownership.CustodyConfirmed(v)
	}
}

// usedElsewhere is the end of an attach to a disk that a VM outside of this cluster has.
func (s *Step) usedElsewhere(in Input) {
	truth, reason := in.Job.Truth, apiv1.ReasonUsedOutsideCluster
	if truth.Attached {
		s.Status.LUN = &truth.LUN
		if strings.Compare(strings.ToLower(truth.OtherClusterVM), strings.ToLower(s.Status.VMID)) < 0 {
			reason = apiv1.ReasonYieldsToAnotherCluster
		}
	}
	s.failed(in, apiv1.AttachmentFailed, reason, in.Job.Err)
}

// refusedElsewhere reports whether the last attach, which has failed, found a VM outside of this
// cluster.
func refusedElsewhere(a *apiv1.AzVolumeAttachment) bool {
	reason := reasonOf(a)
	return reason == apiv1.ReasonUsedOutsideCluster || reason == apiv1.ReasonYieldsToAnotherCluster
}

// justRefused reports whether the attach that failed found a VM outside of this cluster, and nothing
// was done about it yet.
func justRefused(a *apiv1.AzVolumeAttachment) bool {
	return refusedElsewhere(a) && a.Status.Error.Reason == string(provisioner.FailedPrecondition)
}

// yieldingFor returns how long an attachment that failed still lets another cluster try first.
func yieldingFor(a *apiv1.AzVolumeAttachment, now time.Time) time.Duration {
	if reasonOf(a) != apiv1.ReasonYieldsToAnotherCluster {
		return 0
	}
	return operation.Remaining(yieldFor, a.Status.Error.FailureTime.Time, now)
}

func reasonOf(a *apiv1.AzVolumeAttachment) string {
	if c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached); c != nil {
		return c.Reason
	}
	return ""
}
