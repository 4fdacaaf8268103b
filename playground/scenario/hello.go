package scenario

import (
	"context"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// helloRecords are to be written before the move, so that there is something to lose.
const helloRecords = 100

// hello is the smallest scenario: one workload, one move. It is quick with azuresim's
// latency profile "fast", and judges no duration.
func hello(ctx context.Context, e *Environment) error {
	w := Workload{Name: "hello", MaxShares: 2, Replicas: 1}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.start(ctx, w)
	if err != nil {
		return err
	}
	if err := e.awaitRecords(ctx, helloRecords, w); err != nil {
		return err
	}
	moves, err := e.moveTimes(ctx, w, volumes[0], 1)
	if err != nil {
		return err
	}
	if err := e.judgeAll(ctx, w); err != nil {
		return err
	}
	found, err := e.addEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	series, m := measure(moves, found), moves[0]
	e.events.Add(m.writes()...)
	e.metric("move_seconds", series.Seconds[0])
	e.metric("driver_share_seconds", series.DriverSeconds[0])
	e.metric("write_pause_seconds", series.PauseSeconds[0])
	e.metric("azure_writes", series.totalAzureWrites())
	e.check("the pod goes to the node with the replica", m.OntoReplica, "%s to %s", m.From, m.To)
	e.check("nothing is written to Azure during the move", series.totalAzureWrites() == 0, "%d writes", series.totalAzureWrites())
	e.Report.Figures = []timeline.Figure{m.figure("The move", e.eventsOf(m), true)}
	e.Report.Summary = fmt.Sprintf("A pod that writes to a disk with a replica was moved from %s to %s in %s. %s",
		m.From, m.To, timeline.Round(m.Took()), e.recordsLost())
	return nil
}
