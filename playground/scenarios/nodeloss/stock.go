package nodeloss

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// stockPatience is how long node-power-cut-stock waits for Kubernetes.
const stockPatience = 10 * time.Minute

// PowerCutStock is the scenario node-power-cut-stock.
var PowerCutStock = scenario.Scenario{
	Name:    "node-power-cut-stock",
	Summary: "node-power-cut with the driver's failover switched off: how long Kubernetes itself takes",
	Title:   "A node loses its power, and only Kubernetes reacts",
	Latency: "realistic",
	Run:     nodePowerCutStock,
}

// nodePowerCutStock is node-power-cut with the driver's failover switched off. It
// measures what Kubernetes itself does for the pod, and has no bound for it.
func nodePowerCutStock(ctx context.Context, e *scenario.Environment) error {
	restore, err := withoutFailover(ctx, e)
	if err != nil {
		return err
	}
	f, err := beginLoss(ctx, e, single)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s, and waiting at most %s for Kubernetes", f.From, stockPatience)
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return err
	}
	err = e.AwaitFailover(ctx, &f, stockPatience)
	gaveUp := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if err != nil && !gaveUp {
		return err
	}
	outcome := fmt.Sprintf("the pod ran elsewhere after %s", timeline.Round(f.Took()))
	if gaveUp {
		outcome = fmt.Sprintf("the pod did not run elsewhere within %s", timeline.Round(stockPatience))
	}
	e.Metric("gave_up", gaveUp)
	e.Metric("waited_seconds", scenario.Seconds(e.Clock.Now().Sub(f.Fault)))
	e.Metric("lost_node", f.From)
	if !gaveUp {
		e.Metric("total_seconds", scenario.Seconds(f.Took()))
		e.Metric("new_node", f.To)
	}
	e.Check("it was measured how long Kubernetes takes, or waited for it long enough", !f.Running.IsZero() || gaveUp, "%s",
		outcome)
	e.Check("the driver took no part in it", f.Decided.IsZero(), "no volume was taken from a lost node")
	if err := endStock(ctx, e, f, restore); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("With the driver's failover switched off %s was lost, and %s. %s", f.From, outcome,
		e.Report.Summary)
	return nil
}

// withoutFailover switches the driver's failover off; what it returns switches it on.
func withoutFailover(ctx context.Context, e *scenario.Environment) (restore func(context.Context) error, err error) {
	e.Progress("switching the driver's failover off")
	return e.ChangeDriver(ctx, "switch the driver's failover on again",
		map[string]any{"controller": map[string]any{"failover": map[string]any{"enabled": false}}})
}

// endStock gives the node its power back, waits until the pod writes again wherever it
// is, and judges the records.
func endStock(ctx context.Context, e *scenario.Environment, f scenario.Failover, restore func(context.Context) error) error {
	e.Progress("switching %s on again", f.From)
	on, err := e.PowerOn(ctx, f.From)
	if err != nil {
		return err
	}
	gone := f.Running.IsZero()
	if gone {
		if err := e.AwaitAnywhere(ctx, &f, scenario.FailoverTimeout); err != nil {
			return err
		}
		e.Metric("running_after_power_on_seconds", scenario.Seconds(f.Running.Sub(on)))
	}
	e.Progress("switching the driver's failover on again")
	if err := restore(ctx); err != nil {
		return err
	}
	if err := recordBack(ctx, e, f, on); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, f.Workload); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("After it was switched on again the pod ran on %s. %s", f.To, e.RecordsLost())
	return e.DrawFailover(ctx, f, "The node is lost, and the driver does nothing")
}
