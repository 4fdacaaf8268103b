package replicas

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

func movesOf(seconds ...float64) scenario.Series {
	s := scenario.Series{Seconds: seconds, AzureWrites: make([]int, len(seconds))}
	for range seconds {
		s.Moves = append(s.Moves, scenario.Move{
			From:        "node-1",
			To:          "node-3",
			OntoReplica: true,
		})
		s.DriverSeconds = append(s.DriverSeconds, 0.2)
	}
	return s
}

func judged(with, without scenario.Series) *timeline.Report {
	// The clock stands still, so that the machine is not slow.
	e := &scenario.Environment{Report: &timeline.Report{Metrics: map[string]any{}}}
	e.Clock = clocktesting.NewFakeClock(time.Time{})
	recordMoves(e, with, without)
	return e.Report
}

func TestTheMeasuresOfPlannedMoveAreHeldToTheirBounds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(with, without *scenario.Series)
		passed bool
	}{
		"within all bounds": {func(_, _ *scenario.Series) {}, true},
		"a replicated move takes too long": {func(with, without *scenario.Series) {
			*with, *without = movesOf(10.1), movesOf(
				30)
		}, false},
		"it is not twice as fast": {func(_, without *scenario.Series) { *without = movesOf(9) }, false},
		"the driver takes too long": {func(with, _ *scenario.Series) {
			with.DriverSeconds = []float64{0.2, 0.61,
				0.7}
		}, false},
		"a driver share of 0 was not measured": {func(with, _ *scenario.Series) { with.DriverSeconds = []float64{0, 0, 0} },
			false},
		"one write to Azure":                 {func(with, _ *scenario.Series) { with.AzureWrites[1] = 1 }, false},
		"a move to a node without a replica": {func(with, _ *scenario.Series) { with.Moves[0].OntoReplica = false }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := movesOf(4.5, 5, 5.5), movesOf(25, 26, 27)
			test.change(&with, &without)
			if report := judged(with, without); report.Passed() != test.passed {
				t.Errorf("got %+v, want passed %t", report.Checks, test.passed)
			}
		})
	}
}

func TestTheMetricsHaveTheNamesThatProgramsReadThemBy(t *testing.T) {
	t.Parallel()
	report := judged(movesOf(7.5, 8, 9), movesOf(25, 26, 27))
	for name, want := range map[string]any{
		"move_replicated_seconds": 8.0, "move_unreplicated_seconds": 26.0, "driver_share_replicated_seconds": 0.2,
		"azure_writes_on_replicated_path": 0,
	} {
		if got := report.Metrics[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
