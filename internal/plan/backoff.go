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
	wait := min(max(last.Sub(since), firstRetry), lastRetry)
	// Times in the API have whole seconds; a last that seems to lie ahead is a rounding or another's clock.
	passed := max(now.Sub(last), 0)
	if passed >= wait {
		return 0
	}
	return max(wait-passed, notBeforeIn)
}
