package scenario

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMovesAwayFromANodeMeetItsKubeletAllOverItsPeriod(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		moves := rapid.IntRange(1, 9).Draw(t, "moves")
		s, now := newSpread(moves), noon
		begun := map[string][]time.Time{}
		for i := range moves {
			node := []string{"node-1", "node-3"}[i%2]
			at := s.next(node, now)
			if at.Before(now) || at.Sub(now) > kubeletPeriod {
				t.Fatalf("at %s the next move is to begin at %s", now, at)
			}
			begun[node] = append(begun[node], at)
			now = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took")))
		}
		for node, times := range begun {
			seen := map[time.Duration]bool{}
			for _, at := range times {
				seen[at.Sub(times[0])%kubeletPeriod] = true
			}
			if len(seen) != len(times) {
				t.Fatalf("%d moves away from %s at %d points of the period", len(times), node, len(seen))
			}
		}
	})
}
