package operation

import "time"

// The wait after a failure grows from FirstRetry to LastRetry. MinWait is the shortest wait above
// zero.
const (
	FirstRetry = time.Second
	LastRetry  = time.Minute
	MinWait    = 50 * time.Millisecond
)

// ConflictRetry is how soon to retry after another writer changed the object.
const ConflictRetry = 25 * time.Millisecond

// RetryIn returns how long to wait until the next try of something that began to fail at since and
// failed last at last; 0 if the time has come. Without a counter, the wait is as long as the failures
// have lasted, but from FirstRetry to LastRetry.
func RetryIn(since, last, now time.Time) time.Duration {
	return Remaining(min(max(last.Sub(since), FirstRetry), LastRetry), last, now)
}

// ClockSkew is how far ahead a recorded time may be and still count as now: times in the API have
// whole seconds, and clocks differ a little.
const ClockSkew = 2 * time.Second

// Remaining returns how much remains of a wait that began at a recorded time; 0 if the time has
// come. A time that is far ahead comes from a clock that was wrong, and counts as passed.
func Remaining(wait time.Duration, recorded, now time.Time) time.Duration {
	passed := now.Sub(recorded)
	if passed >= wait || passed < -ClockSkew {
		return 0
	}
	return max(wait-max(passed, 0), MinWait)
}

// Sooner returns the shorter of two waits; a wait that is not above 0 does not count.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b <= 0 {
		return max(a, b, 0)
	}
	return min(a, b)
}
