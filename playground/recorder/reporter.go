package recorder

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	reportTimeout = 2 * time.Second
	reportRetry   = 100 * time.Millisecond
	reportBatch   = 2000
	// backlogLimit bounds what is kept for a Collector that is away: hours of records.
	// The oldest are given up first, which makes the evidence thinner and never wrong.
	backlogLimit = 1 << 20
)

// reporter brings acknowledgements and events to the Collector, in order, while
// the writer continues. A report that cannot be delivered is kept and sent again.
type reporter struct {
	url    string
	writer string
	start  int64
	client *http.Client
	clock  clock.WithTicker

	mu     sync.Mutex
	acks   []Mark
	events []Event
	audit  int64 // the highest that the Collector has asked for
	news   chan struct{}
}

func newReporter(url, writer string, start int64, clock clock.WithTicker) *reporter {
	return &reporter{
		url:    url,
		writer: writer,
		start:  start,
		clock:  clock,
		client: &http.Client{Timeout: reportTimeout},
		news:   make(chan struct{}, 1),
	}
}

func (r *reporter) ack(m Mark) {
	r.mu.Lock()
	r.acks = append(r.acks, m)
	r.mu.Unlock()
	r.wake()
}

func (r *reporter) event(e Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	r.wake()
}

func (r *reporter) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *reporter) wantedAudit() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.audit
}

// run delivers until the context ends; then it makes a last attempt.
func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-r.news:
		case <-ctx.Done():
			r.flush(context.WithoutCancel(ctx))
			return
		}
		for !r.flush(ctx) {
			select {
			case <-r.clock.After(reportRetry):
			case <-ctx.Done():
				r.flush(context.WithoutCancel(ctx))
				return
			}
		}
	}
}

// flush reports whether everything was delivered.
func (r *reporter) flush(ctx context.Context) bool {
	for {
		r.mu.Lock()
		report := Report{
			Writer: r.writer,
			Start:  r.start,
			Acks:   r.acks[:min(len(r.acks), reportBatch)],
			Events: r.events,
		}
		r.mu.Unlock()
		if len(report.Acks) == 0 && len(report.Events) == 0 {
			return true
		}
		reply, err := r.post(ctx, report)
		r.mu.Lock()
		if err != nil {
			r.acks = r.acks[max(0, len(r.acks)-backlogLimit):]
			r.mu.Unlock()
			return false
		}
		r.acks = r.acks[len(report.Acks):]
		r.events = r.events[len(report.Events):]
		r.audit = max(r.audit, reply.Audit)
		r.mu.Unlock()
	}
}

func (r *reporter) post(ctx context.Context, report Report) (Reply, error) {
	body, err := json.Marshal(report)
	if err != nil {
		return Reply{}, err
	}
	answer, err := r.send(ctx, "/reports", "application/json", body)
	if err != nil {
		return Reply{}, err
	}
	var reply Reply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return Reply{}, fmt.Errorf("read the collector's answer: %w", err)
	}
	return reply, nil
}

// content sends what is on the disk.
func (r *reporter) content(ctx context.Context, audit int64, direct bool, content []byte) error {
	_, err := r.send(ctx, fmt.Sprintf("/content?audit=%d&direct=%t", audit, direct), "text/plain", content)
	return err
}

func (r *reporter) send(ctx context.Context, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("collector answers %s", response.Status)
	}
	return answer, nil
}
