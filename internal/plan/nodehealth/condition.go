package nodehealth

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// Condition is the condition Reachable by which the controller publishes a judgement. It has no
// transition time.
func Condition(j Judgement) metav1.Condition {
	c := metav1.Condition{Type: apiv1.NodeConditionReachable, Message: j.Evidence}
	switch {
	case j.State == Healthy:
		c.Status, c.Reason = metav1.ConditionTrue, apiv1.ReasonHeartbeatFresh
	case j.Stopped:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonVMStopped
	case j.State == Down:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonVMDown
	case j.State == Lost && j.MassLoss:
		c.Status, c.Reason = metav1.ConditionUnknown, apiv1.ReasonFencingHeldBack
		c.Message = j.Evidence + "; " + j.HeldBack
	case j.State == Lost:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonNodeLost
	case j.Paused:
		c.Status, c.Reason = metav1.ConditionUnknown, apiv1.ReasonNodeMaintenance
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, apiv1.ReasonHeartbeatStale
	}
	c.Message = operation.Shorten(c.Message)
	return c
}

// PublishedJudgement is the judgement that Condition published in an AzDriverNode, as far as the
// condition holds it: State, Since, Evidence, MassLoss, HeldBack, Stopped and Paused. The reason
// says what is so. The message is a text for people, and is both Evidence and HeldBack.
func PublishedJudgement(d *apiv1.AzDriverNode) Judgement {
	state, c := Published(d)
	if c == nil {
		return Judgement{State: state}
	}
	j := Judgement{State: state, Since: c.LastTransitionTime.Time, Evidence: c.Message}
	switch c.Reason {
	case apiv1.ReasonFencingHeldBack:
		j.State, j.MassLoss, j.HeldBack = Lost, true, c.Message
	case apiv1.ReasonNodeMaintenance:
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
	case c.Reason == apiv1.ReasonVMDown || c.Reason == apiv1.ReasonVMStopped:
		return Down, c
	case c.Status == metav1.ConditionFalse:
		return Lost, c
	default:
		return Suspect, c
	}
}

// Conditions returns the conditions Reachable and Probeable by which a process publishes what it knows of
// a node. There are none while it has no judgement of its own. They have no transition times.
func (d *Detector) Conditions(name string, now time.Time) []metav1.Condition {
	judgement, known := d.Health(name, now)
	if !known || d.nodes[name].inherited {
		return nil
	}
	return []metav1.Condition{Condition(judgement), d.probeable(d.nodes[name])}
}

// probeable returns the condition Probeable, for the next leader and for the node, which reports more
// often if no probe reaches it. It is Unknown before a probe was answered.
func (d *Detector) probeable(n *node) metav1.Condition {
	c := metav1.Condition{Type: apiv1.NodeConditionProbeable, Status: metav1.ConditionUnknown, Reason: apiv1.ReasonNotYetKnown}
	switch {
	case !d.config.Probes:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonProbesDisabled
		c.Message = "the controller is configured not to probe nodes"
	case n.probe.works:
		c.Status, c.Reason = metav1.ConditionTrue, apiv1.ReasonAnswersProbes
		c.Message = "the node has answered a probe of the controller"
	case n.probe.contradicted:
		c.Status, c.Reason = metav1.ConditionFalse, apiv1.ReasonProbesContradicted
		c.Message = "heartbeats came while probes failed; the kubelet's lease takes their place"
	}
	return c
}
