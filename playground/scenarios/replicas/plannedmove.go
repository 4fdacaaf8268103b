package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// How many moves planned-move measures.
const (
	replicatedMoves   = 5
	unreplicatedMoves = 3
)

// PlannedMove is the scenario planned-move.
var PlannedMove = scenario.Scenario{
	Name:    "planned-move",
	Summary: "a pod that writes is moved between nodes, with a replica of its disk and without",
	Title:   "Moving a pod that writes to its disk",
	Latency: "realistic",
	Run:     plannedMove,
}

// plannedMove moves the same workload on a disk with a replica and on one without.
// Both are moved at the same time, each in a zone of its own, so that they share no
// node and neither disturbs what is measured of the other.
func plannedMove(ctx context.Context, e *scenario.Environment) error {
	zones := e.View.Zones()
	if len(zones) < 2 {
		return errors.New("planned-move needs two zones of at least two nodes each: bring the playground up with 4 nodes or more")
	}
	replicated := scenario.Workload{
		Name:      "replicated",
		MaxShares: 2,
		Replicas:  1,
		Zone:      zones[0],
	}
	unreplicated := scenario.Workload{
		Name:      "unreplicated",
		MaxShares: 1,
		Zone:      zones[1],
	}
	e.Progress("making two pods that write: one on a disk with a replica, one on a disk without")
	volumes, err := e.Start(ctx, replicated, unreplicated)
	if err != nil {
		return err
	}
	var fast, slow []scenario.Move
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		fast, err = moveTimes(groupCtx, e, replicated, volumes[0], replicatedMoves)
		return err
	})
	group.Go(func() (err error) {
		slow, err = moveTimes(groupCtx, e, unreplicated, volumes[1], unreplicatedMoves)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, replicated, unreplicated); err != nil {
		return err
	}
	found, err := e.AddEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	with, without := scenario.Measure(fast, found), scenario.Measure(slow, found)
	for _, m := range slices.Concat(fast, slow) {
		e.Events.Add(m.Writes()...)
	}
	recordMoves(e, with, without)
	draw(e, with, without)
	summarize(e, with, without)
	return nil
}

func moveTimes(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume, times int) ([]scenario.Move,
	error) {
	var moves []scenario.Move
	for i := range times {
		if pod := e.View.Pod(w.Pod()); pod != nil {
			reported := e.View.Observer.ReportedUse(replicaElsewhere(e, v, pod.Spec.NodeName))
			if err := e.AwaitTime(ctx, scenario.SpreadStart(i, times, reported, e.Clock.Now())); err != nil {
				return moves, err
			}
		}
		m, err := e.Move(ctx, w, v)
		if err != nil {
			return moves, fmt.Errorf("move %d of %s: %w", i+1, w.Name, err)
		}
		e.Progress("%s, move %d of %d: %s to %s in %s", w.Name, i+1, times, m.From, m.To, timeline.Round(m.Took()))
		moves = append(moves, m)
		if err := e.AwaitReplicas(ctx, w, v); err != nil {
			return moves, err
		}
	}
	return moves, nil
}

// replicaElsewhere is a node other than that one that has the disk; empty if there is none.
func replicaElsewhere(e *scenario.Environment, v observer.Volume, node string) string {
	for other := range e.View.Attachments(v.Name) {
		if other != node {
			return other
		}
	}
	return ""
}

func recordMoves(e *scenario.Environment, with, without scenario.Series) {
	fast, slow := timeline.Median(with.Seconds), timeline.Median(without.Seconds)
	share := timeline.Median(with.DriverSeconds)
	e.Metric("move_replicated_seconds", fast)
	e.Metric("move_replicated_all", with.Seconds)
	e.Metric("move_unreplicated_seconds", slow)
	e.Metric("move_unreplicated_all", without.Seconds)
	e.Metric("write_pause_replicated_seconds", timeline.Median(with.PauseSeconds))
	e.Metric("write_pause_replicated_all", with.PauseSeconds)
	e.Metric("write_pause_unreplicated_seconds", timeline.Median(without.PauseSeconds))
	e.Metric("write_pause_unreplicated_all", without.PauseSeconds)
	e.Metric("driver_share_replicated_seconds", share)
	e.Metric("driver_share_replicated_all", with.DriverSeconds)
	e.Metric("driver_share_unreplicated_seconds", timeline.Median(without.DriverSeconds))
	e.Metric("driver_share_unreplicated_all", without.DriverSeconds)
	e.Metric("azure_writes_on_replicated_path", with.TotalAzureWrites())
	e.Metric("azure_writes_on_unreplicated_path", without.TotalAzureWrites())

	most, mostShare := e.PodLimit("planned-move"), e.Limit("planned-move-driver")
	e.Check(fmt.Sprintf("a move with a replica takes at most %g s", most), fast <= most,
		"median %.2f s of %s", fast, list(with.Seconds))
	e.Check("it takes at most half of a move without", fast <= slow/2,
		"%.2f s against %.2f s: %.1f times as fast", fast, slow, slow/fast)
	e.Check(fmt.Sprintf("the driver's share of it is at most %g s", mostShare), share <= mostShare && share > 0,
		"median %.3f s of %s in Unpublish, Publish and Stage", share, list(with.DriverSeconds))
	e.Check("nothing is written to Azure during it", with.TotalAzureWrites() == 0,
		"%d writes in %d moves; %d in the %d moves without a replica", with.TotalAzureWrites(), len(with.Moves),
		without.TotalAzureWrites(), len(without.Moves))
	onto := 0
	for _, m := range with.Moves {
		if m.OntoReplica {
			onto++
		}
	}
	e.Metric("moves_onto_a_replica", onto)
	e.Check("the pod goes to the node with the replica", onto == len(with.Moves), "%d of %d moves", onto, len(with.Moves))
}

func list(values []float64) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, fmt.Sprintf("%.3g", v))
	}
	return strings.Join(parts, ", ")
}

// draw makes the figures; the typical move of each kind comes first.
func draw(e *scenario.Environment, with, without scenario.Series) {
	e.Report.Comparison = &timeline.Comparison{
		Title: "From the deletion of the pod until it runs elsewhere",
		Groups: []timeline.Group{
			{Title: "With a replica", Seconds: with.Seconds, Good: true},
			{Title: "Without a replica", Seconds: without.Seconds},
		},
	}
	var headlines, others []timeline.Figure
	for _, kind := range []struct {
		title  string
		series scenario.Series
	}{{"with a replica", with}, {"without a replica", without}} {
		typical := kind.series.Typical()
		for i, m := range kind.series.Moves {
			figure := m.Figure(fmt.Sprintf("Move %d of %d %s", i+1, len(kind.series.Moves), kind.title), e.EventsOf(m),
				i == typical)
			if i == typical {
				headlines = append(headlines, figure)
			} else {
				others = append(others, figure)
			}
		}
	}
	e.Report.Figures = slices.Concat(headlines, others)
	e.Report.Notes = []string{
		"Kubernetes, its kubelets, containerd and the driver are the real programs; each node is a set of namespaces on one machine. Azure is simulated by azuresim, whose attach takes 6 to 12 seconds and whose detach 16 to 17, with a tail, as in recorded sessions with Azure.",
		"The time of a move runs from the request to delete the pod until a watch showed the next pod Running and Ready on another node.",
		"Most of a replicated move is Kubernetes' own work. With VolumeAttachments the kubelet of the new node mounts a volume only after its next status, every 10 seconds, has said that it uses the volume. The moves begin at different points of that period, evenly spread, so that the median does not depend on chance.",
		"The pod with a replica and the one without are moved at the same time, in different zones: they share no node.",
		"The driver's share is the sum of what its own log gives as the durations of ControllerUnpublishVolume, ControllerPublishVolume and NodeStageVolume, failed attempts included.",
		"The pod appends numbered records with fsync and reports each number to a collector outside the nodes only afterwards. At the end the disk is read around the page cache and compared with what the collector has received.",
	}
}

func summarize(e *scenario.Environment, with, without scenario.Series) {
	fast, slow := timeline.Median(with.Seconds), timeline.Median(without.Seconds)
	e.Report.Summary = fmt.Sprintf(
		"A pod that writes to a disk was moved to another node %d times. With a replica of the disk attached to another node it ran again after %.1f s, of which the driver took %.2f s; Azure was asked for %s. "+
			"Without a replica, when the disk has to be detached and attached again, it took %.1f s. %s",
		len(with.Moves)+len(without.Moves), fast, timeline.Median(with.DriverSeconds), changes(with.TotalAzureWrites()), slow,
		e.RecordsLost())
}

func changes(n int) string {
	switch n {
	case 0:
		return "nothing"
	case 1:
		return "one change"
	}
	return fmt.Sprintf("%d changes", n)
}
