package replicas

import (
	"context"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// helloRecords are to be written before the move, so that there is something to lose.
const helloRecords = 100

// Hello is the scenario hello.
var Hello = scenario.Scenario{
	Name:    "hello",
	Summary: "a pod with a replicated disk writes and is moved once",
	Title:   "A pod moves to another node and finds its data there",
	Run:     hello,
}

// hello is the smallest scenario: one workload, one move. It is quick with azuresim's
// latency profile "fast", and judges no duration.
func hello(ctx context.Context, e *scenario.Environment) error {
	w := scenario.Workload{
		Name:      "hello",
		MaxShares: 2,
		Replicas:  1,
	}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.Start(ctx, w)
	if err != nil {
		return err
	}
	if err := e.AwaitRecords(ctx, helloRecords, w); err != nil {
		return err
	}
	moves, err := moveTimes(ctx, e, w, volumes[0], 1)
	if err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, w); err != nil {
		return err
	}
	found, err := e.AddEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	series, m := scenario.Measure(moves, found), moves[0]
	e.Events.Add(m.Writes()...)
	e.Metric("move_seconds", series.Seconds[0])
	e.Metric("driver_share_seconds", series.DriverSeconds[0])
	e.Metric("write_pause_seconds", series.PauseSeconds[0])
	e.Metric("azure_writes", series.TotalAzureWrites())
	e.Check("the pod goes to the node with the replica", m.OntoReplica, "%s to %s", m.From, m.To)
	e.Check("nothing is written to Azure during the move", series.TotalAzureWrites() == 0, "%d writes", series.TotalAzureWrites())
	e.Report.Figures = []timeline.Figure{m.Figure("The move", e.EventsOf(m), true)}
	e.Report.Summary = fmt.Sprintf("A pod that writes to a disk with a replica was moved from %s to %s in %s. %s",
		m.From, m.To, timeline.Round(m.Took()), e.RecordsLost())
	return nil
}
