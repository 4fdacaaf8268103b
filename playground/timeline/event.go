// Package timeline keeps what was observed while a scenario ran and shows it: as
// aligned text, as JSON for programs, and as one self-contained HTML page with
// pictures in which every part of the system has a lane.
//
// The package draws and does not judge: package scenario observes, decides what
// passed and builds the Report. Nothing here does I/O but Report.Write.
package timeline

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Lane is the part of the system in which an event happened.
type Lane string

// The lanes that are not nodes.
const (
	Kubernetes Lane = "kubernetes"
	Controller Lane = "controller"
	Azure      Lane = "azure"
)

// Node is the lane of a node.
func Node(name string) Lane { return Lane("node/" + name) }

// Kind says what an event is, and with it how it is drawn.
type Kind string

const (
	// State is a change of an object in Kubernetes.
	State Kind = "state"
	// Call is a call that the driver served.
	Call Kind = "call"
	// Operation is something that Azure did.
	Operation Kind = "operation"
	// Workload is what the pod's program did.
	Workload Kind = "workload"
)

// Event is one observation.
type Event struct {
	At time.Time
	// Duration is 0 for a moment.
	Duration time.Duration
	Lane     Lane
	Kind     Kind
	// Step is a few words, drawn beside the mark.
	Step string
	// Detail is for those who want to know more.
	Detail string
	// Source is where it was observed: "kubernetes", "driver controller", "driver
	// node", "azuresim", "workload" or "scenario".
	Source string
	// Subject is whom it concerns: a workload, or a resource at Azure. It may be empty.
	Subject string
	// Failed marks a call or operation that ended with an error.
	Failed bool
}

// End is the event's last instant.
func (e Event) End() time.Time { return e.At.Add(e.Duration) }

// Log is a growing set of events. Its methods may be called concurrently.
type Log struct {
	mu     sync.Mutex
	events []Event
}

// Add adds events.
func (l *Log) Add(events ...Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
}

// All returns the events in the order of their beginning.
func (l *Log) All() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sorted(l.events)
}

// Between returns the events that touch the time from begin to end, in order.
func (l *Log) Between(begin, end time.Time) []Event {
	return slices.DeleteFunc(l.All(), func(e Event) bool { return e.At.After(end) || e.End().Before(begin) })
}

func sorted(events []Event) []Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events
}

// Median returns the middle of the values, or the mean of the two in the middle;
// 0 for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Clone(values)
	slices.SortFunc(values, cmp.Compare)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half]
	}
	return (values[half-1] + values[half]) / 2
}
