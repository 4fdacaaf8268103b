package recorder

import "time"

// Report is what a writer sends to the Collector, by POST to <collector>/reports.
type Report struct {
	Writer string  `json:"writer"`
	Start  int64   `json:"start"`
	Acks   []Mark  `json:"acks,omitempty"`
	Events []Event `json:"events,omitempty"`
}

// Mark is an acknowledged record: its number, and the time in it.
type Mark struct {
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
}

// Reply is the Collector's answer to a Report.
type Reply struct {
	// Audit counts the audits that were asked for. A writer that sees it grow sends
	// what is on its disk, once, by POST to <collector>/content?audit=N.
	Audit int64 `json:"audit"`
}

// EventKind says what happened to a writer.
type EventKind string

const (
	// EventResumed: the writer has read the file and continues after Sequence.
	EventResumed EventKind = "resumed"
	// EventFailed: a write or fsync failed for the first time; Detail is the error. The writer
	// ends, unless it was told to keep trying.
	EventFailed EventKind = "failed"
	// EventStopped: the writer was told to end; Sequence is its last record.
	EventStopped EventKind = "stopped"
)

// Event is something that happened to a writer.
type Event struct {
	Kind     EventKind `json:"kind"`
	Time     time.Time `json:"time"`
	Sequence int64     `json:"sequence"`
	Detail   string    `json:"detail,omitempty"`
}
