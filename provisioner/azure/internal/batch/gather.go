package batch

import "time"

const (
	// quiet is the pause after a request after which no more of them are likely to follow. Calls of
	// a burst come at 20 a second, and their requests after the driver's own writes to the API
	// server. With 100 ms the benchmark of a burst shows two updates for pods without
	// VolumeAttachments.
	quiet = 300 * time.Millisecond
	// longestQuiet bounds the wait of a batch's first request for others. A fence waits no longer for the
	// fences of the node's other disks, which the controller asks for together.
	longestQuiet = time.Second
)

// gather waits until no request for a batch has arrived for a short time. A request that misses the
// batch waits for a whole update, which takes 6 to 17 seconds, and needs another one from the
// VM's quota of 4 a minute.
func (e *Engine) gather(b *batch) {
	for {
		wait := e.quietAt(b).Sub(e.Clock.Now())
		if wait <= 0 || e.Clock.Pause(e.ctx, wait) != nil {
			return
		}
	}
}

// quietAt returns when a batch is to be sent if no other request arrives.
func (e *Engine) quietAt(b *batch) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	var first, last time.Time
	for _, r := range e.queues.chosen(e.queues.vm(b.vm), b.forced) {
		if first.IsZero() || r.arrived.Before(first) {
			first = r.arrived
		}
		if r.arrived.After(last) {
			last = r.arrived
		}
	}
	at := last.Add(quiet)
	if limit := first.Add(longestQuiet); limit.Before(at) {
		return limit
	}
	return at
}
