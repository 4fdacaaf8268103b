package nodeloss

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// brownout is how long Azure refuses.
	brownout = time.Minute
	// maxAfterBrownoutSeconds covers the back-off that has grown by then, the slowest
	// usual forced detach and Kubernetes' part.
	maxAfterBrownoutSeconds = 45
)

// brownoutRules are what Azure answers then. Reads are out of order at first, so that the
// fence cannot even begin; when they are not any more, writes are too many, and the
// operations and disks stay out of order.
func brownoutRules() []evidence.AzureFault {
	length := brownout.String()
	return []evidence.AzureFault{
		{
			Method:     http.MethodPost,
			Kind:       "virtualMachines",
			Status:     http.StatusTooManyRequests,
			Code:       "TooManyRequests",
			For:        length,
			RetryAfter: "5s",
		},
		{
			Method: http.MethodGet,
			Kind:   "virtualMachines",
			Status: http.StatusServiceUnavailable,
			Code:   "ServiceUnavailable",
			For:    (brownout / 3).String(),
		},
		{Kind: "operations", Status: http.StatusInternalServerError, Code: "InternalServerError", For: length},
		{Kind: "disks", Status: http.StatusTooManyRequests, Code: "TooManyRequests", For: length, RetryAfter: "5s"},
	}
}

// AzureBrownout is the scenario azure-brownout.
var AzureBrownout = scenario.Scenario{
	Name:    "azure-brownout",
	Summary: "Azure refuses everything for a minute in the middle of a failover",
	Title:   "Azure is out of order in the middle of a failover",
	Latency: "realistic",
	Run:     azureBrownout,
}

// azureBrownout lets Azure refuse everything for a minute in the middle of a failover.
// The failover cannot end before that; it must end soon after, and must not have skipped
// its proof.
func azureBrownout(ctx context.Context, e *scenario.Environment) error {
	w := single
	w.NoReservations = true
	f, err := beginLoss(ctx, e, w)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s", f.From)
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return err
	}
	decided := func() bool {
		return !observer.First(e.View.Observer.Marks(), f.Fault, observer.Milestone{
			Kind: observer.FenceDecided,
			Node: f.From,
		}).At.IsZero()
	}
	if err := e.View.Await(ctx, scenario.FailoverTimeout, "the failover has begun", decided); err != nil {
		return err
	}
	if err := e.BreakAzure(ctx, brownoutRules()...); err != nil {
		return err
	}
	began := e.Clock.Now()
	e.Progress("the failover has begun, and Azure refuses everything for %s", brownout)
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return err
	}
	calls, err := e.Azure.Since(ctx, began)
	if err != nil {
		return err
	}
	e.RecordFailover(f, observer.ProofDetached)
	recordBrownout(e, f, began, calls)
	if err := bringBack(ctx, e, f); err != nil {
		return err
	}
	return endLoss(ctx, e, f)
}

func recordBrownout(e *scenario.Environment, f scenario.Failover, began time.Time, calls []evidence.AzureCall) {
	throttled, broken := evidence.Refused(calls, http.StatusTooManyRequests), evidence.Refused(calls,
		http.StatusInternalServerError)
	e.Metric("brownout_seconds", scenario.Seconds(brownout))
	e.Metric("calls_answered_429", throttled)
	e.Metric("calls_answered_5xx", broken)
	e.Check("Azure did refuse, in both ways", throttled > 0 && broken > 0, "%d calls with 429, %d with 5xx", throttled, broken)
	end := began.Add(brownout)
	after := max(f.Running.Sub(end), 0)
	e.Metric("after_brownout_seconds", scenario.Seconds(after))
	e.Check(fmt.Sprintf("the pod runs at most %d s after Azure is well again", maxAfterBrownoutSeconds),
		after.Seconds() <= maxAfterBrownoutSeconds, "%s after the end of the minute", timeline.Round(after))
	var strangers []string
	for _, m := range e.View.Observer.Marks() {
		if m.Kind == observer.FenceDecided && m.Node != f.From {
			strangers = append(strangers, m.Node)
		}
	}
	e.Check("no other node is fenced", len(strangers) == 0, "%d others %q", len(strangers), strangers)
	e.Check("nothing continues without the proof",
		!f.Proven.IsZero() && f.Published.After(f.Proven) && f.PodDeleted.After(f.Proven),
		"the old pod is deleted %s and the volume published %s after the proof",
		timeline.Round(scenario.Between(f.Proven, f.PodDeleted)), timeline.Round(scenario.Between(f.Proven, f.Published)))
}
