package nodehealth

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Ready returns the condition Ready of a node, the summary of the conditions PluginReady, Reachable and
// VMKnown, and reports whether it is not there yet. It has no transition time. The first part that is False
// decides, or else the first that is Unknown. A part that is missing is Unknown. As for Reachable, a newer
// message alone is no change.
func Ready(conditions []metav1.Condition) (c metav1.Condition, changed bool) {
	c = metav1.Condition{
		Type: apiv1.NodeConditionReady, Status: metav1.ConditionTrue, Reason: apiv1.ReasonNodeUsable,
		Message: "the node plug-in is ready, the node is reachable and its VM is known",
	}
	for _, kind := range []string{apiv1.NodeConditionReachable, apiv1.NodeConditionVMKnown, apiv1.NodeConditionPluginReady} {
		part := meta.FindStatusCondition(conditions, kind)
		if part == nil {
			part = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: apiv1.ReasonNotYetKnown}
		}
		if part.Status == metav1.ConditionFalse && c.Status != metav1.ConditionFalse ||
			part.Status == metav1.ConditionUnknown && c.Status == metav1.ConditionTrue {
			c.Status, c.Reason, c.Message = part.Status, part.Reason, part.Message
		}
	}
	before := meta.FindStatusCondition(conditions, c.Type)
	return c, before == nil || before.Status != c.Status || before.Reason != c.Reason
}

// Missing returns the conditions that the status of a node lacks and that need no look at the node: VMKnown,
// Undisturbed and InService. They are written with the first judgement.
func Missing(d *apiv1.AzDriverNode) []metav1.Condition {
	first := []metav1.Condition{
		{Type: apiv1.NodeConditionVMKnown, Status: metav1.ConditionUnknown, Reason: apiv1.ReasonNotYetKnown},
		{Type: apiv1.NodeConditionUndisturbed, Status: metav1.ConditionTrue, Reason: apiv1.ReasonNoMaintenance},
		{Type: apiv1.NodeConditionInService, Status: metav1.ConditionTrue, Reason: apiv1.ReasonInService},
	}
	if m := d.Status.Maintenance; m != nil && len(m.Events) > 0 { // the policies decide whether the driver prepares for it
		first[1].Status, first[1].Reason = metav1.ConditionUnknown, apiv1.ReasonNotYetKnown
	}
	var missing []metav1.Condition
	for _, c := range first {
		if meta.FindStatusCondition(d.Status.Conditions, c.Type) == nil {
			missing = append(missing, c)
		}
	}
	return missing
}
