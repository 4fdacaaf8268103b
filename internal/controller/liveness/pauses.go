package liveness

import (
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// pauses are what is announced for the VM of a node, and how that excused silences.
type pauses struct {
	// followed says that the node plug-in follows the announcements, so that the Node's condition
	// need not be read.
	followed bool
	events   []apiv1.MaintenanceEvent
	// started is when this process first saw that an event had begun.
	started map[string]time.Time
	// excuse is what the announcements mean for the present silence. paused says that only it keeps
	// the node from being lost.
	excuse nodehealth.Excuse
	paused bool
	// excused are the silences that have ended.
	excused []nodehealth.ExcusedSilence
}

// announce replaces the announcements, and returns those that are new.
func (p *pauses) announce(events []apiv1.MaintenanceEvent, now time.Time) (added []apiv1.MaintenanceEvent) {
	started := map[string]time.Time{}
	for _, e := range events {
		if !slices.ContainsFunc(p.events, func(b apiv1.MaintenanceEvent) bool { return b.EventID == e.EventID }) {
			added = append(added, e)
		}
		if e.Started || e.NotBefore == nil {
			started[e.EventID] = now
			if before, known := p.started[e.EventID]; known {
				started[e.EventID] = before
			}
		}
	}
	p.events, p.started = events, started
	return added
}

// excuse decides what the announcements mean for the silence of the node. A silence that is excused
// begins only once, whatever probes the node answers, because only a heartbeat ends it.
func (n *node) excuse(now time.Time, limits nodehealth.PauseLimits) {
	p := &n.pauses
	if len(p.events) == 0 && !p.paused {
		p.excuse = nodehealth.Excuse{}
		return
	}
	silentFrom := n.lastSign(now)
	if !n.probe.works { // no sign is expected before the next heartbeat
		silentFrom = silentFrom.Add(nodehealth.Promise(n.promise))
	}
	if p.paused {
		silentFrom = p.excuse.SilentFrom
	}
	announced := nodehealth.AnnouncedPauses(p.events, func(event string) time.Time { return p.started[event] })
	excuse := limits.Excuse(announced, p.excused, silentFrom)
	if p.paused && excuse.Until.IsZero() { // the event was removed, and the node has still not sent a heartbeat
		excuse = p.excuse
	}
	p.excuse = excuse
}

// uncounted reports whether the guard against mass loss does not count the node: the last word about
// it is said, or Azure has announced its silence.
func (n *node) uncounted(v nodehealth.Judgement, now time.Time) bool {
	return n.decided(v) || !v.State.LostOrDown() && n.failing() && n.pauses.excuse.Holds(now)
}

// endPause records the end of an excused silence when the node gets another health. It returns the
// result; "" if no silence ends.
func (n *node) endPause(v nodehealth.Judgement, now time.Time) (result string) {
	p := &n.pauses
	switch {
	case v.Paused:
		p.paused = true
		return ""
	case p.paused && v.State == nodehealth.Suspect && p.excuse.Holds(now):
		return "" // the API server does not answer just now
	case !p.paused && v.State == nodehealth.Lost && n.health.State != nodehealth.Lost && p.excuse.Refused:
		return "refused"
	case !p.paused:
		return ""
	}
	p.paused = false
	p.excused = append(slices.DeleteFunc(p.excused, func(s nodehealth.ExcusedSilence) bool { return !s.Recent(now) }),
		p.excuse.Ended(now))
	if v.State == nodehealth.Healthy {
		return "survived"
	}
	return "exceeded"
}
