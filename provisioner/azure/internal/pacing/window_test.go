package pacing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// mostIn returns the most requests in any span of that length; times are in their order.
func mostIn(times []time.Time, length time.Duration) int {
	most, first := 0, 0
	for i, at := range times {
		for at.Sub(times[first]) >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestABurstUsesAWindowAndTheRestFollowsWhenItHasPassed(t *testing.T) {
	p, s := NewPacer(), Scope{Policy: PutSnapshot, Resource: "sub"}
	const atOnce = 240 - margin
	for i := range 2 * atOnce {
		want := time.Duration(0)
		if i >= atOnce {
			want = 3 * time.Minute
		}
		if got := p.Take(began, s); got != want {
			t.Fatalf("request %d waits %v, want %v", i+1, got, want)
		}
	}
}

func TestNoSpanHasMoreRequestsThanAWindowAllows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, s := NewPacer(), Scope{Policy: PutSnapshot, Resource: "sub"}
		now, sent := began, []time.Time{}
		for range rapid.IntRange(1, 3000).Draw(rt, "requests") {
			if rapid.IntRange(0, 99).Draw(rt, "pause") == 0 {
				now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "seconds")) * time.Second)
			}
			sent = append(sent, now.Add(p.Take(now, s)))
		}
		for length, limit := range map[time.Duration]int{3 * time.Minute: 240, 30 * time.Minute: 1920} {
			if got := mostIn(sent, length); got > limit {
				rt.Fatalf("%d requests within %v, want at most %d", got, length, limit)
			}
		}
	})
}

func TestWhatOthersSentCountsInAWindow(t *testing.T) {
	p, s := NewPacer(), Scope{Policy: ListDisks, Resource: "sub"}
	p.Take(began, s)
	p.Learn(began, s, "Microsoft.Compute/HighCostGet", []Remaining{
		{Policy: "Microsoft.Compute/HighCostGet30Min", Left: 1700},
		{Policy: "Microsoft.Compute/HighCostGet3Min", Left: 2},
		{Policy: "Microsoft.Compute/LowCostGet3Min", Left: 0},
	})
	for i, want := range []time.Duration{0, 0, 3 * time.Minute} {
		if got := p.Take(began, s); got != want {
			t.Errorf("list %d after the answer waits %v, want %v", i+1, got, want)
		}
	}
	if got := p.Delay(began.Add(3*time.Minute), s); got != 0 {
		t.Errorf("3 minutes later a list waits %v, want 0", got)
	}
}
