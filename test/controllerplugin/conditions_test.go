package controllerplugin

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

// answering is a Prober whose nodes answer.
type answering struct{}

func (answering) Probe(context.Context, *corev1.Node) liveness.ProbeResult {
	return liveness.ProbeResult{Answered: true}
}

// holds is what kubectl wait --for=condition=TYPE says of an object: a condition whose observedGeneration is
// behind does not count.
func holds(o client.Object, conditions []metav1.Condition, kind string) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Status == metav1.ConditionTrue &&
		(c.ObservedGeneration == 0 || c.ObservedGeneration >= o.GetGeneration())
}

// Nothing is wrong with the node, the volume and its attachments, so each wait for a condition ends, also after
// the generations of the objects have grown.
func TestEachConditionHoldsWhenNothingIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true, Prober: answering{}, StaleAfter: time.Hour})
		for _, node := range []string{"co-a", "co-b"} {
			p.AddNode(node, "1", size)
			p.Report(node, func(s *apiv1.AzDriverNodeStatus) { // what the node plug-in writes
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: apiv1.NodeConditionPluginReady,
					Status: metav1.ConditionTrue, Reason: apiv1.ReasonRegistered, LastTransitionTime: metav1.Now()})
			})
		}
		handle := p.Create("vol", replicated)
		plain := p.Create("plain", nil)
		wait := func(when string) {
			t.Helper()
			for _, c := range cause.Conditions() {
				if c.Informs {
					continue
				}
				p.Eventually(fmt.Sprintf("%s: condition %s of %s", when, c.Type, c.Kind), func() string {
					return missing(t, p, c)
				})
			}
		}
		wait("the volumes are not used")
		must(t, p.Publish(t.Context(), handle, "co-a"))
		p.StageOn(handle, "vol", "co-a")
		p.AwaitReplica("vol", "co-b")
		must(t, p.Publish(t.Context(), plain, "co-b"))
		wait("they are used")
		_, err := p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
			VolumeId: plain, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
			VolumeCapability: controlplane.Mounted()})
		must(t, err)
		p.Ask("co-b", apiv1.FenceRequest{VolumeName: "other", VolumeUID: "u", NodeName: "co-a", Epoch: 1,
			RequestTime: metav1.NowMicro()})
		wait("one has grown, and a node was asked for something")
		// The ownership moves, and with it the roles of both attachments.
		p.Unstage("vol", "co-a")
		must(t, p.Unpublish(t.Context(), handle, "co-a"))
		must(t, p.Publish(t.Context(), handle, "co-b"))
		p.StageOn(handle, "vol", "co-b")
		p.AwaitReplica("vol", "co-a")
		wait("it has moved")
	})
}

// missing names an object without a condition that holds; "" if there is none.
func missing(t *testing.T, p *controlplane.ControlPlane, c cause.Condition) string {
	t.Helper()
	var nodes apiv1.AzDriverNodeList
	var volumes apiv1.AzVolumeList
	var attachments apiv1.AzVolumeAttachmentList
	for _, list := range []client.ObjectList{&nodes, &volumes, &attachments} {
		must(t, p.Client.List(t.Context(), list, client.InNamespace(p.Namespace)))
	}
	all := map[string]map[client.Object][]metav1.Condition{"AzDriverNode": {}, "AzVolume": {}, "AzVolumeAttachment": {}}
	for i := range nodes.Items {
		all["AzDriverNode"][&nodes.Items[i]] = nodes.Items[i].Status.Conditions
	}
	for i := range volumes.Items {
		all["AzVolume"][&volumes.Items[i]] = volumes.Items[i].Status.Conditions
	}
	for i := range attachments.Items {
		all["AzVolumeAttachment"][&attachments.Items[i]] = attachments.Items[i].Status.Conditions
	}
	for o, conditions := range all[c.Kind] {
		if !holds(o, conditions, c.Type) {
			return fmt.Sprintf("%s, generation %d: %+v", o.GetName(), o.GetGeneration(), conditions)
		}
	}
	return ""
}
