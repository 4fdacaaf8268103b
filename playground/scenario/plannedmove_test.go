package scenario

import (
	"testing"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

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
