package nodehealth

import (
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// standstill is the time without a Step after which this process has stood still: its VM was paused,
// or it got no processor.
const standstill = 2 * time.Second

const (
	// heldSwitchedOff is the reason why no node is fenced if failover is off.
	heldSwitchedOff = "failover is switched off (failover-enabled)"
	// heldStoodStill is the reason why no node is fenced until a Step after this process stood still.
	heldStoodStill = "this controller has just stood still, and has not looked at the node since"
)

// Config of a Detector.
type Config struct {
	// StaleAfter is the least age at which a heartbeat is stale.
	StaleAfter time.Duration
	// Patience is how long a node that probes reach may take to answer a request for a heartbeat
	// before it is lost; 0 for DefaultPatience.
	Patience time.Duration
	// PauseLimits bound the silence that announcements of pauses excuse; zero for
	// DefaultPauseLimits.
	PauseLimits PauseLimits
	// MassLossThreshold is the percentage of nodes above which the guard holds fencing back.
	MassLossThreshold int
	// Probes says that nodes can be probed, and Questions that Azure can be asked about them.
	Probes, Questions bool
	// Enabled allows nodes to be fenced. Without it they are judged, and Azure is not asked.
	Enabled bool
}

// Detector is the failure detector of one process: it takes the observations of the nodes, and judges
// them. Its results depend on its state and its arguments alone. Times are by the process's own
// clock. It is not safe for concurrent use.
type Detector struct {
	config  Config
	nodes   map[string]*node
	contact contact
	mass    massLoss
	// lastStep is when the last Step was; zero before the first.
	lastStep time.Time
	// looking counts the looks of each kind that have no answer yet.
	looking [lookKinds]int
	// born is the number of the last node that was added.
	born uint64
	// found collects the changes that the caller has not been told yet.
	found Judgements
}

// Judgements summarize the changes that observations and a Step have led to.
type Judgements struct {
	// Changed are the nodes whose judgement has changed, that were forgotten, or that have now been
	// lost for as long as replicas are kept. A node may be in it twice.
	Changed []string
	// Lost counts the nodes that are lost or down. Guarded says that the guard against mass loss
	// holds fences back.
	Lost    int
	Guarded bool
	// Announced are the events that were not known before.
	Announced []apiv1.MaintenanceEvent
	// Pauses are the results of the silences that announcements excused and that have ended.
	Pauses []PauseResult
}

// NewDetector returns a Detector that has seen nothing yet.
func NewDetector(config Config) *Detector {
	if config.Patience == 0 {
		config.Patience = DefaultPatience
	}
	if config.PauseLimits == (PauseLimits{}) {
		config.PauseLimits = DefaultPauseLimits
	}
	return &Detector{config: config, nodes: map[string]*node{}}
}

// See takes observations between two Steps. A node whose heartbeat it sees is Healthy at once. No
// other judgement changes.
func (d *Detector) See(now time.Time, seen ...Observation) Judgements {
	for _, o := range seen {
		o.apply(d, now)
	}
	return d.tell()
}

// Step takes observations, judges all nodes, and returns the looks that are due. The caller makes
// each of them, and passes the answer. Silence counts only while the API server answers, so that Step
// must be called at least every two seconds.
func (d *Detector) Step(now time.Time, seen ...Observation) (Judgements, []Look) {
	if d.stoodStill(now) {
		d.contact = d.contact.lost()
	}
	d.lastStep = now
	for _, o := range seen {
		o.apply(d, now)
	}
	d.judge(now)
	return d.tell(), d.looks(now)
}

// tell returns what has been found since the last call.
func (d *Detector) tell() Judgements {
	told := d.found
	d.found = Judgements{Lost: told.Lost, Guarded: told.Guarded}
	slices.Sort(told.Changed)
	return told
}

// Health returns the judgement of a node. A node that was not observed yet is Healthy, which is its
// grace period. A judgement from before this process stood still begins no fence.
func (d *Detector) Health(name string, now time.Time) (j Judgement, known bool) {
	n, known := d.nodes[name]
	if !known {
		return Judgement{State: Healthy, Evidence: "this process has not heard of the node yet"}, false
	}
	j = n.health
	if j.Fence() && j.State == Lost && d.stoodStill(now) {
		j.HeldBack = heldStoodStill
	}
	return j, true
}

// Doubted returns the names of the nodes that are not Healthy.
func (d *Detector) Doubted() []string {
	var names []string
	for name, n := range d.nodes {
		if n.health.State != Healthy {
			names = append(names, name)
		}
	}
	return names
}

// stoodStill reports whether this process has done nothing for so long that the silence of the nodes
// may have been its own. What it knew of them before then is out of date.
func (d *Detector) stoodStill(now time.Time) bool {
	return now.Sub(d.lastStep) > standstill
}

// judge judges all nodes.
func (d *Detector) judge(now time.Time) {
	total := count{}
	for _, n := range d.nodes {
		n.next = d.judgement(n, now)
		total.add(n.next, d.uncounted(n, n.next, now))
	}
	held, undecided := d.guard(total, now)
	massSilence, _ := MassGuard(total.lost+total.suspect, total.all, d.config.MassLossThreshold)
	for _, n := range d.nodes {
		j := n.next
		switch {
		case j.State == Suspect:
			j.MassLoss = massSilence
		case j.State == Healthy:
		case !d.config.Enabled:
			j.HeldBack = heldSwitchedOff
		case n.decided(j):
		case undecided && n.health.State != Lost:
			j.State, j.Evidence = Suspect, j.Evidence+"; the other nodes have not been probed since"
		case held || undecided:
			j.HeldBack, j.MassLoss = d.mass.why, true
		}
		d.set(n, j, now)
	}
	d.found.Lost, d.found.Guarded = total.gone, held
}

// judgement judges one node without the others.
func (d *Detector) judgement(n *node, now time.Time) Judgement {
	d.excuse(n, now)
	signs := d.signs(n, now)
	j := Judgement{SilentFrom: signs.SilentFrom}
	if last := n.lastSign(now); last.After(j.SilentFrom) {
		j.SilentFrom = last
	}
	j.State, j.Evidence = Judge(signs)
	j.Stopped = signs.Stopped()
	j.Paused = j.State == Suspect && signs.Contact && signs.Pause != ""
	return j
}

// set replaces a node's judgement.
func (d *Detector) set(n *node, j Judgement, now time.Time) {
	before := n.health
	j.Since = before.Since
	if j.State != before.State {
		j.Since = now
	}
	if j.State != Lost {
		n.confirmed = false
	}
	n.doubted = j.State != Healthy
	n.inherited = n.inherited && j.State == Suspect && d.overdue(n) <= 0
	if result := n.endPause(j, now); result != "" {
		d.found.Pauses = append(d.found.Pauses, result)
	}
	n.health = j
	grace := j.PastReplicaGrace(now)
	if j.State != before.State || j.Fence() != before.Fence() || j.MassLoss != before.MassLoss ||
		j.Paused != before.Paused || j.Stopped != before.Stopped || grace && !n.graceTold {
		d.found.Changed = append(d.found.Changed, n.name)
	}
	n.graceTold = grace
}

// signs are the node's signs of life at a time.
func (d *Detector) signs(n *node, now time.Time) Signs {
	from, silence := d.contact.silence(n.changed)
	s := Signs{
		SilentFrom:    from,
		Silence:       silence,
		StaleAge:      SuspectAge(d.config.StaleAfter, n.promise),
		Patience:      d.config.Patience,
		Unanswered:    d.unanswered(n),
		WasSuspect:    n.doubted,
		Contact:       d.contact.alive(now),
		Confirmed:     n.confirmed,
		ProbeWorks:    n.probe.works,
		ProbeFailures: n.probe.failures,
		Power:         n.azure.power,
		VMGone:        n.azure.gone,
	}
	if n.pauses.excuse.Holds(now) {
		s.Pause = n.pauses.excuse.String()
	}
	if n.lease.duration > 0 {
		_, s.LeaseAge = d.contact.silence(n.lease.changed)
		s.LeaseDuration = n.lease.duration
	}
	return s
}

// unanswered is for how long a request for a heartbeat has not been answered.
func (d *Detector) unanswered(n *node) time.Duration {
	if n.request.seen.IsZero() {
		return 0
	}
	_, age := d.contact.silence(n.request.seen)
	return age
}

// late reports whether other signs of life are looked for.
func (d *Detector) late(n *node) bool {
	_, silence := d.contact.silence(n.changed)
	return n.failing() || silence > Lateness(d.config.StaleAfter, n.promise)
}

// overdue is for how long the heartbeat has been stale, or a request for one has gone without an
// answer; 0 or less if neither is so.
func (d *Detector) overdue(n *node) time.Duration {
	_, silence := d.contact.silence(n.changed)
	return max(silence-SuspectAge(d.config.StaleAfter, n.promise), d.unanswered(n)-d.config.Patience)
}
