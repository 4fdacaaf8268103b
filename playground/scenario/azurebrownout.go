package scenario

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// brownout is how long Azure refuses.
	brownout = time.Minute
	// maxAfterBrownoutSeconds covers the back-off that has grown meanwhile, the slowest
	// usual forced detach and Kubernetes' part.
	maxAfterBrownoutSeconds = 45
)

// brownoutRules are what Azure answers then. Reads are out of order at first, so that the
// fence cannot even begin; when they are not any more, writes are too many, and the
// operations and disks stay out of order.
func brownoutRules() []azureFault {
	length := brownout.String()
	return []azureFault{
		{Method: http.MethodPost, Kind: "virtualMachines", Status: http.StatusTooManyRequests, Code: "TooManyRequests", For: length, RetryAfter: "5s"},
		{Method: http.MethodGet, Kind: "virtualMachines", Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", For: (brownout / 3).String()},
		{Kind: "operations", Status: http.StatusInternalServerError, Code: "InternalServerError", For: length},
		{Kind: "disks", Status: http.StatusTooManyRequests, Code: "TooManyRequests", For: length, RetryAfter: "5s"},
	}
}

// azureBrownout lets Azure refuse everything for a minute in the middle of a failover.
// The failover cannot end before that; it must end soon after, and must not have done
// without its proof meanwhile.
func azureBrownout(ctx context.Context, e *Environment) error {
	f, err := e.beginLoss(ctx, single)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s", f.From)
	if f.Fault, err = e.powerOff(ctx, f.From); err != nil {
		return err
	}
	decided := func() bool {
		return !first(e.view.observer.marks(), f.Fault, milestone{Kind: fenceDecided, Node: f.From}).At.IsZero()
	}
	if err := e.view.await(ctx, failoverTimeout, "the failover has begun", decided); err != nil {
		return err
	}
	if err := e.breakAzure(ctx, brownoutRules()...); err != nil {
		return err
	}
	began := e.Clock.Now()
	e.Progress("the failover has begun, and Azure refuses everything for %s", brownout)
	if err := e.awaitFailover(ctx, &f, failoverTimeout); err != nil {
		return err
	}
	calls, err := e.azure.since(ctx, began)
	if err != nil {
		return err
	}
	e.recordFailover(f, proofDetached)
	e.recordBrownout(f, began, calls)
	if err := e.bringBack(ctx, f); err != nil {
		return err
	}
	return e.endLoss(ctx, f)
}

func (e *Environment) recordBrownout(f Failover, began time.Time, calls []azureCall) {
	throttled, broken := refused(calls, http.StatusTooManyRequests), refused(calls, http.StatusInternalServerError)
	e.metric("brownout_seconds", milli(brownout))
	e.metric("calls_answered_429", throttled)
	e.metric("calls_answered_5xx", broken)
	e.check("Azure did refuse, in both ways", throttled > 0 && broken > 0, "%d calls with 429, %d with 5xx", throttled, broken)
	end := began.Add(brownout)
	after := max(f.Running.Sub(end), 0)
	e.metric("after_brownout_seconds", milli(after))
	e.check(fmt.Sprintf("the pod runs at most %d s after Azure is well again", maxAfterBrownoutSeconds),
		after.Seconds() <= maxAfterBrownoutSeconds, "%s after the end of the minute", timeline.Round(after))
	var strangers []string
	for _, m := range e.view.observer.marks() {
		if m.Kind == fenceDecided && m.Node != f.From {
			strangers = append(strangers, m.Node)
		}
	}
	e.check("no other node is fenced", len(strangers) == 0, "%d others %q", len(strangers), strangers)
	e.check("nothing goes on without the proof", !f.Proven.IsZero() && f.Published.After(f.Proven) && f.PodDeleted.After(f.Proven),
		"the old pod is deleted %s and the volume published %s after the proof", timeline.Round(between(f.Proven, f.PodDeleted)), timeline.Round(between(f.Proven, f.Published)))
}
