// Package scheduledevents holds the maintenance events of VMs: what the metadata service of Azure
// announces before it pauses, restarts, moves or deletes a VM. A Document is pure: what it says
// follows from what was written and from the time. Schedule keeps the documents in the store, for
// the admin API, which makes, postpones and ends events, and for the metadata services, which serve
// and approve them. What an event announces is not done here: the maker of the event does it.
package scheduledevents

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
)

// Types of events.
const (
	Freeze    = "Freeze"
	Reboot    = "Reboot"
	Redeploy  = "Redeploy"
	Preempt   = "Preempt"
	Terminate = "Terminate"
)

// The status of an event. One that has ended or was canceled is in no document.
const (
	Scheduled = "Scheduled"
	Started   = "Started"
)

// DefaultStartedFor is how long an event is Started as a rule. The VM is interrupted for a part of
// that time.
const DefaultStartedFor = 10 * time.Minute

var (
	// ErrUnknown marks an event that is in no document.
	ErrUnknown = errors.New("there is no such event")
	// ErrFixed marks a change that Azure does not make.
	ErrFixed = errors.New("the event cannot be postponed")
)

// leastNotice is how long before its start Azure announces an event of a type at least. That of
// Terminate is configured.
var leastNotice = map[string]time.Duration{
	Freeze:   15 * time.Minute,
	Reboot:   15 * time.Minute,
	Redeploy: 10 * time.Minute,
	Preempt:  30 * time.Second,
}

// descriptions are what Azure says of an event of the type.
var descriptions = map[string]string{
	Freeze:   "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
	Reboot:   "Host server is undergoing maintenance.",
	Redeploy: "Host server is undergoing an emergency repair.",
}

// Event is a maintenance event.
type Event struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// VMs are the names of the VMs that it affects.
	VMs []string `json:"vms"`
	// NotBefore is a whole second, and the time at which the event starts unless it is approved
	// before.
	NotBefore   time.Time `json:"notBefore"`
	Approved    bool      `json:"approved,omitempty"`
	StartedAt   time.Time `json:"startedAt"` // zero while it is Scheduled
	Description string    `json:"description"`
	Source      string    `json:"source"` // Platform or User
	// DurationSeconds is for how long the VMs are expected to be interrupted; -1 if that is not
	// known.
	DurationSeconds int `json:"durationSeconds"`
	// StartedFor is how long after its start the event ends.
	StartedFor latency.Duration `json:"startedFor"`
}

// Document is the events of the VMs that share them.
type Document struct {
	// Incarnation grows by one with each change of an event.
	Incarnation int     `json:"incarnation"`
	Events      []Event `json:"events"`
}

// empty is the document of VMs that never had an event.
func empty() Document { return Document{Incarnation: 1, Events: []Event{}} }

// At returns the document as it is at that time: events have started and ended by themselves since
// it was written.
func (d Document) At(now time.Time) Document {
	next := Document{Incarnation: d.Incarnation, Events: []Event{}}
	for _, e := range d.Events {
		if e.Status == Scheduled && !now.Before(e.NotBefore) {
			e.Status, e.StartedAt = Started, e.NotBefore
			next.Incarnation++
		}
		if e.Status == Started && !now.Before(e.StartedAt.Add(time.Duration(e.StartedFor))) {
			next.Incarnation++
			continue
		}
		next.Events = append(next.Events, e)
	}
	return next
}

func (d *Document) index(id string) int {
	return slices.IndexFunc(d.Events, func(e Event) bool { return e.ID == id })
}

func (d *Document) add(e Event) {
	d.Events = append(d.Events, e)
	d.Incarnation++
}

// approve lets an event start before its time, for all VMs that it affects. A Terminate waits until
// all that are Scheduled are approved. The approval of an event that has started is none.
func (d *Document) approve(id string, now time.Time) error {
	at := d.index(id)
	if at < 0 {
		return fmt.Errorf("approve event %s: %w", id, ErrUnknown)
	}
	d.Events[at].Approved = true
	if d.Events[at].Type != Terminate {
		d.start(id, now)
		return nil
	}
	pending := func(e Event) bool { return e.Type == Terminate && e.Status == Scheduled }
	if slices.ContainsFunc(d.Events, func(e Event) bool { return pending(e) && !e.Approved }) {
		return nil
	}
	for _, e := range d.Events {
		if pending(e) {
			d.start(e.ID, now)
		}
	}
	return nil
}

// start starts an event of the document that has not started.
func (d *Document) start(id string, now time.Time) {
	if e := &d.Events[d.index(id)]; e.Status == Scheduled {
		e.Status, e.StartedAt = Started, now
		d.Incarnation++
	}
}

// postpone gives an event of the document that has not started another time.
func (d *Document) postpone(id string, notBefore time.Time) error {
	e := &d.Events[d.index(id)]
	if e.Status != Scheduled || e.Type == Terminate {
		return fmt.Errorf("postpone event %s, a %s that is %s: %w", id, e.Type, e.Status, ErrFixed)
	}
	e.NotBefore = wholeSecond(notBefore)
	d.Incarnation++
	return nil
}

// remove removes an event of the document: one that has not started is canceled, one that has
// started has ended.
func (d *Document) remove(id string) {
	at := d.index(id)
	d.Events = slices.Delete(d.Events, at, at+1)
	d.Incarnation++
}

// wholeSecond rounds up to what NotBefore can say: an event never starts before it.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second).UTC()
	}
	return t.UTC()
}
