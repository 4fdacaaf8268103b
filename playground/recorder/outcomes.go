package recorder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"time"
)

// outcomePeriod is how often a writer notes that nothing has changed.
const outcomePeriod = time.Second

// outcomeMessage is the message of a note in the writer's log.
const outcomeMessage = "outcome"

// Outcome is a run of attempts to make a record durable that all ended alike, as the
// writer noted it in its own log. It needs no network, so a writer that is cut off is
// still watched.
type Outcome struct {
	// Durable says that the records are on the disk; else every attempt failed.
	Durable bool `json:"durable"`
	// First and Last are the sequence numbers of the first and the last attempt.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Attempts counts them.
	Attempts int64 `json:"attempts"`
	// From is when the first attempt began, Ended when it ended, and To when the last one
	// ended.
	From  time.Time `json:"from"`
	Ended time.Time `json:"ended"`
	To    time.Time `json:"to"`
	// Error of the first attempt that failed.
	Error string `json:"error,omitempty"`
}

// outcomeLog notes the outcomes in the writer's log: at once when they change, and every
// outcomePeriod.
type outcomeLog struct {
	log     *slog.Logger
	current *Outcome
	noted   time.Time
}

// add takes the outcome of one attempt down.
func (d *outcomeLog) add(sequence int64, from, to time.Time, err error) {
	if d.current != nil && d.current.Durable != (err == nil) {
		d.note(to)
	}
	changed := d.current == nil
	if changed {
		d.current = &Outcome{
			Durable: err == nil,
			First:   sequence,
			From:    from,
			Ended:   to,
		}
		if err != nil {
			d.current.Error = err.Error()
		}
	}
	d.current.Last, d.current.To = sequence, to
	d.current.Attempts++
	if changed && err != nil || to.Sub(d.noted) >= outcomePeriod {
		d.note(to)
	}
}

// note writes the present run down, and begins the next.
func (d *outcomeLog) note(now time.Time) {
	if d.current != nil {
		d.log.Info(outcomeMessage, "outcome", d.current)
	}
	d.current, d.noted = nil, now
}

// ParseOutcomes returns the outcomes in the log of a container in which a writer ran, in
// order, as a container runtime stores it: every line may have its time, stream and
// flag in front. Lines of anything else are skipped.
func ParseOutcomes(log io.Reader) ([]Outcome, error) {
	var outcomes []Outcome
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		begin := bytes.IndexByte(lines.Bytes(), '{')
		if begin < 0 {
			continue
		}
		var line struct {
			Message string  `json:"msg"`
			Outcome Outcome `json:"outcome"`
		}
		if json.Unmarshal(lines.Bytes()[begin:], &line) == nil && line.Message == outcomeMessage {
			outcomes = append(outcomes, line.Outcome)
		}
	}
	return outcomes, lines.Err()
}
