// Package pacing decides when a request may be sent to Azure. It estimates what is left of Azure's
// documented quotas, keeps the pauses that Azure asks for, and waits on an injected clock. It does
// no I/O.
package pacing

import (
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

// The policies of the disk provider, which hold for a subscription. Azure does not document them:
// their quotas were recorded. Lists are of disks and of snapshots.
const (
	PutDisk     Policy = "PutDisk"
	DeleteDisk  Policy = "DeleteDisk"
	ListDisks   Policy = "ListDisks"
	PutSnapshot Policy = "PutSnapshot"
)

// The policies of Resource Manager, which count the requests of this principal. Polls is this
// process's own: the part of the reads that polls of operations may use. The rest is for reads that
// a fence or a publish waits for.
const (
	Reads   Policy = "Reads"
	Writes  Policy = "Writes"
	Deletes Policy = "Deletes"
	Polls   Policy = "Polls"
)

// Kind is the scope of the requests of one kind, which share a quota that Azure does not document.
const Kind Policy = "Kind"

// Accepted is the scope of a resource whose operation is not to be polled before a time that Azure
// named when it accepted the operation.
const Accepted Policy = "Accepted"

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

// Reserve is how many of Resource Manager's reads those that can wait (provisioner.Deferrable) leave
// to all others, so that fences, attaches and detaches find enough. It is enough to fence 50 nodes at
// once: a fence reads the VM before and after the forced detach, and polls it a few times.
const Reserve = 150

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
	quotas  map[Scope]quota
	blocked map[Scope]time.Time // until when Azure asked for silence
	failed  map[Scope]bool      // Azure did not answer the latest request, or answered with a failure of its own
}

// NewPacer makes a Pacer for which all quotas are full.
func NewPacer() *Pacer {
	return &Pacer{
		quotas:  map[Scope]quota{},
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
	if q := p.quota(now, s); q != nil {
		return q.take(now)
	}
	return 0
}

// TakeAbove takes a token if that leaves reserve tokens, and returns 0. Otherwise it takes none,
// and returns how long it takes until so many are there: the caller then tries again, because
// others may have taken them.
func (p *Pacer) TakeAbove(now time.Time, s Scope, reserve float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.quota(now, s)
	if q == nil {
		return 0
	}
	if wait := q.delay(now, reserve+1); wait > 0 {
		return wait
	}
	return q.take(now)
}

// quota returns the quota of a scope, nil if its policy has none. The caller holds the lock.
func (p *Pacer) quota(now time.Time, s Scope) quota {
	if found, ok := p.quotas[s]; ok {
		return found
	}
	made := newQuota(s.Policy, now)
	if made == nil {
		return nil
	}
	if len(p.quotas) > 4096 {
		p.forgetFull(now)
	}
	p.quotas[s] = made
	return made
}

func (p *Pacer) forgetFull(now time.Time) {
	for s, q := range p.quotas {
		if q.full(now) {
			delete(p.quotas, s)
		}
	}
}

// Delay returns how long a request in the scope would have to wait. It takes no token.
func (p *Pacer) Delay(now time.Time, s Scope) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, ok := p.quotas[s]; ok {
		return q.delay(now, 1)
	}
	return 0
}

// scarce is how many tokens are few.
const scarce = 20

// Scarce reports whether few tokens are left in the scope.
func (p *Pacer) Scarce(now time.Time, s Scope) bool { return !p.Has(now, s, scarce) }

// Has reports whether that many tokens are left in the scope.
func (p *Pacer) Has(now time.Time, s Scope, tokens float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.quotas[s]
	return !ok || q.delay(now, tokens) == 0
}

// Learn lowers the estimate to what an answer says is left of the quota of that name, which is the
// quota of the scope. Other clients use it too. Quotas of other names do not count: Azure also
// names quotas that the request did not use, with nothing left in them, and throttles nothing.
func (p *Pacer) Learn(now time.Time, s Scope, name string, left []Remaining) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.quotas[s]
	if !ok {
		return
	}
	for _, r := range left {
		q.learn(now, name, r)
	}
}

// Forget drops the estimate for a scope: no quota is known there, or no more requests will be sent.
func (p *Pacer) Forget(s Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.quotas, s)
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
