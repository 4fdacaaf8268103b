package scheduler

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Heartbeats judges whether nodes still report. Nodes' clocks are not trusted: a heartbeat is as
// old as the time since this process saw it change, and one that it sees for the first time is new.
// It is safe for concurrent use.
type Heartbeats struct {
	clock    clock.PassiveClock
	factor   float64
	minimum  time.Duration
	interval time.Duration

	mu    sync.RWMutex
	beats map[string]beat
	// lastPromise is the latest time by which a node had to report. When it has passed, this
	// process receives no heartbeat of any node.
	lastPromise time.Time
	// lastChange is when the last heartbeat of any node was seen.
	lastChange time.Time
}

// beat is a heartbeat. It is as old as the time since it was seen.
type beat struct {
	value    *metav1.MicroTime
	seen     time.Time
	deadline time.Time
}

// HeartbeatOptions configure NewHeartbeats.
type HeartbeatOptions struct {
	Clock clock.PassiveClock
	// Factor is how many promised intervals a heartbeat may be missing.
	Factor float64
	// Minimum is the least age at which a heartbeat is stale, however short the promised interval
	// is, because heartbeats are late while the API server is not reachable.
	Minimum time.Duration
	// Interval is the default for a node that promises none.
	Interval time.Duration
}

// NewHeartbeats returns Heartbeats without any node.
func NewHeartbeats(o HeartbeatOptions) *Heartbeats {
	return &Heartbeats{
		clock:    o.Clock,
		factor:   o.Factor,
		minimum:  o.Minimum,
		interval: o.Interval,
		beats:    map[string]beat{},
	}
}

// observe records the current state of a node, and returns the state of its heartbeat.
func (h *Heartbeats) observe(node *apiv1.AzDriverNode) beat {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, known := h.beats[node.Name]
	if !known || !b.value.Equal(node.Status.HeartbeatTime) {
		b.seen = h.clock.Now()
		h.lastChange = b.seen
	}
	b.value = node.Status.HeartbeatTime
	b.deadline = b.seen.Add(h.patience(node.Status.HeartbeatSeconds))
	h.beats[node.Name] = b
	if b.deadline.After(h.lastPromise) {
		h.lastPromise = b.deadline
	}
	return b
}

// Forget removes a node that was deleted.
func (h *Heartbeats) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.beats, name)
}

// stale reports whether a heartbeat is missing for longer than the node's promise allows.
func (b beat) stale(now time.Time, blind bool) bool { return !blind && now.After(b.deadline) }

// now returns the time by which heartbeats are judged, and whether this process is blind. While it
// is, no heartbeat is stale.
func (h *Heartbeats) now() (now time.Time, blind bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	now = h.clock.Now()
	return now, now.After(h.lastPromise)
}

// Blind reports whether heartbeats were promised and none arrives.
func (h *Heartbeats) Blind() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.beats) > 0 && h.clock.Now().After(h.lastPromise)
}

// Silence is how long ago the last heartbeat of any node was seen; 0 while there are no nodes.
func (h *Heartbeats) Silence() time.Duration {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.beats) == 0 {
		return 0
	}
	return h.clock.Since(h.lastChange)
}

func (h *Heartbeats) patience(seconds int32) time.Duration {
	interval := h.interval
	if seconds > 0 {
		interval = nodehealth.Promise(seconds)
	}
	return nodehealth.StaleAge(h.minimum, h.factor, interval)
}
