package disk

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// Problem is a problem that a node reports of a volume, or, with the reason NoProblem, its end.
type Problem struct {
	Reason  string
	Message string
}

// ProblemReporters returns the nodes whose reports of problems count for a volume: those that have it. What
// another node says of it concerns no pod, and is not believed (law 7).
func ProblemReporters(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) []string {
	var nodes []string
	if p := volume.Status.Primary; p != nil && p.NodeName != "" && p.State != apiv1.OwnershipReleased {
		nodes = append(nodes, p.NodeName)
	}
	for _, a := range attachments {
		if volume.Spec.Access == apiv1.AccessMultiNode && a.Spec.Role == apiv1.RolePrimary {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Usable records the worst problem that the reports of ProblemReporters name in the condition Usable of a
// status. It returns what users are to learn once: a problem that was not recorded, or with another reason, and
// the end of the last one.
func Usable(volume *apiv1.AzVolume, reports []*apiv1.AzDriverNode, now time.Time, status *apiv1.AzVolumeStatus) *Problem {
	recorded := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionUsable)
	before := recorded != nil && recorded.Status == metav1.ConditionFalse
	c := metav1.Condition{
		Type:               apiv1.VolumeConditionUsable,
		ObservedGeneration: volume.Generation,
	}
	node, worst := worstProblem(volume.Name, reports)
	if worst == nil {
		if !before {
			return nil
		}
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionTrue, apiv1.ReasonNoProblem, metav1.NewTime(now)
		ended := &Problem{Reason: c.Reason, Message: "it has ended: " + recorded.Reason}
		meta.SetStatusCondition(&status.Conditions, c)
		return ended
	}
	known := before && recorded.Reason == worst.Reason
	c.Status, c.Reason = metav1.ConditionFalse, worst.Reason
	c.Message = operation.Shorten("node " + node + ": " + worst.Message)
	if !known {
		meta.RemoveStatusCondition(&status.Conditions, c.Type) // another problem is a transition
		// The clock of a node may be wrong, but its report is not from the future.
		c.LastTransitionTime = metav1.NewTime(minTime(worst.StartTime.Time, now))
	}
	meta.SetStatusCondition(&status.Conditions, c)
	if known {
		return nil
	}
	return &Problem{Reason: c.Reason, Message: c.Message}
}

func worstProblem(volume string, reports []*apiv1.AzDriverNode) (node string, worst *apiv1.VolumeProblem) {
	for _, report := range reports {
		for i := range report.Status.VolumeProblems {
			p := &report.Status.VolumeProblems[i]
			if p.VolumeName == volume && (worst == nil || cmp.Or(cmp.Compare(problem.Rank(p.Reason), problem.Rank(worst.Reason)),
				cmp.Compare(report.Name, node)) < 0) {
				node, worst = report.Name, p
			}
		}
	}
	return node, worst
}
