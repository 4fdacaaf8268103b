package drivernode_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

// announce has the node plug-in report events; nil says that it does not follow them.
func (w *world) announce(m *apiv1.NodeMaintenance) {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	d.Status.Maintenance = m
	w.must(w.api.Status().Update(w.t.Context(), d))
}

// undisturbed reconciles the node and returns its condition, as "" or as its status and message.
func (w *world) undisturbed() string {
	w.t.Helper()
	w.reconcile()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Message
}

func TestTheConditionFollowsWhatAzureAnnounces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Policies = maintenance.Policies{apiv1.MaintenanceReboot: maintenance.Ignore}
	events := func(kind apiv1.MaintenanceKind) *apiv1.NodeMaintenance {
		return &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{EventID: "e", Kind: kind, Started: true}}}
	}
	for _, step := range []struct {
		name  string
		event *apiv1.NodeMaintenance
		want  string
	}{
		{"nothing is known", nil, ""},
		{"nothing is announced", &apiv1.NodeMaintenance{}, ""},
		{"an event that is ignored", events(apiv1.MaintenanceReboot), ""},
		{"an event", events(apiv1.MaintenanceFreeze), "False the Freeze of the VM"},
		{"another event", events(apiv1.MaintenanceRedeploy), "False the Redeploy of the VM"},
		{"it has ended", &apiv1.NodeMaintenance{}, "True "},
		{"it comes again", events(apiv1.MaintenanceFreeze), "False the Freeze of the VM"},
		{"nothing is known any more", nil, "True "},
	} {
		w.announce(step.event)
		if got := w.undisturbed(); !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	n := &corev1.Node{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Name: w.node}, n))
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: maintenance.NodeCondition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: "Preempt Scheduled: Mon, 07 Jan 2030 12:00:00 GMT. EventId: E",
	}}
	w.must(w.api.Status().Update(t.Context(), n))
	if got := w.undisturbed(); !strings.HasPrefix(got, "False Azure has announced a Preempt of the VM not before 2030-01-07") {
		t.Errorf("the condition of the node problem detector: got %q, want False", got)
	}
	w.r.Policies[apiv1.MaintenancePreempt] = maintenance.Move
	w.undisturbed()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
	if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed); c.Reason != apiv1.UndisturbedPodsMove {
		t.Errorf("another policy for the same event: got reason %s, want %s", c.Reason, apiv1.UndisturbedPodsMove)
	}
}
