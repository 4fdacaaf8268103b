package plan

import "time"

const (
	firstRetry  = time.Second
	lastRetry   = time.Minute
	notBeforeIn = 50 * time.Millisecond
)

// RetryIn returns how long to wait until the next try of something that began
// to fail at since and failed last at last; 0 if the time has come. The wait doubles from one to
// the next, from a second to a minute, and needs no count: it is as long as the failing has lasted.
func RetryIn(since, last, now time.Time) time.Duration {
	return leftOf(min(max(last.Sub(since), firstRetry), lastRetry), last, now)
}

// aheadAtMost is how far a recorded time may lie ahead and still be one of now: times in the API have whole seconds, and clocks differ a little.
const aheadAtMost = 2 * time.Second

// leftOf returns how much of a wait that began at a recorded time is left; 0 if the time has come. A time that lies far ahead is that of a clock
// that was wrong, and nobody waits for as long as it was.
func leftOf(wait time.Duration, recorded, now time.Time) time.Duration {
	passed := now.Sub(recorded)
	if passed >= wait || passed < -aheadAtMost {
		return 0
	}
	return max(wait-max(passed, 0), notBeforeIn)
}
