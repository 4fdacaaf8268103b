package pacing

import (
	"strings"
	"time"
)

// quota estimates what is left of a quota of Azure.
type quota interface {
	// take takes a token and returns how long to wait until it is there.
	take(now time.Time) time.Duration
	// delay returns how long it takes until there are that many tokens. It takes none.
	delay(now time.Time, tokens float64) time.Duration
	// full reports whether no token is missing.
	full(now time.Time) bool
	// learn lowers the estimate to what an answer says is left, if that is of the quota of the name.
	learn(now time.Time, name string, left Remaining)
}

// newQuota makes the full quota of a policy; nil if it has none.
func newQuota(p Policy, now time.Time) quota {
	if limits, ok := windowsOf(p); ok {
		return limits
	}
	if b, ok := budgetOf(p); ok {
		return newBucket(b, now)
	}
	return nil
}

// bucket estimates the remaining budget. The number of tokens is negative while requests wait.
type bucket struct {
	budget
	tokens float64
	at     time.Time
}

func newBucket(b budget, now time.Time) *bucket {
	return &bucket{
		budget: b,
		tokens: b.burst,
		at:     now,
	}
}

func (b *bucket) refill(now time.Time) {
	if now.After(b.at) {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Minutes()*b.perMinute)
		b.at = now
	}
}

// delay returns how long it takes until the bucket holds that many tokens.
func (b *bucket) delay(now time.Time, tokens float64) time.Duration {
	b.refill(now)
	return time.Duration(max(tokens-b.tokens, 0) / b.perMinute * float64(time.Minute))
}

// full implements quota.
func (b *bucket) full(now time.Time) bool { return b.delay(now, b.burst) == 0 }

// learn implements quota.
func (b *bucket) learn(now time.Time, name string, r Remaining) {
	if strings.EqualFold(r.Policy, name) {
		b.refill(now)
		b.tokens = min(b.tokens, r.Left)
	}
}

// take takes a token and returns how long to wait until it is there.
func (b *bucket) take(now time.Time) time.Duration {
	b.refill(now)
	b.tokens--
	return b.delay(now, 0)
}
