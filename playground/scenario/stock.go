package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// stockPatience is how long node-power-cut-stock waits for Kubernetes.
const stockPatience = 10 * time.Minute

// nodePowerCutStock is node-power-cut with the driver's failover switched off. It
// measures what Kubernetes itself does for the pod, and has no bound for it.
func nodePowerCutStock(ctx context.Context, e *Environment) error {
	restore, err := e.withoutFailover(ctx)
	if err != nil {
		return err
	}
	f, err := e.beginLoss(ctx, single)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s, and waiting at most %s for Kubernetes", f.From, stockPatience)
	if f.Fault, err = e.powerOff(ctx, f.From); err != nil {
		return err
	}
	err = e.awaitFailover(ctx, &f, stockPatience)
	gaveUp := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if err != nil && !gaveUp {
		return err
	}
	outcome := fmt.Sprintf("the pod ran elsewhere after %s", timeline.Round(f.Took()))
	if gaveUp {
		outcome = fmt.Sprintf("the pod did not run elsewhere within %s", timeline.Round(stockPatience))
	}
	e.metric("gave_up", gaveUp)
	e.metric("waited_seconds", milli(e.Clock.Now().Sub(f.Fault)))
	e.metric("lost_node", f.From)
	if !gaveUp {
		e.metric("total_seconds", milli(f.Took()))
		e.metric("new_node", f.To)
	}
	e.check("it was measured how long Kubernetes takes, or waited for it long enough", !f.Running.IsZero() || gaveUp, "%s", outcome)
	e.check("the driver took no part in it", f.Decided.IsZero(), "no volume was taken from a lost node")
	if err := e.endStock(ctx, f, restore); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("With the driver's failover switched off %s was lost, and %s. %s", f.From, outcome, e.Report.Summary)
	return nil
}

// withoutFailover switches the driver's failover off; what it returns switches it on.
func (e *Environment) withoutFailover(ctx context.Context) (restore func(context.Context) error, err error) {
	e.Progress("switching the driver's failover off")
	restore, err = e.Cluster.ChangeDriver(ctx, map[string]any{"controller": map[string]any{"failover": map[string]any{"enabled": false}}})
	if restore != nil {
		e.mendLater("switch the driver's failover on again", restore)
	}
	return restore, err
}

// endStock gives the node its power back, waits until the pod writes again wherever it
// is, and judges the records.
func (e *Environment) endStock(ctx context.Context, f Failover, restore func(context.Context) error) error {
	e.Progress("switching %s on again", f.From)
	on, err := e.powerOn(ctx, f.From)
	if err != nil {
		return err
	}
	gone := f.Running.IsZero()
	if gone {
		if err := e.awaitAnywhere(ctx, &f, failoverTimeout); err != nil {
			return err
		}
		e.metric("running_after_power_on_seconds", milli(f.Running.Sub(on)))
	}
	e.Progress("switching the driver's failover on again")
	if err := restore(ctx); err != nil {
		return err
	}
	if err := e.recordBack(ctx, f, on); err != nil {
		return err
	}
	if err := e.judgeAll(ctx, f.Workload); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("After it was switched on again the pod ran on %s. %s", f.To, e.recordsLost())
	return e.drawFailover(ctx, f, "The node is lost, and the driver does nothing")
}
