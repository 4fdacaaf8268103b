package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// maxRemovalPause is how long a pod may write nothing when Karpenter removes its node, and
// maxRemovalPauseAttached with VolumeAttachments.
const maxRemovalPause, maxRemovalPauseAttached = 6 * time.Second, 12 * time.Second

// KarpenterRemoval is the scenario karpenter-removal.
var KarpenterRemoval = scenario.Scenario{
	Name:    "karpenter-removal",
	Summary: "Karpenter removes the node of a pod that writes, and deletes its VM",
	Title:   "Karpenter removes a node",
	Latency: "realistic",
	Run:     karpenterRemoval,
}

// karpenterRemoval has Karpenter remove a node. It deletes the VM as soon as there is no
// VolumeAttachment, and there is none in the mode without them: the volume must be unstaged before.
func karpenterRemoval(ctx context.Context, e *scenario.Environment) error {
	f, err := beginMove(ctx, e)
	if err != nil {
		return err
	}
	before := e.View.Attachments(f.Volume.Name)
	e.Progress("removing %s as Karpenter does", f.From)
	removal, err := e.RemoveAsKarpenter(ctx, f.From)
	if err != nil {
		return err
	}
	f.Fault = removal.Began
	if err := e.AwaitFailover(ctx, &f, scenario.MoveTimeout); err != nil {
		return err
	}
	pause, err := e.WritePause(ctx, f.Workload, removal.Began)
	if err != nil {
		return err
	}
	proof := observer.First(e.View.Observer.Marks(), removal.Began,
		observer.Milestone{Kind: observer.ReleaseProven, Node: f.From, Volume: f.Volume.Name})
	e.Metric("drain_seconds", scenario.Seconds(removal.Drained.Sub(removal.Began)))
	e.Metric("vm_deletion_after_drain_seconds", scenario.Seconds(removal.VMDeletion.Sub(removal.Drained)))
	e.Metric("proof", proof.Detail)
	e.Metric("proof_before_vm_deletion_seconds", scenario.Seconds(removal.VMDeletion.Sub(proof.At)))
	e.Metric("write_pause_seconds", scenario.Seconds(pause))
	e.Check("the node has unstaged the volume before Karpenter deletes the VM",
		proof.Detail == observer.ProofUnstaged && proof.At.Before(removal.VMDeletion), "proof %q, %s before", proof.Detail,
		timeline.Round(removal.VMDeletion.Sub(proof.At)))
	e.Check("the pod runs on its replica", before[f.To].State == "Attached" && f.To != f.From, "on %s", f.To)
	bound := maxRemovalPause
	if e.Report.Metrics["attach_required"] == true {
		bound = maxRemovalPauseAttached
	}
	e.Bound("the longest time without a record", pause, bound.Seconds())
	if err := endMove(ctx, e, f); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("Karpenter removes a node", removal.Began, removal.Gone)}
	e.Report.Summary = fmt.Sprintf("Karpenter removed %s and deleted its VM %s after the drain. The proof that the node cannot write, %s, was there %s before. The pod ran on %s, and wrote nothing for %s. %s",
		f.From, timeline.Round(removal.VMDeletion.Sub(removal.Drained)), proof.Detail,
		timeline.Round(removal.VMDeletion.Sub(proof.At)), f.To, timeline.Round(pause), e.RecordsLost())
	return nil
}
