package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	handle   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1"
	vmPath   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/node-1"
	diskPath = handle
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

func movesOf(seconds ...float64) Series {
	var s Series
	for i, took := range seconds {
		requested := noon.Add(time.Duration(i) * time.Minute)
		s.Moves = append(s.Moves, Move{
			From:        "node-1",
			To:          "node-3",
			OntoReplica: true,
			Requested:   requested,
			Running:     requested.Add(time.Duration(took * float64(time.Second))),
		})
		s.Seconds = append(s.Seconds, took)
		s.DriverSeconds = append(s.DriverSeconds, 0.2)
		s.AzureWrites = append(s.AzureWrites, 0)
	}
	return s
}

func TestHistoryThatIsNotCleanFailsTheScenario(t *testing.T) {
	t.Parallel()
	lost := history.Result{Acknowledged: 2, Lost: make([]recorder.Ack, 1)}
	foreign := history.Result{Acknowledged: 2, Foreign: []history.Finding{{Kind: history.KindOldWriter}}}
	clean := history.Result{Acknowledged: 2}
	for name, test := range map[string]struct {
		results []history.Result
		passed  bool
	}{
		"clean":                         {[]history.Result{clean, clean}, true},
		"one lost":                      {[]history.Result{clean, lost}, false},
		"one foreign":                   {[]history.Result{foreign, clean}, false},
		"nothing was ever written":      {[]history.Result{{}}, false},
		"no workload was judged at all": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &Environment{Report: &timeline.Report{Metrics: map[string]any{}}}
			if e.RecordHistory(test.results...); e.Report.Passed() != test.passed {
				t.Errorf("got %+v, want passed %t", e.Report.Checks, test.passed)
			}
		})
	}
}

func TestTheTypicalMoveIsNearestToTheMedian(t *testing.T) {
	t.Parallel()
	if got := movesOf(9, 7, 8.1).Typical(); got != 2 {
		t.Errorf("move %d, want %d", got, 2)
	}
}

func TestTheLastWriteBeforeAndTheFirstOfAWriter(t *testing.T) {
	t.Parallel()
	var acks []recorder.Ack
	for i, w := range []struct {
		start  int64
		writer string
	}{{1, "a"}, {1, "a"}, {2, "b"}, {2, "b"}} {
		acks = append(acks, recorder.Ack{Record: recorder.Record{
			Sequence: int64(i + 1),
			Start:    w.start,
			Writer:   w.writer,
			Time:     noon.Add(time.Duration(i) * time.Second),
		}})
	}
	last, first := AroundStart(acks, "b")
	if !last.Equal(noon.Add(time.Second)) || !first.Equal(noon.Add(2*time.Second)) {
		t.Errorf("last %s, first %s, want %s, %s", last, first, noon.Add(time.Second), noon.Add(2*time.Second))
	}
	if last, first := AroundStart(acks[:2], "a"); !last.IsZero() || !first.Equal(noon) {
		t.Errorf("of the first writer: got last %s, first %s, want no time, %s", last, first, noon)
	}
}

func TestAFigureShowsOnlyWhatConcernsItsMove(t *testing.T) {
	t.Parallel()
	m := movesOf(8).Moves[0]
	m.Workload.Name, m.Volume.Name, m.Machines = "w", "pvc-1", []string{"node-1", "node-3"}
	e := &Environment{Events: &timeline.Log{}, Report: &timeline.Report{}}
	for i, subject := range []string{"w", "other", "pvc-1", "pvc-2", "node-1", "node-2", ""} {
		e.Events.Add(timeline.Event{At: noon.Add(time.Duration(i) * time.Second), Subject: subject})
	}
	e.Events.Add(timeline.Event{At: noon.Add(time.Minute), Subject: "w"})
	var subjects []string
	for _, ev := range e.EventsOf(m) {
		subjects = append(subjects, ev.Subject)
	}
	if !slices.Equal(subjects, []string{"w", "pvc-1", "node-1"}) {
		t.Errorf("events of %q, want %q", subjects, []string{"w", "pvc-1", "node-1"})
	}
}

func TestTheDriversShareCountsTheCallsOnThePathOfTheMove(t *testing.T) {
	t.Parallel()
	m := Move{Volume: observer.Volume{Handle: handle}, Requested: noon, Running: noon.Add(8 * time.Second)}
	during := noon.Add(4 * time.Second)
	tests := map[string]struct {
		calls []evidence.Call
		want  time.Duration
	}{
		"unpublish, publish and stage count": {
			[]evidence.Call{{Start: during, Duration: 1, Method: "ControllerUnpublishVolume", Volume: handle},
				{Start: during, Duration: 10, Method: "ControllerPublishVolume", Volume: handle},
				{Start: during, Duration: 100, Method: "NodeStageVolume", Volume: handle}}, 111},
		"failed attempts count": {
			[]evidence.Call{{Start: during, Duration: 5, Method: "NodeStageVolume", Volume: handle, Code: "Aborted"},
				{Start: during, Duration: 5, Method: "NodeStageVolume", Volume: handle, Code: "OK"}}, 10},
		"the case of a resource ID does not matter": {
			[]evidence.Call{{Start: during, Duration: 1, Method: "NodeStageVolume", Volume: strings.ToUpper(handle)}}, 1},
		"unstaging is not on the path": {
			[]evidence.Call{{Start: during, Duration: 1, Method: "NodeUnstageVolume", Volume: handle}}, 0},
		"another volume does not count": {
			[]evidence.Call{{Start: during, Duration: 1, Method: "NodeStageVolume", Volume: handle + "2"}}, 0},
		"a call before the move does not count": {
			[]evidence.Call{{Start: noon.Add(-1), Duration: 1, Method: "NodeStageVolume", Volume: handle}}, 0},
		"a call after the pod has started does not count": {
			[]evidence.Call{{Start: m.Running.Add(1), Duration: 1, Method: "NodeStageVolume", Volume: handle}}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := driverShare(test.calls, m); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestTheWritesOfAMoveAreCounted(t *testing.T) {
	t.Parallel()
	m := Move{
		Requested: noon,
		Running:   noon.Add(8 * time.Second),
		Machines:  []string{"node-1", "node-3"},
		Volume:    observer.Volume{Name: "pvc-1"},
	}
	during := noon.Add(time.Second)
	tests := map[string]struct {
		call evidence.AzureCall
		want int
	}{
		"an attach counts": {
			evidence.AzureCall{Time: during, Method: "POST", Path: vmPath + "/attachDetachDataDisks", Name: "node-1"}, 1},
		"an update of the VM counts": {evidence.AzureCall{Time: during, Method: "PUT", Path: vmPath, Name: "node-1"}, 1},
		"a write that was refused counts too": {
			evidence.AzureCall{Time: during, Method: "PATCH", Path: vmPath, Status: 409, Name: "node-1"}, 1},
		"an update of the disk counts":    {evidence.AzureCall{Time: during, Method: "PATCH", Path: diskPath, Name: "PVC-1"}, 1},
		"another disk does not":           {evidence.AzureCall{Time: during, Method: "PATCH", Path: diskPath, Name: "pvc-2"}, 0},
		"a VM of the other zone does not": {evidence.AzureCall{Time: during, Method: "PUT", Path: vmPath, Name: "node-2"}, 0},
		"a read does not":                 {evidence.AzureCall{Time: during, Method: "GET", Path: vmPath, Name: "node-1"}, 0},
		"the issue of a token does not": {
			evidence.AzureCall{Time: during, Method: "POST", Path: "/tenant/oauth2/v2.0/token"}, 0},
		"a write before the move does not": {evidence.AzureCall{Time: noon.Add(-1), Method: "PUT", Path: vmPath, Name: "node-1"},
			0},
		"a write after the pod's start does not": {
			evidence.AzureCall{Time: m.Running.Add(1), Method: "PUT", Path: vmPath, Name: "node-1"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := len(azureWrites([]evidence.AzureCall{test.call}, m)); got != test.want {
				t.Errorf("counted %d, want %d", got, test.want)
			}
		})
	}
}
