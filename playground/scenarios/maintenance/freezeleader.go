package maintenance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// leaderFreezes are the pauses of the leader's node: one after which it still leads, and one in
// which it loses its lease.
var leaderFreezes = []time.Duration{5 * time.Second, 30 * time.Second}

// othersPatience is how long a pod on another node may wait for a write, on a machine that does
// everything at once.
const othersPatience = 5 * time.Second

// FreezeLeader is the scenario freeze-leader.
var FreezeLeader = scenario.Scenario{
	Name:    "freeze-leader",
	Summary: "the node of the controller's leader is paused, for 5 s and for 30 s, and no other node must be fenced",
	Title:   "Azure pauses the controller's virtual machine",
	Latency: "realistic",
	Run:     freezeLeader,
}

// freezeLeader pauses the node of the leading controller. When it goes on, it has heard nothing of
// any node for a while; the silence was its own.
func freezeLeader(ctx context.Context, e *scenario.Environment) error {
	workloads := []scenario.Workload{
		{Name: "writer-1", MaxShares: 2, Replicas: 1},
		{Name: "writer-2", MaxShares: 2, Replicas: 1},
	}
	e.Progress("making two pods that write, on nodes without a controller")
	volumes, err := e.StartAway(ctx, workloads...)
	if err != nil {
		return err
	}
	if err := e.AwaitRecords(ctx, scenario.RecordsBeforeFault, workloads...); err != nil {
		return err
	}
	before, err := e.SteadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	began := e.Clock.Now()
	for _, length := range leaderFreezes {
		if err := freezeItsNode(ctx, e, before, length); err != nil {
			return err
		}
	}
	if err := e.JudgeSteady(ctx, before, began, othersPatience); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("The leader's node is paused", began, e.Clock.Now())}
	e.Report.Summary = fmt.Sprintf("The node of the controller's leader was paused for %s, and the node of the next leader for %s. Decisions and proofs that took a volume from its node: %d. %s",
		timeline.Round(leaderFreezes[0]), timeline.Round(leaderFreezes[1]), e.Taken(began), e.RecordsLost())
	return nil
}

// freezeItsNode pauses the node of the leader, and judges what became of the others.
func freezeItsNode(ctx context.Context, e *scenario.Environment, others []scenario.Steady, length time.Duration) error {
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(s scenario.Steady) bool { return s.Node == leads.Node }) {
		return fmt.Errorf("the leader is on %s, beside a pod: bring the playground up with more nodes", leads.Node)
	}
	e.Progress("freezing %s, the node of the leader, for %s", leads.Node, length)
	began := e.Clock.Now()
	freeze, err := e.Freeze(ctx, leads.Node, length, nil)
	if err != nil {
		return err
	}
	e.Progress("it goes on; watching for %s for wrong decisions", freezeAftermath)
	if err := e.AwaitTime(ctx, freeze.Thawed.Add(freezeAftermath)); err != nil {
		return err
	}
	if err := e.View.Await(ctx, scenario.BackTimeout, leads.Node+" is back",
		func() bool { return e.View.IsBack(leads.Node, freeze.Thawed) }); err != nil {
		return fmt.Errorf("%w: it is %s", err, e.View.DescribeNode(leads.Node))
	}
	next, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	taken, suffix := e.Taken(began), fmt.Sprintf("_after_%.0f_s", length.Seconds())
	e.Metric("fences"+suffix, taken)
	e.Metric("another_leads"+suffix, next.Pod != leads.Pod)
	e.Check(fmt.Sprintf("no volume is taken from its node when the leader's is paused for %s", timeline.Round(length)),
		taken == 0, "%d decisions and proofs; %s led, %s leads", taken, leads.Pod, next.Pod)
	return nil
}
