package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// auditTimeout bounds the reading of the disk by the pod that has it.
const auditTimeout = 30 * time.Second

// Series are the moves of one workload and what was measured of each, in order.
type Series struct {
	Moves []Move
	// Seconds is how long each move took.
	Seconds []float64
	// DriverSeconds is the driver's share of each.
	DriverSeconds []float64
	// PauseSeconds is how long the workload could not write.
	PauseSeconds []float64
	// AzureWrites counts the writes to Azure during each.
	AzureWrites []int
}

// Calls are the calls to the driver, as its log tells, and to Azure, as azuresim recorded them, in
// some time.
type Calls struct {
	Driver []evidence.Call
	Azure  []evidence.AzureCall
}

// gather returns what it could read, also with an error.
func (e *Environment) gather(ctx context.Context, since time.Time) (Calls, error) {
	calls, noCalls := e.driverCalls(ctx, since)
	azure, noAzure := e.Azure.Since(ctx, since)
	return Calls{calls, azure}, errors.Join(noCalls, noAzure)
}

// AddEvidence adds what the driver and Azure did since then to the timeline, as far as it concerns
// the scenario's volumes. It adds and returns what it could read, also with an error.
func (e *Environment) AddEvidence(ctx context.Context, since time.Time) (Calls, error) {
	found, err := e.gather(ctx, since)
	e.Events.Add(found.events(e.View.Observer.AllVolumes()...)...)
	return found, err
}

// Measure adds what the evidence tells to the moves, and makes the series.
func Measure(moves []Move, found Calls) Series {
	s := Series{Moves: moves}
	for _, m := range moves {
		s.Seconds = append(s.Seconds, Seconds(m.Took()))
		s.DriverSeconds = append(s.DriverSeconds, Seconds(driverShare(found.Driver, m)))
		s.PauseSeconds = append(s.PauseSeconds, Seconds(m.Pause()))
		s.AzureWrites = append(s.AzureWrites, len(azureWrites(found.Azure, m)))
	}
	return s
}

// Seconds is the duration in seconds, to the millisecond.
func Seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// TotalAzureWrites counts the writes to Azure during all moves.
func (s Series) TotalAzureWrites() int {
	sum := 0
	for _, n := range s.AzureWrites {
		sum += n
	}
	return sum
}

// Typical is the index of the move whose time is nearest to the median.
func (s Series) Typical() int {
	median, best := timeline.Median(s.Seconds), 0
	for i, v := range s.Seconds {
		if math.Abs(v-median) < math.Abs(s.Seconds[best]-median) {
			best = i
		}
	}
	return best
}

// events are those of the driver and of Azure that concern the scenario's volumes.
func (c Calls) events(volumes ...observer.Volume) []timeline.Event {
	var events []timeline.Event
	for _, call := range c.Driver {
		i := slices.IndexFunc(volumes, func(v observer.Volume) bool { return strings.EqualFold(v.Handle, call.Volume) })
		if i >= 0 && !strings.Contains(call.Method, "Stats") {
			events = append(events, call.Event(volumes[i].Workload))
		}
	}
	for _, call := range c.Azure {
		if call.IsWrite() && evidence.ChangesDiskOrVM(call) {
			events = append(events, call.Event(c.Azure))
		}
	}
	return events
}

// Writes are the moments at which the workload's old pod wrote last and the new one first.
func (m Move) Writes() []timeline.Event {
	var events []timeline.Event
	for _, w := range []struct {
		at         time.Time
		node, step string
	}{{m.LastWrite, m.From, "last record"}, {m.FirstWrite, m.To, "first record"}} {
		if !w.at.IsZero() {
			events = append(events, timeline.Event{
				At:      w.at,
				Lane:    timeline.Node(w.node),
				Kind:    timeline.Workload,
				Source:  "workload",
				Step:    w.step,
				Subject: m.Workload.Name,
				Detail:  "acknowledged to the collector outside the nodes",
			})
		}
	}
	return events
}

// Figure draws the move. Events of other workloads have been left out by the caller.
func (m Move) Figure(title string, events []timeline.Event, headline bool) timeline.Figure {
	caption := fmt.Sprintf("From %s to %s, to which the disk was not attached.", m.From, m.To)
	note := "the pod arrives"
	if m.OntoReplica {
		caption = fmt.Sprintf("From %s to %s, which held a replica of the disk: attached, and not in use.", m.From, m.To)
		note = "the pod arrives at a replica"
	}
	return timeline.Figure{
		Title:    fmt.Sprintf("%s: %s", title, timeline.Round(m.Took())),
		Caption:  caption,
		Start:    m.Requested,
		End:      m.end().Add(m.Took() / 25),
		Headline: headline,
		Lanes:    lanes(nodeLane(m.From, "the pod leaves"), nodeLane(m.To, note)),
		Events:   events,
		Gap:      writePause(m.LastWrite, m.FirstWrite),
	}
}

// EventsOf are the events during the move that concern its workload, its disk or its machines.
func (e *Environment) EventsOf(m Move) []timeline.Event {
	return slices.DeleteFunc(e.Events.Between(m.Requested, m.end()), func(ev timeline.Event) bool {
		return ev.Subject != m.Workload.Name && !m.involves(ev.Subject)
	})
}

// end is when the pod runs and writes.
func (m Move) end() time.Time {
	if m.FirstWrite.After(m.Running) {
		return m.FirstWrite
	}
	return m.Running
}

// lanes are the lanes of a figure, with those of the nodes in the middle.
func lanes(nodes ...timeline.LaneTitle) []timeline.LaneTitle {
	all := []timeline.LaneTitle{{
		Lane:  timeline.Kubernetes,
		Title: "Kubernetes",
	}, {Lane: timeline.Controller, Title: "Driver controller"}}
	all = append(all, nodes...)
	return append(all, timeline.LaneTitle{
		Lane:  timeline.Azure,
		Title: "Azure",
		Note:  "writes only",
	})
}

func nodeLane(node, note string) timeline.LaneTitle {
	return timeline.LaneTitle{
		Lane:  timeline.Node(node),
		Title: node,
		Note:  note,
	}
}

// writePause is the time in which the workload could not write, nil if it is not known.
func writePause(last, first time.Time) *timeline.Span {
	if last.IsZero() {
		return nil
	}
	return &timeline.Span{
		Start: last,
		End:   first,
		Label: "no pod could write for " + timeline.Round(first.Sub(last)),
	}
}

// WholeFigure draws everything that happened between those times, without a node in
// particular.
func (e *Environment) WholeFigure(title string, from, to time.Time) timeline.Figure {
	var nodes []timeline.LaneTitle
	for _, node := range e.View.Nodes("") {
		nodes = append(nodes, nodeLane(node, ""))
	}
	return timeline.Figure{
		Title:    title,
		Start:    from,
		End:      to.Add(to.Sub(from) / 25),
		Headline: true,
		Lanes:    lanes(nodes...),
		Events:   e.Events.Between(from, to),
	}
}

// JudgeHistory has the workload's pod read its disk and compares that with what was
// acknowledged until then.
func (e *Environment) JudgeHistory(ctx context.Context, w Workload) (history.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	received, err := e.Collector.Audit(ctx, w.Name)
	if err != nil {
		return history.Result{}, err
	}
	if !received.ContentDirect {
		return history.Result{}, fmt.Errorf("the disk of %s could only be read through the page cache", w.Name)
	}
	return history.Check(received.Acks, received.Content), nil
}

// JudgeAll has the pods read their disks, compares that with what was acknowledged, and records the
// result.
func (e *Environment) JudgeAll(ctx context.Context, workloads ...Workload) error {
	e.Progress("reading the disks and comparing them with the acknowledged records")
	var results []history.Result
	for _, w := range workloads {
		judged, err := e.JudgeHistory(ctx, w)
		if err != nil {
			return err
		}
		results = append(results, judged)
	}
	e.RecordHistory(results...)
	return nil
}

// RecordsLost is a sentence about the records that judgeAll compared.
func (e *Environment) RecordsLost() string {
	return fmt.Sprintf("Of %v acknowledged records %v are lost.", e.Report.Metrics["acknowledged_records"],
		e.Report.Metrics["lost_records"])
}

// RecordHistory makes metrics and checks of the judgements of all workloads.
func (e *Environment) RecordHistory(results ...history.Result) {
	var acknowledged, onDisk, lost, foreign, writers, torn int
	var examples []string
	for _, r := range results {
		acknowledged += r.Acknowledged
		onDisk += r.OnDisk
		lost += len(r.Lost)
		foreign += len(r.Foreign)
		writers += r.Writers
		torn += r.Torn
		for _, f := range r.Foreign[:min(len(r.Foreign), 3)] {
			examples = append(examples, fmt.Sprintf("line %d: %s, %s", f.Entry.Line, f.Kind, f.Detail))
		}
	}
	e.Metric("acknowledged_records", acknowledged)
	e.Metric("records_on_disk", onDisk)
	e.Metric("lost_records", lost)
	e.Metric("foreign_records", foreign)
	e.Metric("torn_records", torn)
	e.Metric("writers", writers)
	e.Check("every acknowledged record is on the disk", lost == 0 && acknowledged > 0,
		"%d lost of %d acknowledged; the disks hold %d", lost, acknowledged, onDisk)
	e.Check("no record of an old pod follows the first of a new one", foreign == 0,
		"%d foreign records among those of %d pods %s", foreign, writers, strings.Join(examples, "; "))
}

// driverCalls are the calls since that time in the logs of all plug-ins, those of pods
// of pods that do not exist any more included.
func (e *Environment) driverCalls(ctx context.Context, since time.Time) ([]evidence.Call, error) {
	e.logs.CatchUp(ctx, since)
	calls := e.logs.CallsSince(since)
	if len(calls) == 0 {
		return nil, errors.New("the driver's logs hold no CSI call; is its log format json and its level info?")
	}
	return calls, nil
}

// driverShare is the time that the driver spent in the calls on the path of a move,
// failed attempts included.
func driverShare(calls []evidence.Call, m Move) time.Duration {
	var sum time.Duration
	for _, c := range calls {
		if slices.Contains(onThePath, c.Method) && m.concerns(c) {
			sum += c.Duration
		}
	}
	return sum
}

// concerns reports whether the call is one for the move's volume that began during it.
func (m Move) concerns(c evidence.Call) bool {
	return strings.EqualFold(c.Volume, m.Volume.Handle) && !c.Start.Before(m.Requested) && !c.Start.After(m.Running)
}

// onThePath are the calls of a move that Kubernetes waits for between the old pod's
// end and the new one's start.
var onThePath = []string{"ControllerUnpublishVolume", "ControllerPublishVolume", "NodeStageVolume"}

// azureWrites are the calls during the move that change its disk or a VM to which
// that may be attached.
func azureWrites(calls []evidence.AzureCall, m Move) []evidence.AzureCall {
	var writes []evidence.AzureCall
	for _, c := range calls {
		if c.IsWrite() && !c.Time.Before(m.Requested) && !c.Time.After(m.Running) && evidence.ChangesDiskOrVM(c) &&
			m.involves(c.Name) {
			writes = append(writes, c)
		}
	}
	return writes
}
