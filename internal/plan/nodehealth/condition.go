package nodehealth

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Condition is the condition Reachable by which the controller publishes a judgement. It has no
// transition time.
func Condition(j Judgement) metav1.Condition {
	c := metav1.Condition{Type: apiv1.NodeConditionReachable, Message: j.Evidence}
	switch {
	case j.State == Healthy:
		c.Status, c.Reason = metav1.ConditionTrue, apiv1.ReasonHeartbeatFresh
	case j.State == Down && j.Stopped:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonVMStopped
	case j.State == Down:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonVMDown
	case j.State == Lost && j.MassLoss:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, apiv1.ReasonFencingHeldBack, j.HeldBack+"; "+j.Evidence
	case j.State == Lost:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonNodeLost
	case j.Paused:
		c.Status, c.Reason = metav1.ConditionUnknown, apiv1.ReasonMaintenance
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, apiv1.ReasonHeartbeatStale
	}
	return c
}

// PublishedJudgement is the judgement that Condition published in an AzDriverNode, as far as the
// condition holds it: State, Since, Evidence, MassLoss, HeldBack, Stopped
// and Paused.
func PublishedJudgement(d *apiv1.AzDriverNode) Judgement {
	state, c := Published(d)
	if c == nil {
		return Judgement{State: state}
	}
	j := Judgement{State: state, Since: c.LastTransitionTime.Time, Evidence: c.Message}
	switch c.Reason {
	case apiv1.ReasonFencingHeldBack:
		j.State, j.MassLoss = Lost, true
		j.HeldBack, j.Evidence, _ = strings.Cut(c.Message, "; ")
	case apiv1.ReasonMaintenance:
		j.Paused = true
	case apiv1.ReasonVMStopped:
		j.Stopped = true
	}
	return j
}

// Published returns the state that the controller has published for a node, and the condition
// Reachable that holds it. The state is Unknown and the condition nil if there is none yet. While
// the guard against mass loss is active, a lost node is published as Suspect.
func Published(d *apiv1.AzDriverNode) (State, *metav1.Condition) {
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable)
	switch {
	case c == nil:
		return Unknown, nil
	case c.Status == metav1.ConditionTrue:
		return Healthy, c
	case c.Status == metav1.ConditionFalse && (c.Reason == apiv1.ReasonVMDown || c.Reason == apiv1.ReasonVMStopped):
		return Down, c
	case c.Status == metav1.ConditionFalse:
		return Lost, c
	default:
		return Suspect, c
	}
}
