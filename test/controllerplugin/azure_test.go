package controllerplugin

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// overAzuresim is a controller plug-in over the simulator of Azure, with a node.
func overAzuresim(t *testing.T, node string) (*controlplane.ControlPlane, simtest.Simulator) {
	t.Helper()
	sim := simtest.StartInMemory(t, func(o *server.Options) {
		o.Subscriptions, o.ResourceGroups = []string{controlplane.Subscription}, []string{controlplane.Group}
	})
	options := sim.ClientOptions()
	options.Transport = sim.HTTP
	factory, err := armcompute.NewClientFactory(controlplane.Subscription, sim.Credential(), options)
	must(t, err)
	poller, err := factory.NewVirtualMachinesClient().BeginCreateOrUpdate(t.Context(), controlplane.Group, node,
		armcompute.VirtualMachine{
			Location: new(controlplane.Location),
			Zones:    []*string{new("1")},
			Properties: &armcompute.VirtualMachineProperties{
				HardwareProfile: &armcompute.HardwareProfile{VMSize: new(armcompute.VirtualMachineSizeTypes(size))},
				OSProfile:       &armcompute.OSProfile{ComputerName: &node},
				StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{
					CreateOption: new(armcompute.DiskCreateOptionTypesFromImage),
				}},
			},
		}, nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
	must(t, err)
	cloud, err := azure.New(t.Context(), azure.Options{
		Credential:     sim.Credential(),
		Cloud:          options.Cloud,
		SubscriptionID: controlplane.Subscription,
		Transport:      sim.HTTP,
	})
	must(t, err)
	p := controlplane.NewInMemory(t, controlplane.Options{Platform: cloud})
	p.AddNode(node, "1", size)
	return p, sim
}

// Microsoft's support can look nothing up without the ID.
func TestARefusedAttachShowsTheIDOfAzuresAnswer(t *testing.T) {
	for node, test := range map[string]struct {
		fault map[string]any
		want  string
	}{
		"id-call": {map[string]any{"action": "attachDetachDataDisks", "status": 409, "code": "OperationNotAllowed"},
			"correlation ID"},
		"id-operation": {map[string]any{"stage": "operation", "operation": "vm.disks", "status": 400, "code": "BadRequest"},
			"operation ID"},
	} {
		t.Run(test.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, sim := overAzuresim(t, node)
				if status := sim.Admin(t, "POST", "/admin/faults", test.fault, nil); status >= 300 {
					t.Fatalf("the fault: %d", status)
				}
				vol := freshName("vol")
				handle := p.Create(vol, nil)
				if err := p.Publish(t.Context(), handle, node); err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("got the error %q of the publish, want one with the %s", err, test.want)
				}
				id := regexp.MustCompile(`\(` + test.want + ` ([0-9a-f]{8}-[0-9a-f-]{27})\)$`)
				eventually(t, p, "the condition has the ID", func() error {
					a := p.Attachment(vol, node)
					if a == nil {
						return fmt.Errorf("no attachment")
					}
					c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
					if c == nil || c.Reason != apiv1.ReasonDiskAttachFailed || !id.MatchString(c.Message) {
						return fmt.Errorf("condition %+v, want DiskAttachFailed with the %s", c, test.want)
					}
					return nil
				})
				eventually(t, p, "the event has the ID", func() error {
					var list corev1.EventList
					must(t, p.Client.List(t.Context(), &list, client.InNamespace(p.Namespace)))
					for _, e := range list.Items {
						if e.Reason == apiv1.ReasonDiskAttachFailed && e.InvolvedObject.UID == p.Attachment(vol, node).UID &&
							id.MatchString(e.Message) {
							return nil
						}
					}
					return fmt.Errorf("no event %s with the %s among %d",
						apiv1.ReasonDiskAttachFailed, test.want, len(list.Items))
				})
			})
		})
	}
}
