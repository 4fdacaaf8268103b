package nodeloss

import (
	"context"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// PowerCutLeader is the scenario node-power-cut-leader.
var PowerCutLeader = scenario.Scenario{
	Name:    "node-power-cut-leader",
	Summary: "the same for the node on which the controller's leader runs too",
	Title:   "A node loses its power, and the controller's leader with it",
	Latency: "realistic",
	Run:     nodePowerCutLeader,
}

// nodePowerCutLeader is node-power-cut for the node on which the controller's leader runs too:
// another controller has to take the lead before anything is done about the node.
func nodePowerCutLeader(ctx context.Context, e *scenario.Environment) error {
	f, err := beginLeaderLoss(ctx, e, single)
	if err != nil {
		return err
	}
	if err := awaitTypicalTime(ctx, e, &f); err != nil {
		return err
	}
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	e.Metric("controller_leader_node", leads.Node)
	e.Check("the controller's leader is on the node that is going to be lost", leads.Node == f.From,
		"the leader is on %s, the pod on %s", leads.Node, f.From)
	return cutPower(ctx, e, f, func(f scenario.Failover) error { return checkNextLeader(ctx, e, f, leads) })
}

// beginLeaderLoss makes the workload on the node of the controller's leader and lets it write.
func beginLeaderLoss(ctx context.Context, e *scenario.Environment, w scenario.Workload) (scenario.Failover, error) {
	leads, err := e.Leader(ctx)
	if err != nil {
		return scenario.Failover{}, err
	}
	nodes := e.ControllerNodes()
	if len(nodes) < 2 {
		return scenario.Failover{}, fmt.Errorf("all controllers run on %q: another node needs one that can take the lead", nodes)
	}
	e.Progress("making a pod on %s, where the controller's leader runs, that writes to a disk with a replica", leads.Node)
	volumes, err := e.StartOn(ctx, leads.Node, w)
	if err != nil {
		return scenario.Failover{}, err
	}
	return e.LossOf(ctx, w, volumes[0])
}

// checkNextLeader checks that another controller leads, and measures how long after the fault it
// took the lease.
func checkNextLeader(ctx context.Context, e *scenario.Environment, f scenario.Failover, before scenario.Leader) error {
	next, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	took := max(next.Since.Sub(f.Fault), 0)
	e.Metric("next_leader_node", next.Node)
	e.Metric("next_leader_seconds", scenario.Seconds(took))
	e.Check("another controller leads", next.Pod != before.Pod && next.Node != f.From,
		"%s on %s took the lease %s after the power cut; before that it was %s on %s",
		next.Pod, next.Node, timeline.Round(took), before.Pod, before.Node)
	return nil
}
