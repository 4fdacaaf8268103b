package nodehealth

import (
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// PauseResult is how a silence ended that an announcement excused, or could have.
type PauseResult string

// The results.
const (
	// PauseSurvived: the node sent a heartbeat in time.
	PauseSurvived PauseResult = "Survived"
	// PauseExceeded: the node was still silent at the end.
	PauseExceeded PauseResult = "Exceeded"
	// PauseRefused: the limits were exhausted, and the node is lost.
	PauseRefused PauseResult = "Refused"
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
	excuse Excuse
	paused bool
	// since is when the silence began that was excused and that no heartbeat has ended; zero if
	// there is none.
	since time.Time
	// excused are the silences that have ended.
	excused []ExcusedSilence
}

// announce replaces the announcements, and returns those that are new.
func (p *pauses) announce(events []apiv1.MaintenanceEvent, now time.Time) (added []apiv1.MaintenanceEvent) {
	started := map[string]time.Time{}
	for _, e := range events {
		if !slices.ContainsFunc(p.events, func(b apiv1.MaintenanceEvent) bool { return b.EventID == e.EventID }) {
			added = append(added, e)
		}
		if e.Started || e.NotBeforeTime == nil {
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
// begins only once, whatever probes the node answers, because only a heartbeat ends it: otherwise
// each answered probe would begin another excuse.
func (d *Detector) excuse(n *node, now time.Time) {
	p := &n.pauses
	silentFrom := n.lastSign(now)
	if !n.probe.works { // no sign is expected before the next heartbeat
		silentFrom = silentFrom.Add(Promise(n.promise))
	}
	if !p.since.IsZero() {
		silentFrom = p.since
	}
	announced := AnnouncedPauses(p.events, func(event string) time.Time { return p.started[event] })
	excuse := d.config.PauseLimits.Excuse(announced, p.excused, silentFrom)
	if p.paused && excuse.Until.IsZero() { // the event was removed, and the node has still not sent a heartbeat
		excuse = p.excuse
	}
	p.excuse = excuse
}

// endPause records the end of an excused silence when the node gets another judgement. It returns the
// result; "" if no silence ends.
func (n *node) endPause(j Judgement, now time.Time) PauseResult {
	p := &n.pauses
	if j.State == Healthy {
		p.since = time.Time{}
	}
	switch {
	case j.Paused:
		p.paused, p.since = true, p.excuse.SilentFrom
		return ""
	case j.State == Suspect && p.excuse.Holds(now):
		return "" // the API server does not answer just now
	case j.State == Lost && n.health.State != Lost && p.excuse.Refused:
		return PauseRefused
	case !p.paused:
		return ""
	}
	p.paused = false
	p.excused = append(slices.DeleteFunc(p.excused, func(s ExcusedSilence) bool { return !s.Recent(now) }),
		p.excuse.Ended(now))
	if j.State == Healthy {
		return PauseSurvived
	}
	return PauseExceeded
}
