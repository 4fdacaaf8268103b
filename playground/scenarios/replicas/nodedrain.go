package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const drainedVolumes = 10

// NodeDrain is the scenario node-drain.
var NodeDrain = scenario.Scenario{
	Name:    "node-drain",
	Summary: "a node with ten pods that write to replicated disks is drained",
	Title:   "A node with ten volumes is drained",
	Latency: "realistic",
	Run:     nodeDrain,
}

// nodeDrain drains a node on which ten pods write to a disk with a replica each, as
// `kubectl drain` does: it cordons it and evicts everything but what a DaemonSet runs.
func nodeDrain(ctx context.Context, e *scenario.Environment) error {
	node, zone, err := drainTarget(ctx, e)
	if err != nil {
		return err
	}
	var workloads []scenario.Workload
	for i := range drainedVolumes {
		workloads = append(workloads, scenario.Workload{
			Name:      fmt.Sprintf("writer-%02d", i+1),
			MaxShares: 2,
			Replicas:  1,
			Zone:      zone,
			Interval:  100 * time.Millisecond,
		})
	}
	e.Progress("making %d pods that write on %s, each to a disk with a replica", drainedVolumes, node)
	volumes, err := e.StartOn(ctx, node, workloads...)
	if err != nil {
		return err
	}
	e.Progress("draining %s", node)
	e.RepairLater("uncordon "+node, func(ctx context.Context) error { return e.SetCordon(ctx, node, false) })
	moves, err := e.Drain(ctx, node, workloads, volumes)
	if err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	return recordDrain(ctx, e, node, moves)
}

// drainTarget is a node in a zone with at least two, away from the leader and, if
// possible, from every controller: the loss of those is not measured here.
func drainTarget(ctx context.Context, e *scenario.Environment) (node, zone string, err error) {
	zones := e.View.Zones()
	if len(zones) == 0 {
		return "", "", errors.New("node-drain needs a zone with two nodes: bring the playground up with 4 nodes or more")
	}
	avoid := e.ControllerNodes()
	leads, err := e.Leader(ctx)
	if err != nil {
		return "", "", err
	}
	for _, taken := range [][]string{avoid, {leads.Node}} {
		for _, zone := range zones {
			for _, node := range e.View.Nodes(zone) {
				if !slices.Contains(taken, node) {
					return node, zone, nil
				}
			}
		}
	}
	return "", "", errors.New("there is no node without the controller's leader")
}

func recordDrain(ctx context.Context, e *scenario.Environment, node string, moves []scenario.Move) error {
	found, err := e.AddEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	series := scenario.Measure(moves, found)
	last := slices.MaxFunc(moves, func(a, b scenario.Move) int { return a.Running.Compare(b.Running) })
	var writes []string
	onto := 0
	for _, c := range found.Azure {
		if c.IsWrite() && evidence.ChangesDiskOrVM(c) && !c.Time.Before(last.Requested) && !c.Time.After(last.Running) {
			writes = append(writes, fmt.Sprintf("%s %s", c.API, c.Name))
		}
	}
	for _, m := range moves {
		e.Events.Add(m.Writes()...)
		if m.OntoReplica {
			onto++
		}
	}
	e.Metric("drained_node", node)
	e.Metric("drain_seconds", scenario.Seconds(last.Took()))
	e.Metric("pod_seconds_all", series.Seconds)
	e.Metric("pod_seconds_median", timeline.Median(series.Seconds))
	e.Metric("driver_share_seconds_all", series.DriverSeconds)
	e.Metric("write_pause_seconds_all", series.PauseSeconds)
	e.Metric("azure_writes", len(writes))
	e.Metric("moves_onto_a_replica", onto)
	most := e.PodLimit("node-drain")
	e.Check(fmt.Sprintf("all %d pods run elsewhere at most %g s after the drain began", len(moves), most),
		last.Took().Seconds() <= most, "%s; the pods took %s s", timeline.Round(last.Took()), list(series.Seconds))
	e.Check("nothing is written to Azure until then", len(writes) == 0, "%d writes %s", len(writes), strings.Join(writes, ", "))
	e.Check("every pod goes to the node with its replica", onto == len(moves), "%d of %d", onto, len(moves))
	e.Report.Comparison = &timeline.Comparison{
		Title:  "From the begin of the drain until each pod runs elsewhere",
		Groups: []timeline.Group{{Title: "With a replica", Seconds: series.Seconds, Good: true}},
	}
	e.Report.Figures = []timeline.Figure{last.Figure("The last pod of the drained node", e.EventsOf(last), true)}
	e.Report.Summary = fmt.Sprintf("%s was drained. Its %d pods, each with a replicated disk, all ran elsewhere after %s; Azure was asked for %s. %s",
		node, len(moves), timeline.Round(last.Took()), changes(len(writes)), e.RecordsLost())
	return nil
}
