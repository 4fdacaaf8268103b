package azure

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// policyName is a throttling policy of Azure Compute that holds per resource.
type policyName string

const (
	policyUpdateVM  policyName = "UpdateVM"
	policyGetVM     policyName = "GetVM"
	policyOperation policyName = "GetOperation"
	policyNone      policyName = ""
)

// budget is a token bucket as Azure documents it.
type budget struct{ perMinute, burst float64 }

// budgetOf returns the documented budget per resource; ok is false where none is documented.
func budgetOf(p policyName) (budget, bool) {
	switch p {
	case policyUpdateVM:
		return budget{perMinute: 4, burst: 12}, true
	case policyGetVM:
		return budget{perMinute: 12, burst: 36}, true
	case policyOperation:
		return budget{perMinute: 15, burst: 45}, true
	}
	return budget{}, false
}

// bucket estimates what is left of a budget. Tokens may be negative: they are spoken for.
type bucket struct {
	budget
	tokens float64
	at     time.Time
}

func newBucket(b budget, now time.Time) *bucket { return &bucket{budget: b, tokens: b.burst, at: now} }

func (b *bucket) refill(now time.Time) {
	if now.After(b.at) {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Minutes()*b.perMinute)
		b.at = now
	}
}

// take takes a token and returns how long to wait until it is there.
func (b *bucket) take(now time.Time) time.Duration {
	b.refill(now)
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.perMinute * float64(time.Minute))
}

// learn takes the platform's word on what is left, if that is less than was thought: others spend too.
func (b *bucket) learn(now time.Time, remaining float64) {
	b.refill(now)
	b.tokens = min(b.tokens, remaining)
}

// full says that the bucket holds nothing worth remembering.
func (b *bucket) full(now time.Time) bool {
	b.refill(now)
	return b.tokens >= b.burst
}

// scope is what a limit applies to: one resource, or all reads or writes of a subscription.
type scope struct {
	policy   policyName
	resource string
}

// pacer says when a request may be sent. It knows the time only from its arguments.
type pacer struct {
	mu      sync.Mutex
	buckets map[scope]*bucket
	blocked map[scope]time.Time // until when the platform asked for silence
	failed  map[scope]bool      // the platform did not answer the latest request, or answered that it failed
}

func newPacer() *pacer {
	return &pacer{buckets: map[scope]*bucket{}, blocked: map[scope]time.Time{}, failed: map[scope]bool{}}
}

// silence returns how long the platform asked not to be asked, in any of the scopes.
func (p *pacer) silence(now time.Time, scopes ...scope) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wait time.Duration
	for _, s := range scopes {
		until, ok := p.blocked[s]
		if ok && !until.After(now) {
			delete(p.blocked, s)
		}
		wait = max(wait, until.Sub(now))
	}
	return wait
}

// take takes a token for a request and returns how long to wait for it.
func (p *pacer) take(now time.Time, s scope) time.Duration {
	b, ok := budgetOf(s.policy)
	if !ok {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.buckets) > 4096 {
		p.forgetFull(now)
	}
	found, ok := p.buckets[s]
	if !ok {
		found = newBucket(b, now)
		p.buckets[s] = found
	}
	return found.take(now)
}

// wait returns how long a request in the scope would have to wait, without taking a token.
func (p *pacer) wait(now time.Time, s scope) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.buckets[s]
	if !ok {
		return 0
	}
	b.refill(now)
	if b.tokens >= 1 {
		return 0
	}
	return time.Duration((1 - b.tokens) / b.perMinute * float64(time.Minute))
}

func (p *pacer) forgetFull(now time.Time) {
	for s, b := range p.buckets {
		if b.full(now) {
			delete(p.buckets, s)
		}
	}
}

// learn takes the least of what an answer says is left for a request in the scope.
func (p *pacer) learn(now time.Time, s scope, left []remaining) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.buckets[s]
	if !ok {
		return
	}
	for _, r := range left {
		b.learn(now, r.left)
	}
}

// unmetered forgets what was spent in the scope.
func (p *pacer) unmetered(s scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buckets, s)
	delete(p.failed, s)
}

// answered records whether the platform answered a request in the scope; an answer that it failed is none.
func (p *pacer) answered(s scope, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		delete(p.failed, s)
		return
	}
	p.failed[s] = true
}

// failing says whether the platform did not answer the latest request in the scope.
func (p *pacer) failing(s scope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[s]
}

// scarcePolls is from how few polls on they are saved for when the operation is likely to have ended.
const scarcePolls = 20

// scarce says that little is left in the scope.
func (p *pacer) scarce(now time.Time, s scope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.buckets[s]
	if !ok {
		return false
	}
	b.refill(now)
	return b.tokens < scarcePolls
}

// block keeps the scopes silent.
func (p *pacer) block(until time.Time, s scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.blocked[s]) {
		p.blocked[s] = until
	}
}

// remaining is what a header says is left of a policy.
type remaining struct {
	policy string
	left   float64
}

// remainingOf reads x-ms-ratelimit-remaining-resource, as in
// "Microsoft.Compute/UpdateVM;11,Microsoft.Compute/UpdateVMSubscription;1499".
func remainingOf(h http.Header) []remaining {
	var all []remaining
	for _, line := range h.Values("x-ms-ratelimit-remaining-resource") {
		for _, part := range strings.Split(line, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(part), ";")
			left, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if ok && err == nil {
				all = append(all, remaining{policy: strings.TrimSpace(name), left: left})
			}
		}
	}
	return all
}

// longestSilence is the longest that an answer can ask for: the length of Azure's longest window. More is a mistake, which must not silence the driver for good.
const longestSilence = time.Hour

// retryAfter reads how long an answer asks to wait; 0 if it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"x-ms-retry-after-ms", time.Millisecond}, {"Retry-After", time.Second}} {
		value := h.Get(header.name)
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return time.Duration(min(n, int(longestSilence/header.unit))) * header.unit
		}
		if at, err := http.ParseTime(value); err == nil && at.After(now) {
			return min(at.Sub(now), longestSilence)
		}
	}
	return 0
}
