package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// evictionNotice is how long before its end Azure announces the eviction of a spot VM.
	evictionNotice = 30 * time.Second
	// maxEvictionPause is how long a pod may write nothing when it is moved before the eviction.
	maxEvictionPause = 4 * time.Second
)

// SpotEviction is the scenario spot-eviction.
var SpotEviction = scenario.Scenario{
	Name:    "spot-eviction",
	Summary: "Azure evicts the spot VM of a pod that writes, 30 s after it has announced that",
	Title:   "Azure evicts a spot VM",
	Latency: "realistic",
	Run:     spotEviction,
}

// spotEviction has Azure announce that a VM will be evicted, with the policy move. The pod must run on
// its replica before the VM is gone.
func spotEviction(ctx context.Context, e *scenario.Environment) error {
	e.Progress("having the driver move pods before an eviction")
	if _, err := e.ChangeDriver(ctx, "set the policy for evictions back", map[string]any{"controller": map[string]any{
		"maintenance": map[string]any{"preempt": "move"},
	}}); err != nil {
		return err
	}
	f, err := beginMove(ctx, e)
	if err != nil {
		return err
	}
	e.Progress("announcing the eviction of %s, %s before it", f.From, evictionNotice)
	event, err := e.Azure.Announce(ctx, "Preempt", f.From, evictionNotice, -1)
	if err != nil {
		return err
	}
	f.Fault = e.Say(timeline.Azure, f.From, "the eviction of "+f.From+" is announced",
		"a scheduled event Preempt is in the metadata of the VM")
	e.RepairLater("end the event of the eviction", func(ctx context.Context) error { return e.Azure.EndEvent(ctx, event.ID) })
	moved := e.AwaitFailover(ctx, &f, event.NotBefore.Sub(e.Clock.Now()))
	if err := e.AwaitTime(ctx, event.NotBefore); err != nil {
		return err
	}
	gone, err := e.Deallocate(ctx, f.From)
	if err != nil {
		return err
	}
	e.Check("the pod runs elsewhere before its VM is gone", moved == nil, "announced %s before; %v",
		timeline.Round(evictionNotice), moved)
	if moved != nil {
		return nil
	}
	e.Check("it runs on its replica", f.OntoReplica, "on %s", f.To)
	pause, err := e.WritePause(ctx, f.Workload, f.Fault)
	if err != nil {
		return err
	}
	e.Metric("seconds_from_notice_to_running", scenario.Seconds(f.Took()))
	e.Metric("seconds_left", scenario.Seconds(event.NotBefore.Sub(f.Running)))
	e.Metric("write_pause_seconds", scenario.Seconds(pause))
	e.Bound("the longest time without a record", pause, maxEvictionPause.Seconds())
	if err := endMove(ctx, e, f); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("A spot VM is evicted", f.Fault, gone)}
	e.Report.Summary = fmt.Sprintf("Azure announced the eviction of %s. The pod ran on its replica on %s after %s, %s before the VM went, and wrote nothing for %s. %s",
		f.From, f.To, timeline.Round(f.Took()), timeline.Round(event.NotBefore.Sub(f.Running)), timeline.Round(pause),
		e.RecordsLost())
	return nil
}
