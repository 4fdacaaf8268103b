package nodeloss

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// manyVolumes is how many pods, each with a volume of its own, are on the node that is lost.
	manyVolumes = 10
	// manyInterval is the time between two records of a pod: ten pods that write as fast as a
	// single one usually does would load the machine.
	manyInterval = 100 * time.Millisecond
)

// PowerCutMany is the scenario node-power-cut-many.
var PowerCutMany = scenario.Scenario{
	Name:    "node-power-cut-many",
	Summary: fmt.Sprintf("the same for a node with %d pods that write, each to a disk of its own", manyVolumes),
	Title:   fmt.Sprintf("A node with %d volumes loses its power", manyVolumes),
	Latency: "realistic",
	Run:     nodePowerCutMany,
}

// nodePowerCutMany is node-power-cut for a node with many volumes. It measures until the last pod
// runs elsewhere.
func nodePowerCutMany(ctx context.Context, e *scenario.Environment) error {
	workloads, losses, err := beginManyLosses(ctx, e)
	if err != nil {
		return err
	}
	node := losses[0].From
	e.Progress("cutting the power of %s", node)
	fault, err := e.PowerOff(ctx, node)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range losses {
		losses[i].Fault = fault
		group.Go(func() error { return e.AwaitFailover(groupCtx, &losses[i], scenario.FailoverTimeout) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	last := recordManyLosses(e, losses)
	if err := bringBack(ctx, e, last); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	if err := e.DrawFailover(ctx, last, "The last volume of the lost node"); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("%s was lost with %d pods and their volumes. The last pod ran again after %s, on %s. %s %s",
		node, len(losses), timeline.Round(last.Took()), last.To, last.Story(), e.RecordsLost())
	return nil
}

// beginManyLosses makes the workloads on a node without a controller and lets them write.
func beginManyLosses(ctx context.Context, e *scenario.Environment) (workloads []scenario.Workload, losses []scenario.Failover,
	err error) {
	nodes, avoid := e.View.Nodes(""), e.ControllerNodes()
	i := slices.IndexFunc(nodes, func(node string) bool { return !slices.Contains(avoid, node) })
	if i < 0 {
		return nil, nil, fmt.Errorf("controllers run on all nodes (%q): bring the playground up with more", avoid)
	}
	for n := range manyVolumes {
		workloads = append(workloads, scenario.Workload{
			Name:      fmt.Sprintf("writer-%d", n+1),
			MaxShares: 2,
			Replicas:  1,
			Interval:  manyInterval,
		})
	}
	e.Progress("making %d pods on %s that write to a disk with a replica each", manyVolumes, nodes[i])
	volumes, err := e.StartOn(ctx, nodes[i], workloads...)
	if err != nil {
		return nil, nil, err
	}
	for n, w := range workloads {
		f, err := e.LossOf(ctx, w, volumes[n])
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, f)
	}
	return workloads, losses, nil
}

// recordManyLosses makes metrics and checks of the failovers of one node, and returns that of the
// pod that ran last.
func recordManyLosses(e *scenario.Environment, losses []scenario.Failover) scenario.Failover {
	var totals, fences, unblocks []float64
	wrong := []string{}
	for _, f := range losses {
		p := f.Phases(f.Fault)
		totals, fences, unblocks = append(totals, scenario.Seconds(p.Total)), append(fences,
			scenario.Seconds(p.Fence)), append(unblocks, scenario.Seconds(p.Unblock))
		if f.ProofKind != f.ProofOfLoss() || !f.OntoReplica {
			wrong = append(wrong, fmt.Sprintf("%s: proof %q, onto a replica %t", f.Workload.Name, f.ProofKind, f.OntoReplica))
		}
	}
	last := slices.MaxFunc(losses, func(a, b scenario.Failover) int { return int(a.Took() - b.Took()) })
	e.RecordFailover(last, last.ProofOfLoss())
	e.CheckOrder(last)
	e.Metric("pods", len(losses))
	e.Metric("total_seconds_all", totals)
	e.Metric("fence_seconds_all", fences)
	e.Metric("unblock_seconds_all", unblocks)
	e.Metric("fence_seconds_slowest", slices.Max(fences))
	e.Check("each volume has the same proof, and each pod goes to the node with its replica", len(wrong) == 0,
		"%d of %d do not: %q", len(wrong), len(losses), wrong)
	e.Bound("the loss is known after", last.Phases(last.Fault).Detect, e.Limit("power-cut-known"))
	e.Bound("the last pod runs elsewhere after", last.Took(), e.PodLimit("node-power-cut-many"))
	return last
}
