package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

func movesOf(seconds ...float64) Series {
	var s Series
	for i, took := range seconds {
		requested := noon.Add(time.Duration(i) * time.Minute)
		s.Moves = append(s.Moves, Move{
			From: "node-1", To: "node-3", OntoReplica: true,
			Requested: requested, Running: requested.Add(time.Duration(took * float64(time.Second))),
		})
		s.Seconds = append(s.Seconds, took)
		s.DriverSeconds = append(s.DriverSeconds, 0.2)
		s.AzureWrites = append(s.AzureWrites, 0)
	}
	return s
}

func judged(with, without Series) *timeline.Report {
	e := &Environment{Report: &timeline.Report{Metrics: map[string]any{}}}
	e.recordMoves(with, without)
	return e.Report
}

func TestTheMeasuresOfPlannedMoveAreHeldToTheirBounds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(with, without *Series)
		passed bool
	}{
		"within all bounds":                    {func(_, _ *Series) {}, true},
		"a replicated move takes too long":     {func(with, without *Series) { *with, *without = movesOf(10.1), movesOf(30) }, false},
		"it is not twice as fast":              {func(_, without *Series) { *without = movesOf(15) }, false},
		"the driver takes too long":            {func(with, _ *Series) { with.DriverSeconds = []float64{0.2, 0.51, 0.6} }, false},
		"a driver share of 0 was not measured": {func(with, _ *Series) { with.DriverSeconds = []float64{0, 0, 0} }, false},
		"one write to Azure":                   {func(with, _ *Series) { with.AzureWrites[1] = 1 }, false},
		"a move to a node without a replica":   {func(with, _ *Series) { with.Moves[0].OntoReplica = false }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := movesOf(7.5, 8, 9), movesOf(25, 26, 27)
			test.change(&with, &without)
			if report := judged(with, without); report.Passed() != test.passed {
				t.Errorf("%+v", report.Checks)
			}
		})
	}
}

func TestTheMetricsHaveTheNamesThatProgramsReadThemBy(t *testing.T) {
	t.Parallel()
	e := &Environment{Report: judged(movesOf(7.5, 8, 9), movesOf(25, 26, 27))}
	e.recordHistory(history.Result{Acknowledged: 10, OnDisk: 11, Writers: 2})
	for name, want := range map[string]any{
		"move_replicated_seconds": 8.0, "move_unreplicated_seconds": 26.0, "driver_share_replicated_seconds": 0.2,
		"azure_writes_on_replicated_path": 0, "acknowledged_records": 10, "lost_records": 0, "foreign_records": 0,
	} {
		if got := e.Report.Metrics[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
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
			if e.recordHistory(test.results...); e.Report.Passed() != test.passed {
				t.Errorf("%+v", e.Report.Checks)
			}
		})
	}
}

func TestTheTypicalMoveIsNearestToTheMedian(t *testing.T) {
	t.Parallel()
	if got := movesOf(9, 7, 8.1).typical(); got != 2 {
		t.Errorf("move %d", got)
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
			Sequence: int64(i + 1), Start: w.start, Writer: w.writer, Time: noon.Add(time.Duration(i) * time.Second),
		}})
	}
	last, first := aroundStart(acks, "b")
	if !last.Equal(noon.Add(time.Second)) || !first.Equal(noon.Add(2*time.Second)) {
		t.Errorf("last %s, first %s", last, first)
	}
	if last, first := aroundStart(acks[:2], "a"); !last.IsZero() || !first.Equal(noon) {
		t.Errorf("of the first writer: last %s, first %s", last, first)
	}
}

func TestAFigureShowsOnlyWhatConcernsItsMove(t *testing.T) {
	t.Parallel()
	m := movesOf(8).Moves[0]
	m.Workload.Name, m.Volume.Name, m.Machines = "w", "pvc-1", []string{"node-1", "node-3"}
	e := &Environment{events: &timeline.Log{}, Report: &timeline.Report{}}
	for i, subject := range []string{"w", "other", "pvc-1", "pvc-2", "node-1", "node-2", ""} {
		e.events.Add(timeline.Event{At: noon.Add(time.Duration(i) * time.Second), Subject: subject})
	}
	e.events.Add(timeline.Event{At: noon.Add(time.Minute), Subject: "w"})
	var subjects []string
	for _, ev := range e.eventsOf(m) {
		subjects = append(subjects, ev.Subject)
	}
	if !slices.Equal(subjects, []string{"w", "pvc-1", "node-1"}) {
		t.Errorf("events of %q", subjects)
	}
}

func TestScenariosAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, s := range All {
		if got, err := Find(s.Name); err != nil || got.Title != s.Title || s.Summary == "" || s.Title == "" {
			t.Errorf("%s: %+v, %v", s.Name, got, err)
		}
	}
	if _, err := Find("nonsense"); err == nil {
		t.Error("an unknown scenario was found")
	}
}
