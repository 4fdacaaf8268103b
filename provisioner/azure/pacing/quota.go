// Package pacing decides when a request may be sent to Azure. It estimates what is left of Azure's
// documented quotas, keeps the pauses that Azure asks for, and waits on an injected clock. It does
// no I/O.
package pacing

import (
	"strings"
	"sync"
	"time"
)

// Policy is a throttling policy of Azure Compute that holds per resource, or one of Resource
// Manager that holds per subscription.
type Policy string

// The policies of Azure Compute whose quotas Azure documents.
const (
	UpdateVM     Policy = "UpdateVM"
	GetVM        Policy = "GetVM"
	GetOperation Policy = "GetOperation"
	ListVMs      Policy = "ListVMs"
	NoPolicy     Policy = ""
)

// The policies of Resource Manager, which count the requests of this principal. Polls is this
// process's own: the part of the reads that polls of operations may use. The rest is for reads that
// a fence or a publish waits for.
const (
	Reads   Policy = "reads"
	Writes  Policy = "writes"
	Deletes Policy = "deletes"
	Polls   Policy = "polls"
)

// Kind is the scope of the requests of one kind, which share a quota that Azure does not document.
const Kind Policy = "kind"

// Accepted is the scope of a resource whose operation is not to be polled before a time that Azure
// named when it accepted the operation.
const Accepted Policy = "accepted"

// budget is a token bucket as Azure documents it.
type budget struct{ perMinute, burst float64 }

// budgetOf returns the documented budget; ok is false where none is documented.
func budgetOf(p Policy) (budget, bool) {
	switch p {
	case UpdateVM:
		return budget{perMinute: 4, burst: 12}, true
	case GetVM:
		return budget{perMinute: 12, burst: 36}, true
	case GetOperation:
		return budget{perMinute: 15, burst: 45}, true
	case ListVMs:
		return budget{perMinute: 300, burst: 900}, true
	case Reads:
		return budget{perMinute: 25 * 60, burst: 250 - margin}, true
	case Polls:
		return budget{perMinute: 20 * 60, burst: 200 - margin}, true
	case Writes, Deletes:
		return budget{perMinute: 10 * 60, burst: 200 - margin}, true
	default:
		return budget{}, false
	}
}

// margin is how many of Resource Manager's tokens are not used: requests overtake one another on
// their way, and clocks differ.
const margin = 10

// Reserve is how many of Resource Manager's reads are left for what cannot wait: fences, attaches
// and detaches. Reads that can wait use the rest. It is enough to fence 50 nodes at once: a fence
// reads the VM before and after the forced detach, and polls it a few times.
const Reserve = 150

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

// take takes a token and returns how long to wait until it is there.
func (b *bucket) take(now time.Time) time.Duration {
	b.refill(now)
	b.tokens--
	return b.delay(now, 0)
}

// Scope is what a limit applies to: one resource, or all reads or writes of a subscription.
type Scope struct {
	Policy   Policy
	Resource string
}

// Remaining is what an answer says is left of a quota.
type Remaining struct {
	Policy string
	Left   float64
}

// Pacer says when a request may be sent. It knows the time only from its arguments. All methods may
// be called concurrently.
type Pacer struct {
	mu      sync.Mutex
	buckets map[Scope]*bucket
	blocked map[Scope]time.Time // until when Azure asked for silence
	failed  map[Scope]bool      // Azure did not answer the latest request, or answered with a failure of its own
}

// NewPacer makes a Pacer for which all quotas are full.
func NewPacer() *Pacer {
	return &Pacer{
		buckets: map[Scope]*bucket{},
		blocked: map[Scope]time.Time{},
		failed:  map[Scope]bool{},
	}
}

// Silence returns how long Azure asked for no more requests in any of the scopes.
func (p *Pacer) Silence(now time.Time, scopes ...Scope) time.Duration {
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

// Block records that Azure asked for no more requests in the scope until then.
func (p *Pacer) Block(until time.Time, s Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.blocked[s]) {
		p.blocked[s] = until
	}
}

// Take takes a token for a request and returns how long to wait for it.
func (p *Pacer) Take(now time.Time, s Scope) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.bucket(now, s); b != nil {
		return b.take(now)
	}
	return 0
}

// TakeAbove takes a token if that leaves reserve tokens, and returns 0. Otherwise it takes none,
// and returns how long it takes until so many are there: the caller then tries again, because
// others may have taken them.
func (p *Pacer) TakeAbove(now time.Time, s Scope, reserve float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bucket(now, s)
	if b == nil {
		return 0
	}
	if wait := b.delay(now, reserve+1); wait > 0 {
		return wait
	}
	return b.take(now)
}

// bucket returns the bucket of a scope, nil if its policy has no budget. The caller holds the lock.
func (p *Pacer) bucket(now time.Time, s Scope) *bucket {
	b, ok := budgetOf(s.Policy)
	if !ok {
		return nil
	}
	if len(p.buckets) > 4096 {
		p.forgetFull(now)
	}
	found, ok := p.buckets[s]
	if !ok {
		found = newBucket(b, now)
		p.buckets[s] = found
	}
	return found
}

func (p *Pacer) forgetFull(now time.Time) {
	for s, b := range p.buckets {
		if b.delay(now, b.burst) == 0 {
			delete(p.buckets, s)
		}
	}
}

// Delay returns how long a request in the scope would have to wait. It takes no token.
func (p *Pacer) Delay(now time.Time, s Scope) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.buckets[s]; ok {
		return b.delay(now, 1)
	}
	return 0
}

// scarce is how many tokens are few.
const scarce = 20

// Scarce reports whether few tokens are left in the scope.
func (p *Pacer) Scarce(now time.Time, s Scope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.buckets[s]
	return ok && b.delay(now, scarce) > 0
}

// Learn lowers the estimate to what an answer says is left of the quota of that name, which is the
// quota of the scope. Other clients use it too. Quotas of other names do not count: Azure also
// names quotas that the request did not use, with nothing left in them, and throttles nothing.
func (p *Pacer) Learn(now time.Time, s Scope, name string, left []Remaining) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.buckets[s]
	if !ok {
		return
	}
	b.refill(now)
	for _, r := range left {
		if strings.EqualFold(r.Policy, name) {
			b.tokens = min(b.tokens, r.Left)
		}
	}
}

// Forget drops the estimate for a scope: no quota is known there, or no more requests will be sent.
func (p *Pacer) Forget(s Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buckets, s)
	delete(p.failed, s)
}

// SetAnswered records whether Azure answered the latest request in the scope. An answer that Azure
// itself failed counts as none.
func (p *Pacer) SetAnswered(s Scope, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		delete(p.failed, s)
		return
	}
	p.failed[s] = true
}

// Failing reports whether Azure did not answer the latest request in the scope.
func (p *Pacer) Failing(s Scope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[s]
}
