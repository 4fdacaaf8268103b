package recorder

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxBody bounds one request to the Collector: a file of records of several hours.
const maxBody = 256 << 20

// Ack is an acknowledged record as the Collector received it.
type Ack struct {
	Record
	// Arrived is the Collector's clock.
	Arrived time.Time `json:"arrived"`
}

// WriterEvent is an Event as the Collector received it.
type WriterEvent struct {
	Event
	Writer string `json:"writer"`
	Start  int64  `json:"start"`
	// Arrived is the Collector's clock.
	Arrived time.Time `json:"arrived"`
}

// Received is everything that the Collector has received from one workload. What a Collector
// returns is only added to afterwards, never changed.
type Received struct {
	Acks   []Ack
	Events []WriterEvent
	// Content is what the disk held in the latest audit.
	Content []Entry
	// ContentDirect says that the latest audit went around the page cache.
	ContentDirect bool
	audited       int64
	wanted        int64
	known         map[ackKey]struct{}
	eventsKnown   map[eventKey]struct{}
}

type ackKey struct {
	writer          string
	start, sequence int64
}

type eventKey struct {
	writer string
	start  int64
	event  EventKind
}

// Collector receives reports outside the nodes. It serves any number of workloads,
// each under a path of its own: http://address/<workload>. Reports may be repeated;
// the first one counts.
type Collector struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	workloads map[string]*Received
	changed   chan struct{}
}

// NewCollector makes a Collector that has received nothing.
func NewCollector(clock clock.PassiveClock) *Collector {
	return &Collector{
		clock:     clock,
		workloads: map[string]*Received{},
		changed:   make(chan struct{}),
	}
}

// Handler serves the protocol in protocol.go.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{workload}/reports", c.serveReport)
	mux.HandleFunc("POST /{workload}/content", c.serveContent)
	return mux
}

func (c *Collector) serveReport(w http.ResponseWriter, r *http.Request) {
	var report Report
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&report); err != nil {
		http.Error(w, fmt.Sprintf("read the report: %v", err), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client has gone if this fails, and will repeat its report.
	_ = json.NewEncoder(w).Encode(Reply{Audit: c.take(r.PathValue("workload"), report)})
}

func (c *Collector) serveContent(w http.ResponseWriter, r *http.Request) {
	audit, err := strconv.ParseInt(r.URL.Query().Get("audit"), 10, 64)
	if err != nil {
		http.Error(w, "the parameter audit is not a number", http.StatusBadRequest)
		return
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("read the content: %v", err), http.StatusBadRequest)
		return
	}
	entries := Parse(content)
	c.update(r.PathValue("workload"), func(t *Received) {
		if audit > t.audited {
			t.audited, t.Content, t.ContentDirect = audit, entries, r.URL.Query().Get("direct") == "true"
		}
	})
	w.WriteHeader(http.StatusNoContent)
}

func (c *Collector) take(workload string, report Report) (audit int64) {
	now := c.clock.Now()
	c.update(workload, func(t *Received) {
		for _, m := range report.Acks {
			key := ackKey{report.Writer, report.Start, m.Sequence}
			if _, known := t.known[key]; known {
				continue
			}
			t.known[key] = struct{}{}
			t.Acks = append(t.Acks, Ack{
				Record: Record{
					Sequence: m.Sequence,
					Start:    report.Start,
					Writer:   report.Writer,
					Time:     m.Time,
				},
				Arrived: now,
			})
		}
		for _, e := range report.Events {
			key := eventKey{report.Writer, report.Start, e.Kind}
			if _, known := t.eventsKnown[key]; known {
				continue
			}
			t.eventsKnown[key] = struct{}{}
			t.Events = append(t.Events, WriterEvent{
				Event:   e,
				Writer:  report.Writer,
				Start:   report.Start,
				Arrived: now,
			})
		}
		audit = t.wanted
	})
	return audit
}

func (c *Collector) update(workload string, f func(*Received)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.locked(workload))
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Collector) locked(workload string) *Received {
	t, ok := c.workloads[workload]
	if !ok {
		t = &Received{known: map[ackKey]struct{}{}, eventsKnown: map[eventKey]struct{}{}}
		c.workloads[workload] = t
	}
	return t
}

// Received returns what has been received from the workload until now.
func (c *Collector) Received(workload string) Received {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked(workload).clip()
}

// clip keeps the owner of the result from appending over what is added later.
func (t *Received) clip() Received {
	return Received{
		Acks:          slices.Clip(t.Acks),
		Events:        slices.Clip(t.Events),
		Content:       t.Content,
		ContentDirect: t.ContentDirect,
		audited:       t.audited,
	}
}

// Await blocks until the condition holds for what is known of the workload, and
// returns that; or the context's error.
func (c *Collector) Await(ctx context.Context, workload string, condition func(Received) bool) (Received, error) {
	for {
		c.mu.Lock()
		received, changed := c.locked(workload).clip(), c.changed
		c.mu.Unlock()
		if condition(received) {
			return received, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return received, ctx.Err()
		}
	}
}

// Audit has the workload's running writer read its disk and blocks until the
// content is here. The acknowledgements in the result are those that had arrived
// before the disk was read: each of them must be in the content.
func (c *Collector) Audit(ctx context.Context, workload string) (Received, error) {
	var audit int64
	var before Received
	c.update(workload, func(t *Received) {
		t.wanted++
		audit, before = t.wanted, t.clip()
	})
	after, err := c.Await(ctx, workload, func(t Received) bool { return t.audited >= audit })
	if err != nil {
		return Received{}, fmt.Errorf("wait for what is on the disk of %s: %w", workload, err)
	}
	after.Acks = before.Acks
	return after, nil
}
