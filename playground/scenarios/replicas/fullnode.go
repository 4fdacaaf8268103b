package replicas

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// maxElsewhereSeconds covers the count of the disks at Azure after the first refusal (30 s),
	// the period of the kubelet's next count (60 s), the longest pause between two calls (30 s),
	// and a move to another node.
	maxElsewhereSeconds = 180
	rejected            = "VolumeAttachmentLimitExceeded"
)

// FullNode is the scenario full-node.
var FullNode = scenario.Scenario{
	Name:    "full-node",
	Summary: "a pod is placed on a node whose slots were taken by disks from outside the driver",
	Title:   "A pod leaves a full node",
	Latency: "realistic",
	Run:     fullNode,
}

// fullNode attaches disks to a VM that the driver does not know of, until none fits, and places a
// pod there before anything has counted them. The pod must run elsewhere without a person.
func fullNode(ctx context.Context, e *scenario.Environment) error {
	full := e.View.Nodes("")[0]
	slots := e.View.Slots(full)
	if slots == 0 {
		return fmt.Errorf("the driver does not say how many disks %s takes", full)
	}
	// CSI cannot say that a node takes no disk at all, so one of the driver's is there.
	resident, w := scenario.Workload{Name: "resident", MaxShares: 1}, scenario.Workload{Name: "newcomer", MaxShares: 1}
	if _, err := e.StartOn(ctx, full, resident); err != nil {
		return err
	}
	outside := slots - e.View.Attached(full)
	e.Progress("attaching %d disks to %s at Azure, so that all of its %d slots are taken", outside, full, slots)
	remove, err := e.Cluster.AttachOutside(ctx, full, outside)
	e.RepairLater("remove the disks from outside the driver", remove)
	if err != nil {
		return err
	}
	began := e.Clock.Now()
	if err := e.CreateOn(ctx, full, w); err != nil {
		return err
	}
	var first, last *corev1.Pod
	err = e.View.Await(ctx, scenario.StartTimeout, w.Pod()+" runs", func() bool {
		pod := e.View.Pod(w.Pod())
		if pod == nil {
			return false
		}
		if first == nil {
			first = pod
		}
		if pod.UID == first.UID {
			first = pod // with its last status
		}
		last = pod
		return observer.IsRunning(pod)
	})
	if err != nil {
		return err
	}
	took := e.Clock.Now().Sub(began)
	e.Metric("slots", slots)
	e.Metric("elsewhere_seconds", scenario.Seconds(took))
	e.Check("the pod was placed on the full node", first.Spec.NodeName == full, "on %s", first.Spec.NodeName)
	e.Check("it failed there with the kubelet's reason",
		first.Status.Phase == corev1.PodFailed && first.Status.Reason == rejected,
		"it is %s, with the reason %q: %s", first.Status.Phase, first.Status.Reason, first.Status.Message)
	e.Check("its successor runs on another node", last.UID != first.UID && last.Spec.NodeName != full, "it runs on %s",
		last.Spec.NodeName)
	e.Bound("the pod runs elsewhere", took, maxElsewhereSeconds)
	if err := e.AwaitRecords(ctx, scenario.RecordsBeforeFault, w); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, resident, w); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, began); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("A pod leaves a full node", began, began.Add(took))}
	e.Report.Summary = fmt.Sprintf("All %d slots of %s were taken by disks from outside the driver. A pod that was placed there was rejected, and ran on %s after %s.",
		slots, full, last.Spec.NodeName, timeline.Round(took))
	return nil
}
