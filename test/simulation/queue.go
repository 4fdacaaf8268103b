package simulation

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is a work queue whose order the simulation decides.
type queue struct {
	mu       sync.Mutex
	at       map[reconcile.Request]time.Time
	busy     map[reconcile.Request]bool
	failures map[reconcile.Request]int
	closed   chan struct{}
	once     sync.Once
}

var _ workqueue.TypedRateLimitingInterface[reconcile.Request] = (*queue)(nil)

func newQueue() *queue {
	return &queue{
		at:       map[reconcile.Request]time.Time{},
		busy:     map[reconcile.Request]bool{},
		failures: map[reconcile.Request]int{},
		closed:   make(chan struct{}),
	}
}

// due returns what can be reconciled now, in a fixed order.
func (q *queue) due(now time.Time) []reconcile.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy) >= workers {
		return nil
	}
	var found []reconcile.Request
	for r, at := range q.at {
		if !q.busy[r] && !at.After(now) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
	return found
}

func (q *queue) take(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.at, r)
	q.busy[r] = true
}

func (q *queue) release(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, r)
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r reconcile.Request, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := time.Now().Add(d)
	if before, queued := q.at[r]; !queued || at.Before(before) {
		q.at[r] = at
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(r reconcile.Request) {
	q.mu.Lock()
	n := q.failures[r]
	q.failures[r] = n + 1
	q.mu.Unlock()
	q.AddAfter(r, min(5*time.Millisecond<<min(n, 12), 30*time.Second))
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, r)
}

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue) NumRequeues(reconcile.Request) int { return 0 }

// Len implements workqueue.TypedInterface.
func (q *queue) Len() int { return 0 }

// Get implements workqueue.TypedInterface: there is never anything for controller-runtime's own
// workers.
func (q *queue) Get() (reconcile.Request, bool) {
	<-q.closed
	return reconcile.Request{}, true
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(reconcile.Request) {}

// ShutDown implements workqueue.TypedInterface.
func (q *queue) ShutDown() { q.once.Do(func() { close(q.closed) }) }

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown implements workqueue.TypedInterface.
func (q *queue) ShuttingDown() bool { return false }
