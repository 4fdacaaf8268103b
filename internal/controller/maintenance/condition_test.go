package maintenance_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// report has the node plug-in report events; nil says that it does not follow them.
func (w *world) report(m *apiv1.NodeMaintenance) {
	w.t.Helper()
	d := w.driverNode()
	d.Status.Maintenance = m
	expect.Must(w.t, w.api.Status().Update(w.t.Context(), d))
}

func (w *world) driverNode() *apiv1.AzDriverNode {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	expect.Must(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "node-a"}, d))
	return d
}

// undisturbed reconciles the node and returns its condition, nil if it has none.
func (w *world) undisturbed() *metav1.Condition {
	w.t.Helper()
	_, err := w.reconcile()
	expect.Must(w.t, err)
	return meta.FindStatusCondition(w.driverNode().Status.Conditions, apiv1.NodeConditionUndisturbed)
}

// described is a condition as "", or as its status and message.
func described(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Message
}

func TestTheConditionFollowsWhatAzureAnnounces(t *testing.T) {
	node := driverNode("node-a", metav1.ConditionTrue, apiv1.MaintenanceFreeze)
	node.Status = apiv1.AzDriverNodeStatus{}
	node.Spec.VMSize = "Standard_D4s_v5" // its capacity is looked up, and the condition is written with it
	w := newWorld(t, node)
	w.r.Policies = plan.Policies{apiv1.MaintenanceReboot: plan.Ignore}
	events := func(kind apiv1.MaintenanceType) *apiv1.NodeMaintenance {
		return &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{EventID: "e", Type: kind, Started: true}}}
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
		w.report(step.event)
		if got := described(w.undisturbed()); !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	n := &corev1.Node{}
	expect.Must(t, w.api.Get(t.Context(), client.ObjectKey{Name: "node-a"}, n))
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: plan.NodeCondition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start),
		Message: "Preempt Scheduled: Mon, 07 Jan 2030 12:00:00 GMT. EventId: E",
	}}
	expect.Must(t, w.api.Status().Update(t.Context(), n))
	const want = "False Azure has announced a Preempt of the VM not before 2030-01-07"
	if got := described(w.undisturbed()); !strings.HasPrefix(got, want) {
		t.Errorf("the condition of the node problem detector: got %q, want %q", got, want)
	}
	w.r.Policies[apiv1.MaintenancePreempt] = plan.Move
	if c := w.undisturbed(); c.Reason != apiv1.ReasonMaintenancePodsMove {
		t.Errorf("another policy for the same event: got reason %s, want %s", c.Reason, apiv1.ReasonMaintenancePodsMove)
	}
	if got := len(w.recorded(apiv1.ReasonMaintenanceAnnounced)); got != 4 {
		t.Errorf("got %d events about the Node, want one for each of 4 announcements", got)
	}
}

// Until the condition is written, the scheduler would place the pod on the same node again.
func TestNoPodIsEvictedBeforeTheConditionIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		answer  error
		evicted int
		fails   bool
	}{
		"it is written":                  {nil, 1, false},
		"the node wrote first":           {apierrors.NewConflict(corev1.Resource("azdrivernodes"), "node-a", nil), 0, false},
		"the API server does not answer": {errors.New("no answer"), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, driverNode("node-a", metav1.ConditionTrue, apiv1.MaintenancePreempt),
				driverNode("node-b", metav1.ConditionTrue, apiv1.MaintenanceFreeze))
			w.written = c.answer
			result, err := w.reconcile()
			if len(w.evicted) != c.evicted || (err != nil) != c.fails {
				t.Errorf("got %v evicted, %v; want %d, and a failure: %t", w.evicted, err, c.evicted, c.fails)
			}
			if apierrors.IsConflict(c.answer) && result.RequeueAfter != operation.ConflictRetry {
				t.Errorf("got %+v after a conflict, want again in %v", result, operation.ConflictRetry)
			}
		})
	}
}
