package nodehealth

import (
	"fmt"
	"time"
)

const (
	// alarmFor is how long all nodes are probed after one node became suspect.
	alarmFor = 30 * time.Second
	// guardLinger is how long the guard remains active after the first nodes recovered: the others
	// need a moment to follow.
	guardLinger = 10 * time.Second
	// ConnectionTimeout is the time in which a connection ends if the node does not answer.
	ConnectionTimeout = 2 * time.Second
)

// MassGuard reports whether so many nodes seem lost at once that the fault is more likely with the
// observer: at least two, and more than threshold percent of all. Both numbers leave out the nodes
// about which the LastWord is said.
func MassGuard(lost, total, threshold int) (held bool, why string) {
	if lost < 2 || lost*100 <= total*threshold {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d nodes seem lost at once, which is more than %d %%", lost, total, threshold)
}

// massLoss is the state of the guard against mass loss.
type massLoss struct {
	// alarm is when a node became suspect while no other was; zero while none is. Every node is
	// probed once after that.
	alarm time.Time
	// until is when the guard ends at the earliest, closed when it began to hold fences back; zero
	// if it does not.
	until, closed time.Time
	why           string
}

// count counts nodes by their judgements.
type count struct {
	// gone are the nodes that are lost or down. lost, suspect and all leave out the nodes that the
	// guard does not count.
	gone, lost, suspect, all int
}

func (c *count) add(j Judgement, uncounted bool) {
	if j.State.LostOrDown() {
		c.gone++
	}
	if uncounted {
		return
	}
	c.all++
	if j.State == Lost {
		c.lost++
	}
	if j.State == Suspect {
		c.suspect++
	}
}

// guard reports whether the guard against mass loss holds fencing back. It counts the nodes that are
// lost or may turn out to be lost, and not the nodes about which the last word is said. undecided
// reports whether it would hold fencing back if it also counted the nodes that have not been probed
// since the alarm.
func (d *Detector) guard(total count, now time.Time) (held, undecided bool) {
	suspects, unseen := d.alarm(now)
	held, undecided = d.mass.decide(total, suspects, unseen, d.config.MassLossThreshold, now)
	switch {
	case !held:
		d.mass.closed = time.Time{}
	case d.mass.closed.IsZero():
		d.mass.closed = now
	}
	return held, undecided
}

// alarm counts the nodes that may turn out to be lost, and those that have not been probed since the
// alarm. It begins and ends the alarm.
func (d *Detector) alarm(now time.Time) (suspects, unseen int) {
	recent := false
	for _, n := range d.nodes {
		if d.uncounted(n, n.next, now) {
			continue
		}
		suspect := n.next.State == Lost
		if !n.next.State.LostOrDown() {
			suspect = d.suspect(n)
			if suspect {
				suspects++
			} else if d.unseen(n, now) {
				unseen++
			}
		}
		recent = recent || suspect && (d.overdue(n) <= alarmFor || now.Sub(n.lastSign(now)) <= alarmFor)
	}
	switch {
	case !recent:
		d.mass.alarm = time.Time{}
	case d.mass.alarm.IsZero():
		d.mass.alarm = now
	}
	return suspects, unseen
}

func (m *massLoss) decide(total count, suspects, unseen, threshold int, now time.Time) (held, undecided bool) {
	if total.lost == 0 {
		return false, false
	}
	if held, why := MassGuard(total.lost+suspects, total.all, threshold); held {
		m.until, m.why = now.Add(guardLinger), why
		return true, false
	}
	if now.Before(m.until) {
		return true, false
	}
	undecided, m.why = MassGuard(total.lost+suspects+unseen, total.all, threshold)
	return false, undecided
}

// suspect reports whether the node may turn out to be lost: a probe failed, or if probes do not
// reach it, its heartbeat is late.
func (d *Detector) suspect(n *node) bool { return n.failing() || !n.probe.works && d.late(n) }

// unseen reports whether there is an alarm and the node has neither given a sign of life nor failed
// a probe. A connection is a sign of life when it is still open after the time in which it would
// have ended.
func (d *Detector) unseen(n *node, now time.Time) bool {
	alarm := d.mass.alarm
	if n.connected {
		return now.Sub(alarm) < ConnectionTimeout
	}
	return n.probe.works && n.changed.Before(alarm) && (n.probe.at.Before(alarm) || n.probe.busy)
}

// uncounted reports whether the guard against mass loss does not count the node: the last word about
// it is said, or Azure has announced its silence.
func (d *Detector) uncounted(n *node, j Judgement, now time.Time) bool {
	return n.decided(j) || n.failing() && n.pauses.excuse.Holds(now)
}
