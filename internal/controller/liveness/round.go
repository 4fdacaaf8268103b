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
	// probeRarely is how often a node is probed that never answered, or that has been lost for long; probeSteadily if it has answered without a
	// heartbeat for long; probeOften otherwise, unless the last probe left a connection open.
	probeRarely, probeSteadily, probeOften = 30 * time.Second, 5 * time.Second, probeTimeout
	// askEvery is how often Azure, and the API server for a lease, is asked of a late node, and askRarely once it has been silent for long.
	askEvery, askRarely = 5 * time.Second, 30 * time.Second
	// askLost is how often Azure is asked of a node that is known to be lost. Two observers then stay below the 12 reads of a VM that Azure
	// allows in a minute, and leave enough of the quota for a fence.
	askLost = 15 * time.Second
	// confirmEvery is how often a confirmation that failed is retried.
	confirmEvery = time.Second
	// stakeEvery is how often the cache is read for the volumes that a suspect or lost node has left.
	stakeEvery = time.Second
	// requestEvery is how often a request for a heartbeat that could not be written is retried.
	requestEvery = time.Second
	// maxRequests is how many requests for heartbeats may be without an answer for less than nodehealth.AnswerTimeout. If the network of this
	// process fails, the probes of all nodes fail at once, and the answers must not overload the API server.
	maxRequests = 200
	// long is for how long a node is overdue before no question about it is urgent any more.
	long = time.Minute
)

// A kind of work, each with its own bound.
type kind int

const (
	pings kind = iota
	probes
	requests
	questions
	leases
	confirmations
	stakes
	kinds
)

// bounds are how many pieces of work of each kind are in flight at once.
var bounds = [kinds]int{pings: 1, probes: 64, requests: 16, questions: 4, leases: 8, confirmations: 16, stakes: 4}

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

// Tick does one round at the clock's present time: it makes the probes and questions that are due, one after the other, waits for
// their answers, and judges. Silence counts only while the API server answers, so that Tick must be called at least every two
// seconds of the clock.
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
			select {
			case m.wake <- struct{}{}:
			default:
			}
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

type piece struct {
	kind kind
	do   func()
}

func (m *Monitor) round(ctx context.Context, r runner) {
	for _, collect := range []func(context.Context, time.Time, runner) []piece{m.dueLooks, m.dueRequests, m.dueConfirmations} {
		m.mu.Lock()
		for _, n := range m.nodes {
			n.checkConnection(m.Clock.Now())
		}
		work := collect(ctx, m.Clock.Now(), r)
		m.mu.Unlock()
		for _, w := range work {
			r.run(w.kind, w.do)
		}
		m.mu.Lock()
		m.judge(m.Clock.Now())
		m.mu.Unlock()
	}
}

// dueLooks collects the work that is due now. What has waited longest comes first.
func (m *Monitor) dueLooks(ctx context.Context, now time.Time, r runner) []piece {
	var work []piece
	if m.contact.due(now) && r.reserve(pings) {
		m.contact.asked, m.contact.busy = now, true
		work = append(work, piece{pings, func() { m.ping(ctx) }})
	}
	for _, look := range []struct {
		kind kind
		try  func(*node) *attempt
		due  func(*node, time.Time) bool
		do   func(context.Context, *node, uint64)
	}{
		{probes, func(n *node) *attempt { return &n.probe.attempt }, m.probeDue, m.doProbe},
		{questions, func(n *node) *attempt { return &n.azure.attempt }, m.questionDue, m.askAzure},
		{leases, func(n *node) *attempt { return &n.lease.attempt }, m.leaseDue, m.readLease},
		{stakes, func(n *node) *attempt { return &n.stake.attempt }, m.stakeDue, m.readStake},
	} {
		due := func(n *node) bool { return !look.try(n).busy && look.due(n, now) }
		for _, n := range m.sorted(due, look.try) {
			if !r.reserve(look.kind) {
				break
			}
			*look.try(n) = attempt{at: now, busy: true}
			beats := n.beats
			work = append(work, piece{look.kind, func() { look.do(ctx, n, beats) }})
		}
	}
	return work
}

// sorted returns the nodes that are due, in the order of their last attempts, and then of their names, so that every node has its turn.
func (m *Monitor) sorted(due func(*node) bool, try func(*node) *attempt) []*node {
	var all []*node
	for _, n := range m.nodes {
		if due(n) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *node) int {
		if c := try(a).at.Compare(try(b).at); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
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
		switch settled := n.overdue(m.contact, m.StaleAfter) > long; {
		case !settled || n.probe.failures > 0 && n.probe.failures < nodehealth.FailedProbes:
			every = probeOften
		case n.probe.failures == 0:
			every = probeSteadily
		}
	}
	return now.Sub(n.probe.at) >= every
}

// dueRequests collects the nodes from which a heartbeat has to be requested: those whose probe has failed, and those from which one is wanted.
func (m *Monitor) dueRequests(ctx context.Context, now time.Time, r runner) []piece {
	var work []piece
	if !m.contact.alive(now) {
		return nil
	}
	open := 0
	for _, n := range m.nodes {
		if n.request.busy || !n.request.seen.IsZero() && n.unanswered(m.contact) <= nodehealth.AnswerTimeout {
			open++
		}
	}
	due := func(n *node) bool {
		return n.request.possible && (n.failing() || n.request.wanted) && n.request.seen.IsZero() && !n.request.busy && now.Sub(n.request.at) >= requestEvery
	}
	for _, n := range m.sorted(due, func(n *node) *attempt { return &n.request.attempt }) {
		if open >= maxRequests || !r.reserve(requests) {
			break
		}
		open++
		n.request.attempt = attempt{at: now, busy: true}
		beats := n.beats
		work = append(work, piece{requests, func() { m.requestHeartbeat(ctx, n, beats) }})
	}
	return work
}

func (m *Monitor) questionDue(n *node, now time.Time) bool {
	every := m.patient(n)
	if n.health.State.LostOrDown() {
		every = max(every, askLost)
	}
	return m.Enabled && m.Instances != nil && n.vmID != "" && n.late(m.contact, m.StaleAfter) && now.Sub(n.azure.at) >= every
}

func (m *Monitor) leaseDue(n *node, now time.Time) bool {
	return (m.Prober == nil || !n.probe.works) && n.overdue(m.contact, m.StaleAfter) > 0 && now.Sub(n.lease.at) >= m.patient(n)
}

func (m *Monitor) stakeDue(n *node, now time.Time) bool {
	return n.health.State != nodehealth.Healthy && now.Sub(n.stake.at) >= stakeEvery
}

func (m *Monitor) patient(n *node) time.Duration {
	if n.overdue(m.contact, m.StaleAfter) > long {
		return askRarely
	}
	return askEvery
}

// dueConfirmations collects the nodes that would be lost if the API server confirmed their last heartbeat.
func (m *Monitor) dueConfirmations(ctx context.Context, now time.Time, r runner) []piece {
	var work []piece
	due := func(n *node) bool {
		if n.confirmed || n.confirm.busy || now.Sub(n.confirm.at) < confirmEvery {
			return false
		}
		signs := n.signs(m.contact, now, m.StaleAfter, m.Prober != nil)
		signs.Confirmed = true
		state, _ := nodehealth.Judge(signs)
		return state == nodehealth.Lost
	}
	for _, n := range m.sorted(due, func(n *node) *attempt { return &n.confirm }) {
		if !r.reserve(confirmations) {
			break
		}
		n.confirm = attempt{at: now, busy: true}
		beats := n.beats
		work = append(work, piece{confirmations, func() { m.confirmSilence(ctx, n, beats) }})
	}
	return work
}
