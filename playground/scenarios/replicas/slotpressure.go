package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios/outages"
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

// SlotPressure is the scenario slot-pressure.
var SlotPressure = scenario.Scenario{
	Name:    "slot-pressure",
	Summary: "pods start on a node whose slots are full of replicas",
	Title:   "Replicas give way",
	Latency: "realistic",
	Run:     slotPressure,
}

// slotPressure fills a node with replicas to the last slot that they may have, and then
// has pods with disks of their own start there. Replicas must give way, and the running
// pods must not notice.
func slotPressure(ctx context.Context, e *scenario.Environment) error {
	full, beside, zone, err := pressureNodes(ctx, e)
	if err != nil {
		return err
	}
	slots := e.View.Slots(full)
	if slots == 0 {
		return fmt.Errorf("the driver does not say how many disks %s takes", full)
	}
	var workloads []scenario.Workload
	for i := range slots - reservedSlots {
		workloads = append(workloads, scenario.Workload{
			Name:      fmt.Sprintf("resident-%02d", i+1),
			MaxShares: 2,
			Replicas:  1,
			Zone:      zone,
			Interval:  slowRecords,
		})
	}
	e.Metric("slots", slots)
	e.Progress("making %d pods on %s, whose replicas fill %s", len(workloads), beside, full)
	volumes, err := e.StartOn(ctx, beside, workloads...)
	if err != nil {
		return err
	}
	replicas := e.View.Attached(full)
	e.Metric("replicas_before", replicas)
	e.Check("the node is full of replicas", replicas == slots-reservedSlots,
		"%d of the %d slots of %s are taken, %d reserved for primaries", replicas, slots, full, reservedSlots)
	before, err := e.SteadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	began := e.Clock.Now()
	landed, err := land(ctx, e, full, began)
	if err != nil {
		return err
	}
	calls, err := e.Azure.Since(ctx, began)
	if err != nil {
		return err
	}
	recordLanding(e, full, slots, replicas, landed, calls)
	if err := e.JudgeSteady(ctx, before, began, outages.WritePatience); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, append(workloads, landed.workloads...)...); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, began); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("Three pods come to a full node", began,
		began.Add(slices.Max(landed.took)))}
	return nil
}

// pressureNodes are two nodes of one zone: the replicas of the pods on one go to the
// other, because the other nodes of the zone are kept free.
func pressureNodes(ctx context.Context, e *scenario.Environment) (full, beside, zone string, err error) {
	zones := e.View.Zones()
	if len(zones) == 0 {
		return "", "", "", errors.New("slot-pressure needs a zone with two nodes: bring the playground up with 4 nodes")
	}
	nodes := e.View.Nodes(zones[0])
	for _, spare := range nodes[2:] {
		e.RepairLater("let "+spare+" take pods", func(ctx context.Context) error { return e.SetSpare(ctx, spare, false) })
		if err := e.SetSpare(ctx, spare, true); err != nil {
			return "", "", "", err
		}
	}
	return nodes[0], nodes[1], zones[0], nil
}

// landing is how the newcomers came to run.
type landing struct {
	workloads []scenario.Workload
	took      []time.Duration
}

// land makes the newcomers on the node and returns when they run there.
func land(ctx context.Context, e *scenario.Environment, node string, began time.Time) (landing, error) {
	var l landing
	for i := range newcomers {
		l.workloads = append(l.workloads, scenario.Workload{
			Name:      fmt.Sprintf("newcomer-%d", i+1),
			MaxShares: 1,
			Interval:  slowRecords,
		})
	}
	e.Progress("making %d pods with disks of their own on %s", newcomers, node)
	if err := e.CreateOn(ctx, node, l.workloads...); err != nil {
		return l, err
	}
	l.took = make([]time.Duration, newcomers)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, w := range l.workloads {
		group.Go(func() error {
			return e.View.Await(groupCtx, scenario.StartTimeout, w.Pod()+" runs on the full node", func() bool {
				pod := e.View.Pod(w.Pod())
				if pod == nil || !observer.IsRunning(pod) {
					return false
				}
				l.took[i] = e.Clock.Now().Sub(began)
				return true
			})
		})
	}
	return l, group.Wait()
}

func recordLanding(e *scenario.Environment, node string, slots, replicas int, l landing, calls []evidence.AzureCall) {
	var seconds []float64
	for _, took := range l.took {
		seconds = append(seconds, scenario.Seconds(took))
	}
	slowest := slices.Max(l.took)
	e.Metric("landing_seconds_all", seconds)
	e.Metric("landing_seconds_slowest", scenario.Seconds(slowest))
	left := 0
	for _, a := range e.View.AllAttachments() {
		if a.Node == node && a.IsReplica() {
			left++
		}
	}
	e.Metric("replicas_left", left)
	e.Check(fmt.Sprintf("the new pods run on the full node after at most %d s", maxLandingSeconds),
		slowest.Seconds() <= maxLandingSeconds, "%s s", list(seconds))
	e.Check("just as many replicas have given way as slots were needed", left == replicas-newcomers+reservedSlots,
		"%d replicas were there, %d are left", replicas, left)
	refusals := 0
	for _, c := range calls {
		if c.IsWrite() && c.Status >= http.StatusBadRequest && strings.EqualFold(c.Name, node) {
			refusals++
		}
	}
	e.Metric("azure_refusals", refusals)
	e.Check("Azure is not asked for more than the node takes", refusals == 0, "%d attaches were refused", refusals)
	e.Report.Summary = fmt.Sprintf("%s had %d of its %d slots taken by replicas. %d pods with disks of their own started there nevertheless, the slowest after %s; %d replicas gave way.",
		node, replicas, slots, newcomers, timeline.Round(slowest), replicas-left)
}
