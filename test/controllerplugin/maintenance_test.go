package controllerplugin

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/maintenance"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A change of the report, of the Node's condition and of the condition itself has the node
// reconciled.
func TestMaintenanceFollowsTheReportAndTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const node = "mt-a"
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true,
			With: func(_ context.Context, mgr ctrl.Manager, _ provisioner.Cloud, namespace string) error {
				r, err := maintenance.New(maintenance.Options{
					Client:     mgr.GetClient(),
					Events:     mgr.GetEventRecorder("maintenance"),
					Clock:      clock.RealClock{},
					DriverName: controlplane.DriverName,
					Workers:    1,
				})
				if err != nil {
					return err
				}
				return r.SetUp(mgr, namespace)
			}})
		p.AddNode(node, "1", size)
		undisturbed := func(what string, want metav1.ConditionStatus) {
			t.Helper()
			p.Eventually(what, func() string {
				d := &apiv1.AzDriverNode{}
				must(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: node}, d))
				c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)
				if c == nil || c.Status != want {
					return fmt.Sprintf("got %+v, want %s", c, want)
				}
				return ""
			})
		}
		p.Report(node, func(s *apiv1.AzDriverNodeStatus) {
			s.Maintenance = &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{
				{EventID: "e", Type: apiv1.MaintenanceReboot, Started: true}}}
		})
		undisturbed("the node plug-in reports an event", metav1.ConditionFalse)
		p.Report(node, func(s *apiv1.AzDriverNodeStatus) { s.Conditions = nil })
		undisturbed("the condition is removed", metav1.ConditionFalse)
		p.Report(node, func(s *apiv1.AzDriverNodeStatus) { s.Maintenance = nil })
		undisturbed("the node plug-in does not follow the events any more", metav1.ConditionTrue)
		n := p.Node(node)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: plan.NodeCondition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: "Freeze Scheduled",
		})
		must(t, p.Client.Status().Update(t.Context(), n))
		undisturbed("the node problem detector names an event", metav1.ConditionFalse)
	})
}
