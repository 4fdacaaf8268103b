package liveness

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

const (
	// alarmFor is how long all nodes are probed after one node became suspect.
	alarmFor = 30 * time.Second
	// guardLinger is how long the guard remains active after the first nodes recovered: the others
	// need a moment to follow.
	guardLinger = 10 * time.Second
)

// heldSwitchedOff is the reason why no node is fenced if failover is off.
const heldSwitchedOff = "failover is switched off (failover-enabled)"

// heldStoodStill is the reason why no node is fenced until a round after this process stood still.
const heldStoodStill = "this controller has just stood still, and has not looked at the node since"

// guard is the state of the guard against mass false alarms.
type guard struct {
	// alarm is when a node became suspect while no other was; zero while none is. Every node is
	// probed once after that.
	alarm time.Time
	// until is when the guard ends at the earliest, closed when it began to hold fences back; zero
	// if it does not.
	until, closed time.Time
	why           string
}

// judge updates the health of all nodes and notifies the subscribers. The caller holds the lock.
func (m *Monitor) judge(now time.Time) {
	// gone counts the nodes that are lost or down, over the nodes that the guard does not count; see
	// node.uncounted.
	gone, lost, suspect, over := 0, 0, 0, 0
	for _, n := range m.nodes {
		n.excuse(now, m.PauseLimits)
		signs := n.signs(m.contact, now, &m.Options)
		v := nodehealth.Judgement{SilentFrom: signs.SilentFrom}
		if last := n.lastSign(now); last.After(v.SilentFrom) {
			v.SilentFrom = last
		}
		v.State, v.Evidence = nodehealth.Judge(signs)
		v.Stopped = v.State == nodehealth.Down && signs.Stopped()
		v.Paused = v.State == nodehealth.Suspect && signs.Contact && signs.Pause != ""
		if v.State.LostOrDown() {
			gone++
		}
		switch {
		case n.uncounted(v, now):
			over++
		case v.State == nodehealth.Lost:
			lost++
		case v.State == nodehealth.Suspect:
			suspect++
		}
		n.next = v
	}
	total := len(m.nodes) - over
	guarded, undecided := m.guarded(lost, total, now)
	switch {
	case !guarded:
		m.guard.closed = time.Time{}
	case m.guard.closed.IsZero():
		m.guard.closed = now
	}
	massSilence, _ := nodehealth.MassGuard(lost+suspect, total, m.MassLossThreshold)
	for _, n := range m.nodes {
		v := n.next
		switch {
		case v.State == nodehealth.Suspect:
			v.MassLoss = massSilence
		case v.State == nodehealth.Healthy:
		case !m.Enabled:
			v.HeldBack = heldSwitchedOff
		case v.State == nodehealth.Lost && undecided && n.health.State != nodehealth.Lost && !n.decided(v):
			v.State, v.Evidence = nodehealth.Suspect, v.Evidence+"; the other nodes have not been probed since"
		case v.State == nodehealth.Lost && (guarded || undecided) && !n.decided(v):
			v.HeldBack, v.MassLoss = m.guard.why, true
		}
		m.set(n, v, now)
	}
	m.metrics.show(gone, guarded)
}

// guarded reports whether the guard holds fencing back. It counts the nodes that are lost or may
// turn out to be lost, and not the nodes about which the last word is said. undecided reports whether it would
// hold fencing back if it also counted the nodes that have not been probed since the alarm.
func (m *Monitor) guarded(lost, total int, now time.Time) (held, undecided bool) {
	suspects, unseen, recent := 0, 0, false
	for _, n := range m.nodes {
		v := n.next
		if n.uncounted(v, now) {
			continue
		}
		suspect := v.State == nodehealth.Lost
		if v.State == nodehealth.Healthy || v.State == nodehealth.Suspect {
			suspect = n.suspect(m.contact, m.StaleAfter)
			if suspect {
				suspects++
			} else if m.unseen(n, now) {
				unseen++
			}
		}
		recent = recent || suspect && (n.overdue(m.contact, &m.Options) <= alarmFor || now.Sub(n.lastSign(now)) <= alarmFor)
	}
	switch {
	case !recent:
		m.guard.alarm = time.Time{}
	case m.guard.alarm.IsZero():
		m.guard.alarm = now
	}
	if lost == 0 {
		return false, false
	}
	if held, why := nodehealth.MassGuard(lost+suspects, total, m.MassLossThreshold); held {
		m.guard.until, m.guard.why = now.Add(guardLinger), why
		return true, false
	}
	if now.Before(m.guard.until) {
		return true, false
	}
	undecided, m.guard.why = nodehealth.MassGuard(lost+suspects+unseen, total, m.MassLossThreshold)
	return false, undecided
}

// unseen reports whether there is an alarm and the node has neither given a sign of life nor failed
// a probe. A connection is a sign of life when it is still open after the time in which it would
// have ended.
func (m *Monitor) unseen(n *node, now time.Time) bool {
	alarm := m.guard.alarm
	if n.connection != nil {
		return !alarm.IsZero() && now.Sub(alarm) < connectionTimeout
	}
	return !alarm.IsZero() && m.Prober != nil && n.probe.works && n.changed.Before(alarm) &&
		(n.probe.at.Before(alarm) || n.probe.busy)
}

// set replaces a node's health.
func (m *Monitor) set(n *node, v nodehealth.Judgement, now time.Time) {
	before := n.health
	v.Since = before.Since
	if v.State != before.State {
		v.Since = now
	}
	if v.State != nodehealth.Lost {
		n.confirmed = false
	}
	n.doubted = n.doubted || v.State != nodehealth.Healthy
	n.inherited = n.inherited && v.State == nodehealth.Suspect && n.overdue(m.contact, &m.Options) <= 0
	m.metrics.pause(n.endPause(v, now))
	n.health = v
	grace := v.PastReplicaGrace(now)
	tell := v.State != before.State || v.Fence() != before.Fence() || v.MassLoss != before.MassLoss ||
		v.Paused != before.Paused || v.Stopped != before.Stopped || grace && !n.graceTold
	n.graceTold = grace
	if tell {
		m.notify(n.name)
	}
}
