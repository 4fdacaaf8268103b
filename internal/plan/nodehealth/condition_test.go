package nodehealth_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// What one process publishes with Condition, another reads with Published on the same scale.
func TestAPublishedJudgementIsReadOnTheSameScale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		judgement nodehealth.Judgement
		status    metav1.ConditionStatus
		reason    string
		message   string
		want      nodehealth.State
	}{
		"healthy": {nodehealth.Judgement{State: nodehealth.Healthy, Evidence: "fresh"}, metav1.ConditionTrue,
			apiv1.ReasonHeartbeatFresh, "fresh", nodehealth.Healthy},
		"suspect": {nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "late"}, metav1.ConditionUnknown,
			apiv1.ReasonHeartbeatStale, "late", nodehealth.Suspect},
		"paused": {nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "announced", Paused: true}, metav1.ConditionUnknown,
			apiv1.ReasonNodeMaintenance, "announced", nodehealth.Suspect},
		"lost": {nodehealth.Judgement{State: nodehealth.Lost, Evidence: "probes"}, metav1.ConditionFalse, apiv1.ReasonNodeLost,
			"probes", nodehealth.Lost},
		"down": {nodehealth.Judgement{State: nodehealth.Down, Evidence: "off"}, metav1.ConditionFalse, apiv1.ReasonVMDown,
			"off", nodehealth.Down},
		"stopped": {nodehealth.Judgement{State: nodehealth.Down, Evidence: "off", Stopped: true}, metav1.ConditionFalse,
			apiv1.ReasonVMStopped, "off", nodehealth.Down},
		"lost while failover is switched off": {nodehealth.Judgement{State: nodehealth.Lost, Evidence: "probes", HeldBack: "off"},
			metav1.ConditionFalse, apiv1.ReasonNodeLost, "probes", nodehealth.Lost},
		"one of so many lost nodes that the guard holds back": {
			nodehealth.Judgement{State: nodehealth.Lost, Evidence: "probes", HeldBack: "2 of 4", MassLoss: true},
			metav1.ConditionUnknown, apiv1.ReasonFencingHeldBack, "probes; 2 of 4", nodehealth.Suspect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			condition := nodehealth.Condition(c.judgement)
			if condition.Status != c.status || condition.Reason != c.reason || condition.Message != c.message {
				t.Errorf("got condition %+v, want %s %s: %s", condition, c.status, c.reason, c.message)
			}
			d := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{condition}}}
			if got, found := nodehealth.Published(d); got != c.want || found == nil || found.Reason != c.reason {
				t.Errorf("got %s, %+v; want %s with the reason %s", got, found, c.want, c.reason)
			}
			j := nodehealth.PublishedJudgement(d)
			if j.State != c.judgement.State || j.MassLoss != c.judgement.MassLoss || j.Paused != c.judgement.Paused ||
				j.Stopped != c.judgement.Stopped || j.Guarded() != c.judgement.Guarded() || j.Evidence != c.message ||
				j.MassLoss && j.HeldBack != c.message {
				t.Errorf("got judgement %+v, want %+v with the whole message as the evidence", j, c.judgement)
			}
		})
	}
	t.Run("one of many Suspect nodes is published as Suspect", func(t *testing.T) {
		t.Parallel()
		c := nodehealth.Condition(nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "late", MassLoss: true})
		if c.Reason != apiv1.ReasonHeartbeatStale || c.Message != "late" {
			t.Errorf("got condition %+v, want %s: late", c, apiv1.ReasonHeartbeatStale)
		}
	})
	t.Run("nothing is published", func(t *testing.T) {
		t.Parallel()
		if got, found := nodehealth.Published(&apiv1.AzDriverNode{}); got != nodehealth.Unknown || found != nil {
			t.Errorf("got %s, %+v; want %s and no condition", got, found, nodehealth.Unknown)
		}
		if got := nodehealth.PublishedJudgement(&apiv1.AzDriverNode{}); got.State != nodehealth.Unknown {
			t.Errorf("got judgement %+v, want the state %s", got, nodehealth.Unknown)
		}
	})
}
