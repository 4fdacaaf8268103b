package nodehealth

import "time"

const (
	// missedIntervals is how many promised intervals may pass without a heartbeat before a node is
	// Suspect: two heartbeats are missing then, and the third is late. The number may be small,
	// because a stale heartbeat alone leads to no fence.
	missedIntervals = 2.5
	// lateIntervals is how many promised intervals may pass before other signs of life are looked
	// for.
	lateIntervals = 1.5
	// LongestPromise is the longest interval between heartbeats that a node is believed to promise.
	// A node that promises a longer one is treated as if it promised this one. Otherwise one node
	// could prevent that it is ever late, and that an observer that is cut off detects that all
	// nodes are late at once.
	LongestPromise = 5 * time.Minute
	// DefaultPatience is how long a node may take to answer a request for a heartbeat if the
	// administrator sets nothing. A request is made when a probe fails, about two seconds after the
	// last sign of life.
	DefaultPatience = 2 * time.Second
)

// Promise returns the interval between heartbeats that a node is believed to promise; 0 for none.
func Promise(seconds int32) time.Duration {
	return min(time.Duration(max(seconds, 0))*time.Second, LongestPromise)
}

// SuspectAge is the age at which a heartbeat makes a node Suspect.
func SuspectAge(staleAfter time.Duration, promisedSeconds int32) time.Duration {
	return max(staleAfter, age(missedIntervals, promisedSeconds))
}

// Lateness is the age at which a heartbeat is half an interval late, and other signs of life are
// looked for.
func Lateness(staleAfter time.Duration, promisedSeconds int32) time.Duration {
	if promisedSeconds <= 0 {
		return staleAfter / 2
	}
	return age(lateIntervals, promisedSeconds)
}

func age(intervals float64, promisedSeconds int32) time.Duration {
	return time.Duration(intervals * float64(Promise(promisedSeconds)))
}
