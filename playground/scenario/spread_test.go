package scenario

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMovesWaitForTheKubeletOnceForEachPartOfItsPeriod(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		moves := rapid.IntRange(1, 9).Draw(t, "moves")
		now, parts := noon, map[int]bool{}
		for i := range moves {
			reported := now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "reported before")))
			start := SpreadStart(i, moves, reported, now)
			if start.Before(now) || start.Sub(now) > kubeletPeriod {
				t.Fatalf("at %s the next move is to begin at %s", now, start)
			}
			// What is left of the period, when the pod has come to its node, is the wait.
			wait := kubeletPeriod - start.Add(arrivalDelay).Sub(reported)%kubeletPeriod
			parts[int(wait*time.Duration(moves)/(kubeletPeriod+1))] = true
			now = start.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took")))
		}
		if len(parts) != moves {
			t.Fatalf("%d moves met %d parts of the period", moves, len(parts))
		}
	})
}

func TestAMoveBeginsAtOnceIfTheKubeletIsNotKnown(t *testing.T) {
	t.Parallel()
	if got := SpreadStart(2, 5, time.Time{}, noon); !got.Equal(noon) {
		t.Errorf("begins at %s, want %s", got, noon)
	}
}

func TestAStartInTheMiddleHasTheKubeletWaitForHalfAPeriod(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 3 * time.Second, 19 * time.Second} {
		for _, later := range []time.Duration{0, time.Second, time.Minute} {
			from := noon.Add(later)
			start := MiddleStart(noon, delay, from)
			if start.Before(from) || start.Sub(from) >= kubeletPeriod {
				t.Errorf("%s after the earliest time", start.Sub(from))
			}
			waits := start.Add(delay).Sub(noon) % kubeletPeriod
			if off := (waits - kubeletPeriod/2).Abs(); off > time.Microsecond {
				t.Errorf("delay %s: the kubelet waits from %s after a report on", delay, waits)
			}
		}
	}
}
