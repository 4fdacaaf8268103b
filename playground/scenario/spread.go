package scenario

import (
	"time"
)

const (
	// kubeletPeriod is how often a kubelet says which volumes it uses: its
	// nodeStatusUpdateFrequency, 10 s by default, to which it adds up to 4 % at random.
	kubeletPeriod = 10200 * time.Millisecond
	// arrivalDelay is about how long it takes from the request to delete a pod until the
	// next one has come to its kubelet.
	arrivalDelay = 1200 * time.Millisecond
)

// SpreadStart says when the i-th of some moves is to begin, so that the next report of the
// new node's kubelet comes once early, once late, and evenly in between, after the pod
// has come there. Otherwise the wait of a move for that report, and the median of a few moves,
// would depend on chance. reported is when that kubelet last reported; from
// is the earliest time.
func SpreadStart(i, moves int, reported, from time.Time) time.Time {
	if reported.IsZero() {
		return from
	}
	// Every move gets a part of the period; neighbours in time get parts far apart.
	part := i * spreadStep(moves) % moves
	wait := kubeletPeriod * time.Duration(2*part+1) / time.Duration(2*moves)
	start := reported.Add(-wait - arrivalDelay)
	if behind := from.Sub(start); behind > 0 {
		start = start.Add((behind + kubeletPeriod - 1) / kubeletPeriod * kubeletPeriod)
	}
	return start
}

// MiddleStart says when something is to begin after which a kubelet waits for its own
// next report from that delay on, so that it waits for half a period: as long as it does
// on average. reported is when that kubelet last reported; from is the earliest time.
func MiddleStart(reported time.Time, delay time.Duration, from time.Time) time.Time {
	start := reported.Add(-delay - kubeletPeriod/2)
	if behind := from.Sub(start); behind > 0 {
		start = start.Add((behind + kubeletPeriod - 1) / kubeletPeriod * kubeletPeriod)
	}
	return start
}

// spreadStep is a number near half of n that has no divisor in common with it.
func spreadStep(n int) int {
	for step := max(1, n/2); ; step++ {
		a, b := step, n
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return step
		}
	}
}
