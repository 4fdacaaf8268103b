package disk

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A change that Azure makes to a shared disk only while it is attached nowhere stays in the spec while
// a node uses the volume. It is made when the volume is released next, before a node acquires it again
// (docs/adr/0068-changes-at-the-next-restart.md).

const (
	// HoldsFor is how long a publish waits for such a change, from the release or from when the driver
	// began with it, and an attach for any change that Azure is making.
	HoldsFor = 90 * time.Second
	// quietAfterLoss is how long after the loss of a node such a change does not begin: the pod that
	// follows must not wait for it.
	quietAfterLoss = 5 * time.Minute
)

// Waits reports whether a change of the disk waits until the volume is released next, and when to ask
// again; 0 if something else has to happen first. attachments are the volume's.
func Waits(v *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, now time.Time) (waits bool, again time.Duration) {
	switch {
	case !ChangesAlone(v):
		return false, 0
	case ownership.HasPrimary(v, attachments):
		return true, 0
	}
	again = afterLoss(v, now)
	return again > 0, again
}

// afterLoss is how much longer a change does not begin, because the volume was released from a node
// that was lost.
func afterLoss(v *apiv1.AzVolume, now time.Time) time.Duration {
	last, released := v.Status.LastRelease, v.Status.LastReleasedTime
	if last == nil || released == nil || last.Cause != apiv1.CauseNodeLost || v.Status.UpdateWantedTime != nil {
		return 0
	}
	return within(released.Time, quietAfterLoss, now)
}

// Holds returns how much longer a publish of a volume without a primary waits until the disk is changed;
// 0 if it does not. It does not wait after a failure or a refusal of Azure, nor after a node loss.
func Holds(v *apiv1.AzVolume, now time.Time) time.Duration {
	want, since := wanted(v), v.Status.LastReleasedTime
	switch {
	case !want.alone, v.Status.Error != nil, v.Status.DiskID == "", afterLoss(v, now) > 0,
		refusedNow(v.Status.RefusedCapacity, v, want.capacity), refusedNow(v.Status.RefusedSettings, v, want.settings),
		annotation.Paused.Switched(v.Annotations) != "":
		return 0
	}
	if begun := v.Status.UpdateWantedTime; begun != nil {
		since = &metav1.Time{Time: begun.Time}
	}
	if since == nil {
		return 0 // it has just been asked for, and has not begun
	}
	return within(since.Time, HoldsFor, now)
}

// Changing is how much longer a disk that Azure is changing is not attached; 0 if it is not being changed.
func Changing(v *apiv1.AzVolume, now time.Time) time.Duration {
	if v.Status.State != apiv1.VolumeUpdating || v.Status.Operation == nil {
		return 0
	}
	return within(v.Status.Operation.StartTime.Time, HoldsFor, now)
}

// within is what is left of a span since a time; 0 for the time of another clock.
func within(since time.Time, span time.Duration, now time.Time) time.Duration {
	left := since.Add(span).Sub(now)
	if left <= 0 || left > span {
		return 0
	}
	return max(left, operation.MinWait)
}

// Pending reports whether the status says of the present generation that a change waits for the next
// release of the volume. message says which.
func Pending(v *apiv1.AzVolume) (message string, pending bool) {
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionUpdated)
	if c == nil || c.Reason != apiv1.ReasonDiskUpdatePending || c.ObservedGeneration != v.Generation {
		return "", false
	}
	return c.Message, true
}

// LeavesFor reports whether a pod can be evicted so that a change which waits for the next release is made. why
// is for a pod that has to be restarted in another way; "" for one that has not, because it ends anyway.
func LeavesFor(pod *corev1.Pod) (leaves bool, why string) {
	switch {
	case maintenance.Ends(pod), pod.Spec.NodeName == "":
		return false, ""
	case !maintenance.Recreated(pod):
		return false, "no controller would create it again on another node"
	}
	return true, ""
}

// pend is the step of a disk whose change waits, after a look at the disk.
func (s *Step) pend(in Input) {
	s.end(in)
	s.upToDate(in, metav1.ConditionFalse, apiv1.ReasonDiskUpdatePending, pendingMessage(in.Volume))
}

func pendingMessage(v *apiv1.AzVolume) string {
	want, what := wanted(v), ""
	if want.capacity {
		what = "it grows to " + resource.NewQuantity(v.Spec.CapacityBytes, resource.BinarySI).String()
	}
	if want.settingsAlone {
		if what != "" {
			what += ", and "
		}
		what += "it gets " + settingsText(v)
	}
	by := ""
	if p := v.Status.Primary; p != nil && p.NodeName != "" {
		by = " (now node " + p.NodeName + ")"
	}
	when := "between two pods of a planned move, or when it is scaled down"
	if v.Spec.Access == apiv1.AccessMultiNode {
		when = "when no pod uses it any more"
	}
	return fmt.Sprintf("%s %s: Azure changes size, SKU and tier of a shared disk only while no node has it%s", what, when, by)
}

func settingsText(v *apiv1.AzVolume) string {
	to, from := v.Spec.Disk.DiskSettings, v.Status.Applied.DiskSettings
	if to.SKUName == from.SKUName {
		return "tier " + to.Tier
	}
	return "SKU " + to.SKUName
}

// lasting reports whether a refusal is about the change itself, and not about a quota, a permission or
// something else that may be different the next time.
func lasting(r *apiv1.Refusal) bool {
	return slices.Contains([]provisioner.Kind{provisioner.InvalidArgument, provisioner.Unsupported, provisioner.Unimplemented},
		provisioner.Kind(r.Reason))
}

// RefusedBefore returns the refusal of Azure that a change which needs a disk that is attached nowhere
// would get again: the spec asks for the same size, or for the same SKU and tier. It is nil if there is
// none.
func RefusedBefore(v *apiv1.AzVolume) *apiv1.Refusal {
	want, size, settings := wanted(v), v.Status.RefusedCapacity, v.Status.RefusedSettings
	d := v.Spec.Disk
	switch {
	case want.capacity && v.Shares() > 1 && size != nil && lasting(size) && size.CapacityBytes == v.Spec.CapacityBytes:
		return size
	case want.settingsAlone && settings != nil && lasting(settings) && settings.SKUName == d.SKUName && settings.Tier == d.Tier:
		return settings
	}
	return nil
}
