package outages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	outage = 30 * time.Second
	// outageAftermath is how long the scenario watches for a wrong decision
	// afterwards: longer than it takes to find a node lost.
	outageAftermath = 45 * time.Second
	// WritePatience is how long a pod that is left alone may wait for a write, on a
	// machine that does everything at once.
	WritePatience = 5 * time.Second
)

// APIServerOutage is the scenario api-server-outage.
var APIServerOutage = scenario.Scenario{
	Name:    "api-server-outage",
	Summary: "the API server does not answer for 30 seconds, and nothing must be fenced",
	Title:   "The API server does not answer",
	Latency: "realistic",
	Run:     apiServerOutage,
}

// apiServerOutage halts the API server: connections stay open, and no request is answered. To
// the driver's controller all nodes stop reporting at once.
func apiServerOutage(ctx context.Context, e *scenario.Environment) error {
	zones := e.View.Zones()
	if len(zones) < 2 {
		return errors.New("api-server-outage needs two zones of at least two nodes each: bring the playground up with 4 nodes or more")
	}
	workloads := []scenario.Workload{
		{
			Name:      "writer-1",
			MaxShares: 2,
			Replicas:  1,
			Zone:      zones[0],
		}, {Name: "writer-2", MaxShares: 2, Replicas: 1, Zone: zones[1]},
	}
	e.Progress("making two pods that write, in different zones")
	volumes, err := e.Start(ctx, workloads...)
	if err != nil {
		return err
	}
	if err := e.AwaitRecords(ctx, scenario.RecordsBeforeFault, workloads...); err != nil {
		return err
	}
	if err := e.AwaitEarlierDisks(ctx); err != nil {
		return err
	}
	before, err := e.SteadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	began, err := haltAPIServer(ctx, e)
	if err != nil {
		return err
	}
	e.Metric("outage_seconds", scenario.Seconds(outage))
	if err := awaitAnswer(ctx, e); err != nil {
		return err
	}
	answered := e.Clock.Now()
	e.Metric("answering_again_after_seconds", scenario.Seconds(answered.Sub(began.Add(outage))))
	e.Progress("it answers again; watching for %s for wrong decisions", outageAftermath)
	if err := e.AwaitTime(ctx, answered.Add(outageAftermath)); err != nil {
		return err
	}
	if err := e.NothingFenced(ctx, began); err != nil {
		return err
	}
	if err := e.JudgeSteady(ctx, before, began, WritePatience); err != nil {
		return err
	}
	return moveAfterOutage(ctx, e, workloads, volumes, began)
}

// haltAPIServer halts the API server for the time of the outage and returns when that
// began.
func haltAPIServer(ctx context.Context, e *scenario.Environment) (time.Time, error) {
	e.Progress("halting the API server for %s", outage)
	resume, err := e.Cluster.StopAPIServer(ctx)
	if err != nil {
		return time.Time{}, err
	}
	began := e.Say(timeline.Kubernetes, "", "the API server is halted", "its connections stay open, and no request is answered")
	e.RepairLater("let the API server continue", func(context.Context) error { return resume() })
	if err := e.AwaitTime(ctx, began.Add(outage)); err != nil {
		return began, err
	}
	e.Say(timeline.Kubernetes, "", "the API server continues", "")
	return began, resume()
}

// awaitAnswer blocks until the API server answers again.
func awaitAnswer(ctx context.Context, e *scenario.Environment) error {
	return e.Poll(ctx, scenario.SetUpTimeout, 100*time.Millisecond, "the API server answers", func(ctx context.Context) error {
		return e.Kube.CoreV1().RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).Do(ctx).Error()
	})
}

// moveAfterOutage shows that the driver does its work again, and judges the records.
func moveAfterOutage(ctx context.Context, e *scenario.Environment, workloads []scenario.Workload, volumes []observer.Volume,
	began time.Time) error {
	e.Progress("moving a pod, to see that the driver does its work again")
	m, err := e.Move(ctx, workloads[0], volumes[0])
	if err != nil {
		return err
	}
	e.Metric("move_afterwards_seconds", scenario.Seconds(m.Took()))
	e.Check("a pod can be moved afterwards, to the node with the replica", m.OntoReplica, "%s to %s in %s", m.From, m.To,
		timeline.Round(m.Took()))
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("The outage and a move afterwards", began, m.Running)}
	e.Report.Summary = fmt.Sprintf("The API server did not answer for %s. %s %s A pod was moved afterwards in %s.",
		timeline.Round(outage), e.Fences(), e.RecordsLost(), timeline.Round(m.Took()))
	return nil
}
