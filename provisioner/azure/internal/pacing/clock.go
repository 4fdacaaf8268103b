package pacing

import (
	"context"
	"math/rand"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// LongestBackoff is the longest pause before a request that failed is repeated.
const LongestBackoff = 5 * time.Second

// Clock is a clock with pauses. All methods may be called concurrently.
type Clock struct {
	clock.Clock

	mu   sync.Mutex
	rand *rand.Rand
}

// NewClock makes a Clock over c (the real clock if nil). r spreads backoffs (seeded from the clock
// if nil) and is not used by others.
func NewClock(c clock.Clock, r *rand.Rand) *Clock {
	if c == nil {
		c = clock.RealClock{}
	}
	if r == nil {
		r = rand.New(rand.NewSource(c.Now().UnixNano()))
	}
	return &Clock{Clock: c, rand: r}
}

// Pause waits for d, or until ctx ends; then it returns the context's error.
func (c *Clock) Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// Backoff is how long to wait after a number of failures in a row. It grows from half a second to
// LongestBackoff, and varies by a fifth, so that callers that one fault has stopped do not repeat
// their requests at the same moment.
func (c *Clock) Backoff(failures int) time.Duration {
	wait := min(500*time.Millisecond<<min(failures, 4), LongestBackoff)
	c.mu.Lock()
	defer c.mu.Unlock()
	return wait*4/5 + time.Duration(c.rand.Int63n(int64(wait*2/5)))
}
