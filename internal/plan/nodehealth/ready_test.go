package nodehealth_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestReadySummarisesThePlugInTheNodeAndItsVM(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	plugIn := metav1.Condition{Type: apiv1.NodeConditionPluginReady, Status: yes, Reason: apiv1.ReasonRegistered}
	stopped := metav1.Condition{Type: plugIn.Type, Status: no, Reason: apiv1.ReasonStopped, Message: "it has stopped"}
	fresh := metav1.Condition{Type: apiv1.NodeConditionReachable, Status: yes, Reason: apiv1.ReasonHeartbeatFresh}
	silent := metav1.Condition{Type: fresh.Type, Status: unknown, Reason: apiv1.ReasonHeartbeatStale}
	lost := metav1.Condition{Type: fresh.Type, Status: no, Reason: apiv1.ReasonNodeLost}
	known := metav1.Condition{Type: apiv1.NodeConditionVMKnown, Status: yes, Reason: apiv1.ReasonVMEstablished}
	twice := metav1.Condition{Type: known.Type, Status: no, Reason: apiv1.ReasonVMNamedTwice}
	disturbed := metav1.Condition{Type: apiv1.NodeConditionUndisturbed, Status: no, Reason: apiv1.ReasonMaintenancePodsMove}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       metav1.ConditionStatus
		reason     string
	}{
		"all are True":                      {[]metav1.Condition{plugIn, fresh, known}, yes, apiv1.ReasonNodeUsable},
		"a silent node":                     {[]metav1.Condition{plugIn, silent, known}, unknown, apiv1.ReasonHeartbeatStale},
		"a lost node whose plug-in was":     {[]metav1.Condition{plugIn, lost, known}, no, apiv1.ReasonNodeLost},
		"a plug-in that was stopped":        {[]metav1.Condition{stopped, fresh, known}, no, apiv1.ReasonStopped},
		"stopped, and silent since":         {[]metav1.Condition{stopped, silent, known}, no, apiv1.ReasonStopped},
		"a VM that two nodes name":          {[]metav1.Condition{plugIn, fresh, twice}, no, apiv1.ReasonVMNamedTwice},
		"maintenance does not matter":       {[]metav1.Condition{plugIn, fresh, known, disturbed}, yes, apiv1.ReasonNodeUsable},
		"a plug-in that has never reported": {[]metav1.Condition{fresh, known}, unknown, apiv1.ReasonNotYetKnown},
		"a new node":                        {nil, unknown, apiv1.ReasonNotYetKnown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, changed := nodehealth.Ready(c.conditions)
			if !changed || ready.Status != c.want || ready.Reason != c.reason {
				t.Errorf("got %+v, a change %t; want a change to %s %s", ready, changed, c.want, c.reason)
			}
			other := ready
			if other.Status = unknown; ready.Status == unknown {
				other.Status = no
			}
			if _, changed := nodehealth.Ready(append(slices.Clone(c.conditions), other)); !changed {
				t.Errorf("got no change of a condition that is %s for the same reason, want one", other.Status)
			}
			ready.Message = "an earlier message"
			meta.SetStatusCondition(&c.conditions, ready)
			if again, changed := nodehealth.Ready(c.conditions); changed {
				t.Errorf("got the change to %+v of a condition that says so, want none", again)
			}
		})
	}
}
