package disk

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// lossKept is how long after it the status of a volume speaks of a loss of writes.
const lossKept = 24 * time.Hour

// Loss is that a node could not write all data of a volume to its disk.
type Loss struct {
	NodeName string
	Message  string
}

// LossReporters returns the nodes that may report a loss of writes of a volume: those that have used
// it, or have its disk. Another node has nothing to lose (law 7).
func LossReporters(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) []string {
	var nodes []string
	for _, a := range attachments {
		nodes = append(nodes, a.Spec.NodeName)
	}
	if p := volume.Status.Primary; p != nil && p.NodeName != "" {
		nodes = append(nodes, p.NodeName)
	}
	if last := volume.Status.LastRelease; last != nil {
		nodes = append(nodes, last.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// LostWrites records the last loss of writes in the condition WritesKept of a status, from the reports of
// LossReporters, and ends it after lossKept. It returns a loss that was not recorded, and when the record has
// to end; 0 for never.
func LostWrites(volume *apiv1.AzVolume, reports []*apiv1.AzDriverNode, now time.Time, status *apiv1.AzVolumeStatus) (
	found *Loss, after time.Duration) {
	at := time.Time{}
	recorded := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionWritesKept)
	if recorded != nil && recorded.Status == metav1.ConditionFalse {
		at = recorded.LastTransitionTime.Time
	}
	for _, report := range reports {
		for _, l := range report.Status.LostWrites {
			// The clock of a node may be wrong, but its report is not from the future.
			time := minTime(l.LossTime.Time, now)
			message := lossMessage(report.Name, l)
			if l.VolumeName == volume.Name && now.Sub(time) < lossKept && time.After(at) &&
				(recorded == nil || recorded.Message != message) {
				at, found = time, &Loss{NodeName: report.Name, Message: message}
			}
		}
	}
	c := metav1.Condition{
		Type:               apiv1.VolumeConditionWritesKept,
		ObservedGeneration: volume.Generation,
	}
	if found != nil {
		meta.RemoveStatusCondition(&status.Conditions, c.Type) // a later loss is a transition
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonDiskFlushFailed, found.Message
		c.LastTransitionTime = metav1.NewTime(at)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if after = at.Add(lossKept).Sub(now); after > 0 {
		return found, after
	}
	if meta.IsStatusConditionFalse(status.Conditions, c.Type) {
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionTrue, apiv1.ReasonNoWritesLost, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return found, 0
}

func lossMessage(node string, l apiv1.LostWrites) string {
	return operation.Shorten(fmt.Sprintf("node %s could not write all data to the disk at %s, so that the last writes may be lost: %s",
		node, l.LossTime.UTC().Format(time.RFC3339), l.Message))
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
