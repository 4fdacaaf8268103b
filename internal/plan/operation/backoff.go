package operation

import "time"

// The wait after a failure grows from FirstRetry to LastRetry. MinWait is the shortest wait that is not none.
const (
	FirstRetry = time.Second
	LastRetry  = time.Minute
	MinWait    = 50 * time.Millisecond
)

// RetryIn returns how long to wait until the next try of something that began
// to fail at since and failed last at last; 0 if the time has come. The wait doubles from one to
// the next, from a second to a minute, and needs no count: it is as long as the failing has lasted.
func RetryIn(since, last, now time.Time) time.Duration {
	return Remaining(min(max(last.Sub(since), FirstRetry), LastRetry), last, now)
}

// ClockSkew is how far a recorded time may lie ahead and still be one of now: times in the API have whole seconds, and clocks differ a little.
const ClockSkew = 2 * time.Second

// Remaining returns how much of a wait that began at a recorded time is left; 0 if the time has come. A time that lies far ahead is that of a clock
// that was wrong, and counts as passed.
func Remaining(wait time.Duration, recorded, now time.Time) time.Duration {
	passed := now.Sub(recorded)
	if passed >= wait || passed < -ClockSkew {
		return 0
	}
	return max(wait-max(passed, 0), MinWait)
}
