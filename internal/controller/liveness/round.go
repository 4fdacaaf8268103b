package liveness

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

const (
	// roundEvery is the time between two rounds.
	roundEvery = 250 * time.Millisecond
	// probeRarely is how often a node is probed that never answered, or that has been lost for
	// long; probeSteadily if it has answered without a heartbeat for long; probeOften otherwise,
	// unless the last probe left a connection open.
	probeRarely, probeSteadily, probeOften = 30 * time.Second, 5 * time.Second, probeTimeout
	// askEvery is how often Azure, and the API server for a lease, is asked of a late node, and
	// askRarely once it has been silent for long.
	askEvery, askRarely = 5 * time.Second, 30 * time.Second
	// askLost is how often Azure is asked of a node that is known to be lost. Two observers then
	// stay below the 12 reads of a VM that Azure allows in a minute, and leave enough of the quota
	// for a fence.
	askLost = 15 * time.Second
	// confirmEvery is how often a confirmation that failed is retried.
	confirmEvery = time.Second
	// stakeEvery is how often the cache is read for the volumes that a suspect or lost node has
	// left.
	stakeEvery = time.Second
	// requestEvery is how often a request for a heartbeat that could not be written is retried.
	requestEvery = time.Second
	// maxRequests is how many requests for heartbeats may be without an answer for less than
	// Options.Patience. If the network of this process fails, the probes of all nodes fail
	// at once, and the answers must not overload the API server.
	maxRequests = 200
	// standstill is the time without a round after which this process has stood still: its VM was
	// paused, or it got no processor.
	standstill = 2 * time.Second
	// long is for how long a node is overdue before no question about it is urgent any more.
	long = time.Minute
)

// kind is a kind of work. Each has its own bound.
type kind int

const (
	pings kind = iota
	probes
	requests
	questions
	reviews
	leases
	confirmations
	stakes
	kinds
)

// bounds are how many pieces of work of each kind are in flight at once.
var bounds = [kinds]int{
	pings:         1,
	probes:        64,
	requests:      16,
	questions:     4,
	reviews:       4,
	leases:        8,
	confirmations: 16,
	stakes:        4,
}

type pools struct {
	slots [kinds]chan struct{}
	wait  *sync.WaitGroup
}

func newPools() pools {
	p := pools{wait: &sync.WaitGroup{}}
	for k, n := range bounds {
		p.slots[k] = make(chan struct{}, n)
	}
	return p
}

// runner says how work is done: reserve asks for room for a piece, and run does it.
type runner struct {
	reserve func(kind) bool
	run     func(kind, func())
}

// Tick does one round at the clock's present time: it makes the probes and questions that are due,
// one after the other, waits for their answers, and judges. Silence counts only while the API
// server answers, so that Tick must be called at least every two seconds of the clock.
func (m *Monitor) Tick(ctx context.Context) {
	m.round(ctx, runner{reserve: func(kind) bool { return true }, run: func(_ kind, do func()) { do() }})
}

// Start does rounds until ctx ends. The work runs in goroutines beside them.
func (m *Monitor) Start(ctx context.Context) error {
	ticker := m.Clock.NewTicker(roundEvery)
	defer ticker.Stop()
	defer func() {
		m.work.wait.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range m.nodes {
			n.keep(nil)
		}
	}()
	beside := runner{reserve: m.work.reserve, run: func(k kind, do func()) {
		m.work.wait.Go(func() {
			do()
			<-m.work.slots[k]
			signal(m.wake)
		})
	}}
	for {
		m.round(ctx, beside)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-m.wake:
		}
	}
}

func (p pools) reserve(k kind) bool {
	select {
	case p.slots[k] <- struct{}{}:
		return true
	default:
		return false
	}
}

// look is one kind of work on nodes: when it is due, and what it does with a node that had sent
// that many beats.
type look struct {
	kind kind
	try  func(*node) *attempt
	due  func(*node, time.Time) bool
	do   func(ctx context.Context, n *node, beats uint64)
}

func (m *Monitor) round(ctx context.Context, r runner) {
	m.mu.Lock()
	now := m.Clock.Now()
	if m.stoodStill(now) {
		m.contact = m.contact.lost()
	}
	m.lastRound = now
	for _, n := range m.nodes {
		n.checkConnection(now)
	}
	ping := m.contact.due(now, m.undecided(now)) && r.reserve(pings)
	if ping {
		m.contact.asked, m.contact.busy = now, true
	}
	m.mu.Unlock()
	if ping {
		r.run(pings, func() { m.ping(ctx) })
	}
	// If the work is done at once, each step sees the results of the one before it.
	m.step(ctx, r,
		look{probes, func(n *node) *attempt { return &n.probe.attempt }, m.probeDue, m.doProbe},
		look{questions, func(n *node) *attempt { return &n.azure.attempt }, m.questionDue, m.askAzure},
		look{reviews, func(n *node) *attempt { return &n.azure.attempt }, m.reviewDue, m.askAzure},
		look{leases, func(n *node) *attempt { return &n.lease.attempt }, m.leaseDue, m.readLease},
		look{stakes, func(n *node) *attempt { return &n.stake.attempt }, m.stakeDue, m.readStake})
	m.step(ctx, r, look{requests, func(n *node) *attempt { return &n.request.attempt }, m.requestDue, m.requestHeartbeat})
	m.step(ctx, r, look{confirmations, func(n *node) *attempt { return &n.confirm }, m.confirmationDue, m.confirmSilence})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judge(m.Clock.Now())
}

// stoodStill reports whether this process has done nothing for so long that the silence of the nodes
// may have been its own. What it knew of them before then is out of date.
func (m *Monitor) stoodStill(now time.Time) bool {
	return !m.lastRound.IsZero() && now.Sub(m.lastRound) > standstill
}

// undecided reports whether the answer to a request for a heartbeat is overdue, but was not yet at
// the last answer of the API server. The next one decides.
func (m *Monitor) undecided(now time.Time) bool {
	if !m.contact.alive(now) {
		return false
	}
	for _, n := range m.nodes {
		if n.request.seen.IsZero() {
			continue
		}
		if from, silence := m.contact.silence(n.request.seen); silence <= m.Patience &&
			now.Sub(from) > m.Patience {
			return true
		}
	}
	return false
}

// step does the work that is due now, the longest overdue work first. The judgements of a round do
// not change which work is due in it.
func (m *Monitor) step(ctx context.Context, r runner, looks ...look) {
	var work []func()
	m.mu.Lock()
	now := m.Clock.Now()
	for _, l := range m.due(looks, now) {
		for _, n := range l.nodes {
			if l.kind == requests && m.openRequests() >= maxRequests || !r.reserve(l.kind) {
				break
			}
			*l.try(n) = attempt{at: now, busy: true}
			beats := n.beats
			work = append(work, func() { r.run(l.kind, func() { l.do(ctx, n, beats) }) })
		}
	}
	m.mu.Unlock()
	for _, do := range work {
		do()
	}
}

// dueLook is a look with the nodes for which it is due.
type dueLook struct {
	look
	nodes []*node
}

// due finds the nodes for which each of the looks is due, in the order of their last attempts, and
// then of their names, so that every node has its turn.
func (m *Monitor) due(looks []look, now time.Time) []*dueLook {
	all := make([]*dueLook, 0, len(looks))
	for _, l := range looks {
		all = append(all, &dueLook{look: l})
	}
	for _, n := range m.nodes {
		for _, l := range all {
			if !l.try(n).busy && l.due(n, now) {
				l.nodes = append(l.nodes, n)
			}
		}
	}
	for _, l := range all {
		slices.SortFunc(l.nodes, func(a, b *node) int {
			if c := l.try(a).at.Compare(l.try(b).at); c != 0 {
				return c
			}
			return strings.Compare(a.name, b.name)
		})
	}
	return all
}

func (m *Monitor) probeDue(n *node, now time.Time) bool {
	if m.Prober == nil || n.connection != nil {
		return false
	}
	if m.unseen(n, now) {
		return true
	}
	every := probeRarely
	if n.probe.works && m.contact.alive(now) {
		switch settled := n.overdue(m.contact, &m.Options) > long; {
		case !settled || n.probe.failures > 0 && n.probe.failures < nodehealth.FailedProbes:
			every = probeOften
		case n.probe.failures == 0:
			every = probeSteadily
		}
	}
	return now.Sub(n.probe.at) >= every
}

// requestDue reports whether a heartbeat has to be requested: the node's probe has failed, or a
// heartbeat is wanted.
func (m *Monitor) requestDue(n *node, now time.Time) bool {
	return m.contact.alive(now) && n.request.possible && (n.failing() || n.request.wanted) && n.request.seen.IsZero() &&
		now.Sub(n.request.at) >= requestEvery
}

// openRequests counts the requests for heartbeats that are being written, or without an answer for
// less than Patience.
func (m *Monitor) openRequests() int {
	open := 0
	for _, n := range m.nodes {
		if n.request.busy || !n.request.seen.IsZero() && n.unanswered(m.contact) <= m.Patience {
			open++
		}
	}
	return open
}

// questionDue reports whether Azure may have to be asked about a node that is not known to be lost.
func (m *Monitor) questionDue(n *node, now time.Time) bool {
	return m.asks(n) && !n.mayWait() && n.late(m.contact, m.StaleAfter) && now.Sub(n.azure.at) >= m.patient(n)
}

// reviewDue reports whether Azure may have to be asked about a node whose answer can wait. Such
// questions have a bound of their own, because they wait for the quota.
func (m *Monitor) reviewDue(n *node, now time.Time) bool {
	return m.asks(n) && n.mayWait() &&
		(now.Sub(n.azure.at) >= max(m.patient(n), askLost) || n.azure.at.Before(m.guard.closed))
}

func (m *Monitor) asks(n *node) bool { return m.Enabled && m.Instances != nil && n.vmID != "" }

func (m *Monitor) leaseDue(n *node, now time.Time) bool {
	return (m.Prober == nil || !n.probe.works) && n.overdue(m.contact, &m.Options) > 0 && now.Sub(n.lease.at) >= m.patient(n)
}

func (m *Monitor) stakeDue(n *node, now time.Time) bool {
	return n.health.State != nodehealth.Healthy && now.Sub(n.stake.at) >= stakeEvery
}

func (m *Monitor) patient(n *node) time.Duration {
	if n.overdue(m.contact, &m.Options) > long {
		return askRarely
	}
	return askEvery
}

// confirmationDue reports whether the node would be lost if the API server confirmed its last
// heartbeat.
func (m *Monitor) confirmationDue(n *node, now time.Time) bool {
	if n.confirmed || now.Sub(n.confirm.at) < confirmEvery {
		return false
	}
	signs := n.signs(m.contact, now, &m.Options)
	signs.Confirmed = true
	state, _ := nodehealth.Judge(signs)
	return state == nodehealth.Lost
}
