package nodehealth

import (
	"fmt"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const (
	// pauseMargin is how much longer than announced a pause may last before the node is lost: the
	// node has to answer again, and the announced duration is an estimate.
	pauseMargin = 5 * time.Second
	// unknownPause is the duration of a pause if Azure does not say it: the longest that Azure
	// documents.
	unknownPause = 30 * time.Second
	// announcedFor is for how long after its begin an announcement can excuse a silence that begins
	// then. Azure removes the event some minutes after the pause.
	announcedFor = 30 * time.Minute
	// clockDifference is how far Azure's clock and that of the observer may differ.
	clockDifference = 5 * time.Second
)

// PauseLimits bound the silence that announcements excuse. A node writes its announcements itself,
// and is not trusted (law 7): these limits are the longest that it can delay its own fence by them.
type PauseLimits struct {
	// PerEvent is for all silences during one announced event together.
	PerEvent time.Duration
	// PerHour is for all silences of a node in an hour.
	PerHour time.Duration
}

// DefaultPauseLimits allow twice the longest pause that Azure documents for one event, and two such
// events in an hour.
var DefaultPauseLimits = PauseLimits{PerEvent: time.Minute, PerHour: 2 * time.Minute}

// AnnouncedPause is a pause of a VM that Azure has announced, as an observer sees it.
type AnnouncedPause struct {
	Event string
	// From is when it can begin, by the observer's clock.
	From time.Time
	// Lasts is how long it is expected to last.
	Lasts time.Duration
}

// AnnouncedPauses returns the events that pause the VM. The others end it or start it again, which
// no node survives with its mounts. started says when the observer first saw that an event had
// begun.
func AnnouncedPauses(events []apiv1.MaintenanceEvent, started func(event string) time.Time) []AnnouncedPause {
	var pauses []AnnouncedPause
	for _, e := range events {
		if e.Type != apiv1.MaintenanceFreeze {
			continue
		}
		p := AnnouncedPause{Event: e.EventID, From: started(e.EventID), Lasts: unknownPause}
		if !e.Started && e.NotBeforeTime != nil {
			p.From = e.NotBeforeTime.Time
		}
		if e.DurationSeconds != nil {
			p.Lasts = time.Duration(*e.DurationSeconds) * time.Second
		}
		pauses = append(pauses, p)
	}
	return pauses
}

// ExcusedSilence is a silence of a node that an announcement has excused.
type ExcusedSilence struct {
	Event    string
	From, To time.Time
}

// Excuse is what an announcement means for a silence.
type Excuse struct {
	AnnouncedPause
	// SilentFrom is when the silence began.
	SilentFrom time.Time
	// Until is when the excuse ends; zero if there is none.
	Until time.Time
	// Refused says that there is an announcement, and that the limits are exhausted.
	Refused bool
}

// Holds reports whether the silence is excused at a time.
func (e Excuse) Holds(now time.Time) bool { return now.Before(e.Until) }

// Ended returns the silence when it has ended, at the end of the excuse at the latest.
func (e Excuse) Ended(now time.Time) ExcusedSilence {
	silence := ExcusedSilence{Event: e.Event, From: e.SilentFrom, To: now}
	if now.After(e.Until) {
		silence.To = e.Until
	}
	return silence
}

// String says it to a user.
func (e Excuse) String() string {
	return fmt.Sprintf("Azure has announced that it pauses the VM for %s; the node is expected back until %s", e.Lasts,
		e.Until.UTC().Format(time.RFC3339))
}

// Excuse decides until when a silence that began at silentFrom is excused: from the begin of the
// pause for its announced duration and a margin. before are the silences of the node that were
// excused before.
func (l PauseLimits) Excuse(announced []AnnouncedPause, before []ExcusedSilence, silentFrom time.Time) Excuse {
	best := Excuse{SilentFrom: silentFrom}
	for _, a := range announced {
		if silentFrom.Before(a.From.Add(-clockDifference)) || silentFrom.After(a.From.Add(announcedFor)) {
			continue
		}
		lasts := min(a.Lasts+pauseMargin, l.left(before, a.Event, silentFrom))
		if lasts <= 0 {
			best.Refused = best.Until.IsZero()
			continue
		}
		from := silentFrom
		if a.From.After(from) {
			from = a.From
		}
		if until := from.Add(lasts); until.After(best.Until) {
			best = Excuse{AnnouncedPause: a, SilentFrom: silentFrom, Until: until}
		}
	}
	return best
}

// left is how long a silence during an event may still be.
func (l PauseLimits) left(before []ExcusedSilence, event string, silentFrom time.Time) time.Duration {
	left := l
	for _, s := range before {
		lasted := max(s.To.Sub(s.From), 0)
		if s.Event == event {
			left.PerEvent -= lasted
		}
		if s.Recent(silentFrom) {
			left.PerHour -= lasted
		}
	}
	return min(left.PerEvent, left.PerHour)
}

// Recent reports whether the silence counts for the limit of an hour.
func (s ExcusedSilence) Recent(now time.Time) bool { return now.Sub(s.To) < time.Hour }
