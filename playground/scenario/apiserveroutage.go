package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	outage = 30 * time.Second
	// outageAftermath is how long is watched for somebody who draws the wrong conclusion
	// afterwards: longer than it takes to find a node lost.
	outageAftermath = 45 * time.Second
	// writePatience is how long a pod that is left alone may wait for a write, on a
	// machine that does everything at once.
	writePatience = 5 * time.Second
)

// apiServerOutage halts the API server: connections stay open, and nobody answers. To
// the driver's controller all nodes fall silent at once.
func apiServerOutage(ctx context.Context, e *Environment) error {
	zones := e.view.zones()
	if len(zones) < 2 {
		return errors.New("api-server-outage needs two zones of at least two nodes each: bring the playground up with 4 nodes or more")
	}
	workloads := []Workload{
		{Name: "writer-1", MaxShares: 2, Replicas: 1, Zone: zones[0]}, {Name: "writer-2", MaxShares: 2, Replicas: 1, Zone: zones[1]},
	}
	e.Progress("making two pods that write, in different zones")
	volumes, err := e.start(ctx, workloads...)
	if err != nil {
		return err
	}
	if err := e.awaitRecords(ctx, quietWrites, workloads...); err != nil {
		return err
	}
	before, err := e.steadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	began, err := e.haltAPIServer(ctx)
	if err != nil {
		return err
	}
	e.metric("outage_seconds", milli(outage))
	if err := e.awaitAnswer(ctx); err != nil {
		return err
	}
	answered := e.Clock.Now()
	e.metric("answering_again_after_seconds", milli(answered.Sub(began.Add(outage))))
	e.Progress("it answers again; watching for %s whether anybody draws the wrong conclusion", outageAftermath)
	if err := e.awaitTime(ctx, answered.Add(outageAftermath)); err != nil {
		return err
	}
	if err := e.nothingFenced(ctx, began); err != nil {
		return err
	}
	if err := e.judgeSteady(ctx, before, began, writePatience); err != nil {
		return err
	}
	return e.moveAfterOutage(ctx, workloads, volumes, began)
}

// haltAPIServer halts the API server for the time of the outage and returns when that
// began.
func (e *Environment) haltAPIServer(ctx context.Context) (time.Time, error) {
	e.Progress("halting the API server for %s", outage)
	resume, err := e.Cluster.StopAPIServer(ctx)
	if err != nil {
		return time.Time{}, err
	}
	began := e.say(timeline.Kubernetes, "", "the API server is halted", "its connections stay open, and nobody answers")
	e.mendLater("let the API server go on", func(context.Context) error { return resume() })
	if err := e.awaitTime(ctx, began.Add(outage)); err != nil {
		return began, err
	}
	e.say(timeline.Kubernetes, "", "the API server goes on", "")
	return began, resume()
}

// awaitAnswer blocks until the API server answers again.
func (e *Environment) awaitAnswer(ctx context.Context) error {
	return e.poll(ctx, setUpTimeout, 100*time.Millisecond, "the API server answers", func(ctx context.Context) error {
		return e.kube.CoreV1().RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).Do(ctx).Error()
	})
}

// moveAfterOutage shows that the driver does its work again, and judges the records.
func (e *Environment) moveAfterOutage(ctx context.Context, workloads []Workload, volumes []volume, began time.Time) error {
	e.Progress("moving a pod, to see that the driver does its work again")
	m, err := e.move(ctx, workloads[0], volumes[0])
	if err != nil {
		return err
	}
	e.metric("move_afterwards_seconds", milli(m.Took()))
	e.check("a pod can be moved afterwards, to the node with the replica", m.OntoReplica, "%s to %s in %s", m.From, m.To, timeline.Round(m.Took()))
	if err := e.judgeAll(ctx, workloads...); err != nil {
		return err
	}
	if _, err := e.addEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.wholeFigure("The outage and a move afterwards", began, m.Running)}
	e.Report.Summary = fmt.Sprintf("The API server did not answer for %s. %s %s A pod was moved afterwards in %s.",
		timeline.Round(outage), e.fences(), e.recordsLost(), timeline.Round(m.Took()))
	return nil
}
