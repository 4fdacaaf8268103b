package nodehealth

import (
	"slices"
	"strings"
	"time"
)

const (
	// ProbeTimeout is how long a probe may take, and how often a node is probed, unless the last
	// probe left a connection open.
	ProbeTimeout = 600 * time.Millisecond
	// probeRarely is how often a node is probed that never answered, or that has been lost for
	// long; probeSteadily if it has answered without a heartbeat for long.
	probeRarely, probeSteadily = 30 * time.Second, 5 * time.Second
	// askEvery is how often Azure, and the API server for a lease, is asked about a late node, and
	// askRarely once it has been silent for long.
	askEvery, askRarely = 5 * time.Second, 30 * time.Second
	// askLost is how often Azure is asked about a node that is known to be lost. Two observers then
	// stay below the 12 reads of a VM that Azure allows in a minute, and leave enough of the quota
	// for a fence.
	askLost = 15 * time.Second
	// retryEvery is how often a confirmation that failed, and a request for a heartbeat that could
	// not be written, is retried, and how often the cache is read for the volumes that a suspect or
	// lost node has left.
	retryEvery = time.Second
	// maxRequests is how many requests for heartbeats may be without an answer for less than the
	// patience. If the network of this process fails, the probes of all nodes fail at once, and the
	// answers must not overload the API server.
	maxRequests = 200
	// long is for how long a node is overdue before no look at it is urgent any more.
	long = time.Minute
)

// LookKind is a kind of Look.
type LookKind int

// The kinds. Each has its own bound of looks at once.
const (
	// LookPing: read something small from the API server itself.
	LookPing LookKind = iota
	// LookProbe: probe the node.
	LookProbe
	// LookRequest: request a heartbeat from the node.
	LookRequest
	// LookQuestion: ask Azure about the VM of a node that is not known to be lost, if Question
	// allows it.
	LookQuestion
	// LookReview: the same about a node whose answer can wait. Such questions have a bound of their
	// own, because they wait for the quota.
	LookReview
	// LookLease: read the kubelet's lease.
	LookLease
	// LookSilence: read the AzDriverNode from the API server itself, because the cache may be cut
	// off, and the announcements in the Node.
	LookSilence
	// LookStake: read from the cache which volumes the node has left that a failover would fence.
	LookStake
	lookKinds
)

// looksAtOnce are how many looks of each kind are made at once.
var looksAtOnce = [lookKinds]int{
	LookPing:     1,
	LookProbe:    64,
	LookRequest:  16,
	LookQuestion: 4,
	LookReview:   4,
	LookLease:    8,
	LookSilence:  16,
	LookStake:    4,
}

// Look is one measurement that the Detector asks for.
type Look struct {
	Kind LookKind
	// Node is the node; "" for a LookPing.
	Node string
	// VMID is the node's VM, and Question decides whether Azure is asked about it once the caller
	// has set Primary, for a LookQuestion and a LookReview.
	VMID     string
	Question Question
	// born and beats are the node's when the look began.
	born, beats uint64
}

// looks returns the looks that are due, those of a kind whose last attempt is the oldest first, and
// then by the nodes' names, so that every node has its turn.
func (d *Detector) looks(now time.Time) []Look {
	var looks []Look
	if d.looking[LookPing] == 0 && d.contact.due(now, d.undecided(now)) {
		d.contact.asked = now
		d.looking[LookPing]++
		looks = append(looks, Look{Kind: LookPing})
	}
	due := [lookKinds][]*node{}
	for _, n := range d.nodes {
		for kind := range lookKinds {
			if !n.attempt(kind).busy && d.due(kind, n, now) {
				due[kind] = append(due[kind], n)
			}
		}
	}
	for kind, nodes := range due {
		looks = d.begin(looks, LookKind(kind), nodes, now)
	}
	return looks
}

// begin begins as many of the looks that are due as the bounds allow.
func (d *Detector) begin(looks []Look, kind LookKind, nodes []*node, now time.Time) []Look {
	slices.SortFunc(nodes, func(a, b *node) int {
		if c := a.attempt(kind).at.Compare(b.attempt(kind).at); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	room := looksAtOnce[kind] - d.looking[kind]
	if kind == LookRequest {
		room = min(room, maxRequests-d.openRequests())
	}
	for _, n := range nodes[:min(max(room, 0), len(nodes))] {
		*n.attempt(kind) = attempt{at: now, busy: true}
		d.looking[kind]++
		look := Look{
			Kind:  kind,
			Node:  n.name,
			born:  n.born,
			beats: n.beats,
		}
		if kind == LookQuestion || kind == LookReview {
			look.VMID, look.Question = n.vmID, d.question(n, now)
		}
		looks = append(looks, look)
	}
	return looks
}

// answered records that a look has ended. It returns the node, nil if it was removed, and whether
// the look began before the node's last heartbeat, so that a silence that it found is over.
func (d *Detector) answered(look Look) (n *node, late bool) {
	d.looking[look.Kind]--
	n = d.nodes[look.Node]
	if n == nil || n.born != look.born {
		return nil, false
	}
	n.attempt(look.Kind).busy = false
	return n, n.beats != look.beats
}

// attempt is the last attempt of a kind of look.
func (n *node) attempt(kind LookKind) *attempt {
	switch kind {
	case LookProbe:
		return &n.probe.attempt
	case LookRequest:
		return &n.request.attempt
	case LookQuestion, LookReview:
		return &n.azure.attempt
	case LookLease:
		return &n.lease.attempt
	case LookSilence:
		return &n.confirm
	default:
		return &n.stake.attempt
	}
}

// due reports whether a look at a node is due.
func (d *Detector) due(kind LookKind, n *node, now time.Time) bool {
	age := now.Sub(n.attempt(kind).at)
	switch kind {
	case LookProbe:
		return d.config.Probes && !n.connected && (d.unseen(n, now) || age >= d.probeEvery(n, now))
	case LookRequest:
		return d.contact.alive(now) && n.request.due(n.failing()) && age >= retryEvery
	case LookQuestion:
		return d.asks(n) && !n.mayWait() && d.late(n) && age >= d.askEvery(n)
	case LookReview:
		return d.asks(n) && n.mayWait() && (age >= max(d.askEvery(n), askLost) || n.azure.at.Before(d.mass.closed))
	case LookLease:
		return !n.probe.works && d.overdue(n) > 0 && age >= d.askEvery(n)
	case LookSilence:
		return !n.confirmed && age >= retryEvery && d.lostIfConfirmed(n, now)
	case LookStake:
		return n.health.State != Healthy && age >= retryEvery
	default:
		return false
	}
}

// due reports whether a heartbeat has to be requested: the node's probe has failed, or a heartbeat is
// wanted, and the API server shows no request yet.
func (r request) due(failing bool) bool {
	return r.possible && (failing || r.wanted) && r.seen.IsZero()
}

// undecided reports whether the answer to a request for a heartbeat is overdue, but was not yet at
// the last answer of the API server. The next one decides.
func (d *Detector) undecided(now time.Time) bool {
	if !d.contact.alive(now) {
		return false
	}
	for _, n := range d.nodes {
		if n.request.seen.IsZero() {
			continue
		}
		if from, silence := d.contact.silence(n.request.seen); silence <= d.config.Patience && now.Sub(from) > d.config.Patience {
			return true
		}
	}
	return false
}

func (d *Detector) probeEvery(n *node, now time.Time) time.Duration {
	if n.probe.works && d.contact.alive(now) {
		switch settled := d.overdue(n) > long; {
		case !settled || n.probe.failures > 0 && n.probe.failures < FailedProbes:
			return ProbeTimeout
		case n.probe.failures == 0:
			return probeSteadily
		}
	}
	return probeRarely
}

// askEvery is how often Azure, or the API server for a lease, is asked about a node.
func (d *Detector) askEvery(n *node) time.Duration {
	if d.overdue(n) > long {
		return askRarely
	}
	return askEvery
}

// asks reports whether Azure can be asked about the node.
func (d *Detector) asks(n *node) bool { return d.config.Enabled && d.config.Questions && n.vmID != "" }

// openRequests counts the requests for heartbeats that are being written, or without an answer for
// less than the patience.
func (d *Detector) openRequests() int {
	open := 0
	for _, n := range d.nodes {
		if n.request.busy || !n.request.seen.IsZero() && d.unanswered(n) <= d.config.Patience {
			open++
		}
	}
	return open
}

// lostIfConfirmed reports whether the node would be lost if the API server confirmed its last
// heartbeat.
func (d *Detector) lostIfConfirmed(n *node, now time.Time) bool {
	signs := d.signs(n, now)
	signs.Confirmed = true
	state, _ := Judge(signs)
	return state == Lost
}

// question returns the question about a node's VM, without Primary.
func (d *Detector) question(n *node, now time.Time) Question {
	q := Question{
		State:    n.health.State,
		NoSign:   now.Sub(n.lastSign(now)),
		Recalled: n.azure.recalled,
		Doubted:  !d.mass.closed.IsZero() && n.health.State == Lost && !n.decided(n.health),
		Answered: -1,
	}
	if !n.azure.answered.IsZero() {
		q.Answered = now.Sub(n.azure.answered)
	}
	return q
}
