package scheduledevents

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
)

// Request describes an event that is to be made.
type Request struct {
	// Type is one of the types above. Another one is served as Azure would serve a type that it adds;
	// it needs a Notice.
	Type string `json:"type"`
	// VMs are the affected VMs, by their names on the data plane. They share their events.
	VMs []string `json:"vms"`
	// Notice is how long before its start the event is announced. By default it is the least that
	// Azure gives. 0 is an event that is Started at once, as after a failure of hardware.
	Notice *latency.Duration `json:"notice"`
	// DurationSeconds is the expected interruption, -1 (unknown) by default.
	DurationSeconds *int `json:"durationSeconds"`
	// Description is by default one of Azure's.
	Description *string `json:"description"`
	// Source is Platform, the default, or User.
	Source string `json:"source"`
	// StartedFor is how long after its start the event ends, DefaultStartedFor by default.
	StartedFor latency.Duration `json:"startedFor"`
}

// event is the event that the request describes, without an ID. terminate is the notice that is
// configured for a Terminate, 0 for none.
func (r Request) event(names []string, terminate time.Duration, now time.Time) (Event, error) {
	e := Event{
		Type:            r.Type,
		Status:          Scheduled,
		VMs:             names,
		Description:     descriptions[r.Type],
		Source:          "Platform",
		DurationSeconds: -1,
		StartedFor:      latency.Duration(DefaultStartedFor),
	}
	notice, known := leastNotice[r.Type]
	if r.Type == Terminate && terminate > 0 {
		notice, known = terminate, true
	}
	if r.Notice != nil {
		notice, known = time.Duration(*r.Notice), true
	}
	if r.DurationSeconds != nil {
		e.DurationSeconds = *r.DurationSeconds
	}
	if r.Description != nil {
		e.Description = *r.Description
	}
	if r.Source != "" {
		e.Source = r.Source
	}
	if r.StartedFor != 0 {
		e.StartedFor = r.StartedFor
	}
	var faults []error
	if r.Type == "" {
		faults = append(faults, errors.New("type: is required"))
	}
	if !known {
		faults = append(faults, fmt.Errorf("notice: is required for the type %q, for which none is known or configured", r.Type))
	}
	if !slices.Contains([]string{"Platform", "User"}, e.Source) {
		faults = append(faults, fmt.Errorf("source %q: must be Platform or User", e.Source))
	}
	if notice < 0 || e.StartedFor < 0 || e.DurationSeconds < -1 {
		faults = append(faults, errors.New("notice and startedFor must not be negative, and durationSeconds not below -1"))
	}
	e.NotBefore = wholeSecond(now.Add(notice))
	if notice == 0 {
		e.Status, e.NotBefore, e.StartedAt = Started, now.UTC(), now.UTC()
	}
	return e, errors.Join(faults...)
}
