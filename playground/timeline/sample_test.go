package timeline_test

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

var began = time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

func long(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

var moveLanes = []timeline.LaneTitle{
	{Lane: timeline.Kubernetes, Title: "Kubernetes"},
	{Lane: timeline.Controller, Title: "Driver controller"},
	{Lane: timeline.Node("node-1"), Title: "node-1", Note: "the pod leaves"},
	{Lane: timeline.Node("node-3"), Title: "node-3", Note: "the pod arrives"},
	{Lane: timeline.Azure, Title: "Azure"},
}

// sampleMove has the shape of a replicated move.
func sampleMove(offset float64) []timeline.Event {
	t := func(s float64) time.Time { return at(offset + s) }
	return []timeline.Event{
		{At: t(0), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "pod deletion requested", Source: "scenario"},
		{At: t(0.02), Duration: long(0.05), Lane: timeline.Node("node-1"), Kind: timeline.Workload, Step: "last record 812",
			Source: "workload"},
		{At: t(0.9), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "old pod is gone", Source: "kubernetes"},
		{At: t(0.95), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "new pod scheduled to node-3", Source: "kubernetes"},
		{At: t(1.1), Duration: long(0.12), Lane: timeline.Node("node-1"), Kind: timeline.Call, Step: "NodeUnstage 120 ms",
			Source: "driver node"},
		{At: t(4.0), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "VolumeAttachment of node-1 to be deleted",
			Source: "kubernetes"},
		{At: t(4.01), Duration: long(0.06), Lane: timeline.Controller, Kind: timeline.Call, Step: "ControllerUnpublish 60 ms",
			Source: "driver controller"},
		{At: t(4.2), Duration: long(0.05), Lane: timeline.Controller, Kind: timeline.Call, Step: "ControllerPublish 50 ms",
			Source: "driver controller"},
		{At: t(4.22), Lane: timeline.Controller, Kind: timeline.State, Step: "epoch 4: node-3 is primary <&>",
			Source: "kubernetes"},
		{At: t(4.3), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "VolumeAttachment of node-3 attached",
			Source: "kubernetes"},
		{At: t(6.4), Duration: long(0.1), Lane: timeline.Node("node-3"), Kind: timeline.Call, Step: "NodeStage refused",
			Detail: "still Attaching", Failed: true, Source: "driver node"},
		{At: t(6.9), Duration: long(0.21), Lane: timeline.Node("node-3"), Kind: timeline.Call, Step: "NodeStage 210 ms",
			Source: "driver node"},
		{At: t(7.5), Lane: timeline.Kubernetes, Kind: timeline.State, Step: "new pod is running", Source: "kubernetes"},
		{At: t(7.55), Lane: timeline.Node("node-3"), Kind: timeline.Workload, Step: "first record 813", Source: "workload"},
	}
}

func sampleReport() *timeline.Report {
	slow := append(sampleMove(20), timeline.Event{
		At:       at(24.1),
		Duration: long(2.2),
		Lane:     timeline.Azure,
		Kind:     timeline.Operation,
		Step:     "detach from node-1",
		Source:   "azuresim",
	})
	figure := func(title string, offset float64, events []timeline.Event, headline bool) timeline.Figure {
		return timeline.Figure{
			Title:    title,
			Caption:  "From node-1 to node-3, whose replica of the disk was promoted.",
			Start:    at(offset),
			End:      at(offset + 7.9),
			Lanes:    moveLanes,
			Events:   events,
			Headline: headline,
			Gap:      &timeline.Span{Start: at(offset + 0.02), End: at(offset + 7.55), Label: "no writes for 7.5 s"},
		}
	}
	return &timeline.Report{
		Scenario: "planned-move",
		Title:    "Moving a pod that writes to its disk",
		Summary:  "A pod that writes some 80 records a second was moved to another node 8 times. With a replica of its disk a move took 7.5 s, without one 26.1 s. Nothing that was acknowledged is lost.",
		Started:  began,
		Ended:    at(200),
		Checks: []timeline.Check{
			{Name: "a replicated move takes at most 10 s", Passed: true, Detail: "7.5 s"},
			{Name: "no acknowledged record is lost", Passed: true, Detail: "0 of 9143"},
		},
		Metrics: map[string]any{
			"move_replicated_seconds": 7.5,
			"lost_records":            0,
			"move_replicated_all":     []float64{7.4, 7.5, 8.1},
		},
		Events: append(sampleMove(0), slow...),
		Comparison: &timeline.Comparison{Title: "How long a move took", Groups: []timeline.Group{
			{Title: "With a replica", Seconds: []float64{7.4, 7.5, 8.1, 7.3, 7.9}, Good: true},
			{Title: "Without", Seconds: []float64{26.1, 24.9, 31.0}},
		}},
		Figures: []timeline.Figure{
			figure("A move with a replica: 7.5 s", 0, sampleMove(0), true),
			figure("Another move", 20, slow, false),
		},
		Notes: []string{"Azure is played by azuresim."},
	}
}
