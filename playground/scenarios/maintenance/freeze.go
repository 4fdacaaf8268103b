package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// suddenFreeze is a pause that comes without notice: about a live migration.
	suddenFreeze = 2 * time.Second
	// announcedFreeze is the longest usual pause for maintenance that keeps a VM's memory.
	announcedFreeze = 10 * time.Second
	freezeNotice    = 15 * time.Second
	// maxPauseBeyond is how much longer than the freeze a pod may write nothing.
	maxPauseBeyond = time.Second
	// freezeAftermath is how long the scenario watches for a wrong decision after a freeze: longer
	// than it takes to find a node lost.
	freezeAftermath = 15 * time.Second
)

// Freeze is the scenario freeze.
var Freeze = scenario.Scenario{
	Name:    "freeze",
	Summary: "the node of a pod that writes is paused, for 2 s without notice and for 10 s with an announcement",
	Title:   "Azure pauses a virtual machine",
	Latency: "realistic",
	Run:     freeze,
}

// freeze pauses the node of a pod that writes, without notice and with it. The pod must stay where
// it is both times.
func freeze(ctx context.Context, e *scenario.Environment) error {
	w := scenario.Workload{
		Name:      "writer",
		MaxShares: 2,
		Replicas:  1,
	}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.StartAway(ctx, w)
	if err != nil {
		return err
	}
	if err := e.AwaitEarlierDisks(ctx); err != nil {
		return err
	}
	sudden, err := pause(ctx, e, "sudden", w, volumes[0], suddenFreeze, nil)
	if err != nil {
		return err
	}
	notice := freezeNotice
	announced, err := pause(ctx, e, "announced", w, volumes[0], announcedFreeze, &notice)
	if err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, w); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	for _, p := range []paused{sudden, announced} {
		from := p.freeze.Frozen
		if !p.freeze.Announced.IsZero() {
			from = p.freeze.Announced
		}
		figure := e.WholeFigure("The "+p.kind+" freeze", from, p.freeze.Thawed.Add(freezeAftermath))
		e.Report.Figures = append(e.Report.Figures, figure)
	}
	e.Report.Notes = append(e.Report.Notes,
		"The clocks of a paused VM stand still, and its time of day is corrected afterwards. The clocks of a frozen node of the playground go on, so that all timers that have become due fire when it goes on.")
	e.Report.Summary = fmt.Sprintf("The node of a pod was paused for %s without notice: %s. It was paused for %s with %s of notice: %s. %s",
		timeline.Round(suddenFreeze), sudden.story(), timeline.Round(announcedFreeze), timeline.Round(freezeNotice),
		announced.story(), e.RecordsLost())
	return nil
}

// paused is what became of a workload whose node was paused.
type paused struct {
	kind   string
	freeze state.Freeze
	// same says that the same pod holds the volume.
	same bool
	// write is how long it wrote nothing.
	write time.Duration
}

func (p paused) story() string {
	if p.same {
		return "the pod stayed and wrote nothing for " + timeline.Round(p.write)
	}
	return "the pod was moved and wrote nothing for " + timeline.Round(p.write)
}

// pause freezes the node of the workload and judges what became of it. When it returns, the
// workload writes, has its replica and its node is used again, also if it was fenced.
func pause(ctx context.Context, e *scenario.Environment, kind string, w scenario.Workload, v observer.Volume,
	length time.Duration, notice *time.Duration) (paused, error) {
	p := paused{kind: kind}
	if err := e.AwaitRecords(ctx, scenario.RecordsBeforeFault, w); err != nil {
		return p, err
	}
	before, err := e.SteadyOf([]scenario.Workload{w}, []observer.Volume{v})
	if err != nil {
		return p, err
	}
	node, began := before[0].Node, e.Clock.Now()
	e.Progress("freezing %s for %s (%s)", node, length, kind)
	if p.freeze, err = e.Freeze(ctx, node, length, notice); err != nil {
		return p, err
	}
	e.Progress("it goes on; watching for %s for wrong decisions", freezeAftermath)
	if err := e.AwaitTime(ctx, p.freeze.Thawed.Add(freezeAftermath)); err != nil {
		return p, err
	}
	p.same = e.LeftAlone(before[0])
	if err := e.AwaitWriting(ctx, w); err != nil {
		return p, err
	}
	if p.write, err = e.WritePause(ctx, w, began); err != nil {
		return p, err
	}
	if err := e.View.Await(ctx, scenario.BackTimeout, node+" is back",
		func() bool { return e.View.IsBack(node, p.freeze.Thawed) }); err != nil {
		return p, fmt.Errorf("%w: it is %s", err, e.View.DescribeNode(node))
	}
	if err := e.AwaitReplicas(ctx, w, v); err != nil {
		return p, err
	}
	p.record(e, before[0], began)
	return p, nil
}

func (p paused) record(e *scenario.Environment, before scenario.Steady, began time.Time) {
	stood := p.freeze.Thawed.Sub(p.freeze.Frozen)
	lost := observer.First(e.View.Observer.Marks(), began, observer.Milestone{Kind: observer.NodeUnreachable, Node: before.Node})
	taken := e.Taken(began)
	e.Metric("frozen_seconds_"+p.kind, scenario.Seconds(stood))
	e.Metric("write_pause_seconds_"+p.kind, scenario.Seconds(p.write))
	e.Metric("fences_"+p.kind, taken)
	e.Metric("unreachable_reason_"+p.kind, lost.Detail)
	e.Check("the "+p.kind+" freeze: the same pod has its volume", p.same, "on %s; the volume was %s, and is %s", before.Node,
		before.Primary, e.View.PrimaryOf(before.Volume.Name))
	e.Check("the "+p.kind+" freeze: no volume is taken from its node", taken == 0, "%d decisions and proofs; reason %q", taken,
		lost.Detail)
	e.Check(fmt.Sprintf("the %s freeze: the pod writes again at most %s after it", p.kind, maxPauseBeyond),
		p.write <= stood+maxPauseBeyond, "no record for %s, frozen for %s", timeline.Round(p.write), timeline.Round(stood))
}
