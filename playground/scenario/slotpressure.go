package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// reservedSlots is the driver's default replicaReservedSlots.
	reservedSlots = 1
	// newcomers are more than the reserve.
	newcomers = 3
	// maxLandingSeconds covers the creation of a disk, the detach of the replica that
	// gives way and the attach, each with the tail of one in thirty.
	maxLandingSeconds = 120
	// slowRecords keeps many pods from keeping the machine busy.
	slowRecords = 250 * time.Millisecond
)

// slotPressure fills a node with replicas to the last slot that they may have, and then
// has pods with disks of their own start there. Replicas must give way, and nobody who
// runs may notice.
func slotPressure(ctx context.Context, e *Environment) error {
	full, beside, zone, err := e.pressureNodes(ctx)
	if err != nil {
		return err
	}
	slots := e.view.slots(full)
	if slots == 0 {
		return fmt.Errorf("the driver does not say how many disks %s takes", full)
	}
	var workloads []Workload
	for i := range slots - reservedSlots {
		workloads = append(workloads, Workload{
			Name: fmt.Sprintf("resident-%02d", i+1), MaxShares: 2, Replicas: 1, Zone: zone, Interval: slowRecords,
		})
	}
	e.metric("slots", slots)
	e.Progress("making %d pods on %s, whose replicas fill %s", len(workloads), beside, full)
	volumes, err := e.startOn(ctx, beside, workloads...)
	if err != nil {
		return err
	}
	replicas := e.view.attached(full)
	e.metric("replicas_before", replicas)
	e.check("the node is full of replicas", replicas == slots-reservedSlots, "%d of the %d slots of %s are taken, %d reserved for primaries", replicas, slots, full, reservedSlots)
	before, err := e.steadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	began := e.Clock.Now()
	landed, err := e.land(ctx, full, began)
	if err != nil {
		return err
	}
	calls, err := e.azure.since(ctx, began)
	if err != nil {
		return err
	}
	e.recordLanding(full, slots, replicas, landed, calls)
	if err := e.judgeSteady(ctx, before, began, writePatience); err != nil {
		return err
	}
	if err := e.judgeAll(ctx, append(workloads, landed.workloads...)...); err != nil {
		return err
	}
	if _, err := e.addEvidence(ctx, began); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.wholeFigure("Three pods come to a full node", began, began.Add(slices.Max(landed.took)))}
	return nil
}

// pressureNodes are two nodes of one zone: the replicas of the pods on one go to the
// other, because further nodes of the zone are kept for nobody meanwhile.
func (e *Environment) pressureNodes(ctx context.Context) (full, beside, zone string, err error) {
	zones := e.view.zones()
	if len(zones) == 0 {
		return "", "", "", errors.New("slot-pressure needs a zone with two nodes: bring the playground up with 4 nodes")
	}
	nodes := e.view.nodes(zones[0])
	for _, spare := range nodes[2:] {
		e.mendLater("let "+spare+" take pods", func(ctx context.Context) error { return e.setSpare(ctx, spare, false) })
		if err := e.setSpare(ctx, spare, true); err != nil {
			return "", "", "", err
		}
	}
	return nodes[0], nodes[1], zones[0], nil
}

// landing is how the newcomers came to run.
type landing struct {
	workloads []Workload
	took      []time.Duration
}

// land makes the newcomers on the node and returns when they run there.
func (e *Environment) land(ctx context.Context, node string, began time.Time) (landing, error) {
	var l landing
	for i := range newcomers {
		l.workloads = append(l.workloads, Workload{Name: fmt.Sprintf("newcomer-%d", i+1), MaxShares: 1, Interval: slowRecords})
	}
	e.Progress("making %d pods with disks of their own on %s", newcomers, node)
	if err := e.createOn(ctx, node, l.workloads...); err != nil {
		return l, err
	}
	l.took = make([]time.Duration, newcomers)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, w := range l.workloads {
		group.Go(func() error {
			return e.view.await(groupCtx, startTimeout, w.pod()+" runs on the full node", func() bool {
				pod := e.view.pod(w.pod())
				if pod == nil || !isRunning(pod) {
					return false
				}
				l.took[i] = e.Clock.Now().Sub(began)
				return true
			})
		})
	}
	return l, group.Wait()
}

func (e *Environment) recordLanding(node string, slots, replicas int, l landing, calls []azureCall) {
	var seconds []float64
	for _, took := range l.took {
		seconds = append(seconds, milli(took))
	}
	slowest := slices.Max(l.took)
	e.metric("landing_seconds_all", seconds)
	e.metric("landing_seconds_slowest", milli(slowest))
	left := 0
	for _, a := range e.view.allAttachments() {
		if a.Node == node && a.isReplica() {
			left++
		}
	}
	e.metric("replicas_left", left)
	e.check(fmt.Sprintf("the new pods run on the full node after at most %d s", maxLandingSeconds), slowest.Seconds() <= maxLandingSeconds, "%s s", list(seconds))
	e.check("just as many replicas have given way as slots were needed", left == replicas-newcomers+reservedSlots, "%d replicas were there, %d are left", replicas, left)
	refusals := 0
	for _, c := range calls {
		if c.isWrite() && c.Status >= http.StatusBadRequest && strings.EqualFold(c.Name, node) {
			refusals++
		}
	}
	e.metric("azure_refusals", refusals)
	e.check("Azure is not asked for more than the node takes", refusals == 0, "%d attaches were refused", refusals)
	e.Report.Summary = fmt.Sprintf("%s had %d of its %d slots taken by replicas. %d pods with disks of their own started there all the same, the slowest after %s; %d replicas gave way.",
		node, replicas, slots, newcomers, timeline.Round(slowest), replicas-left)
}
