package index

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queuedAtStart is how many of the objects that are there at the start are queued at once.
const queuedAtStart = 512

// Gradual is a reconciler, and the handler of the objects that are there when its watch begins: they are queued a few at a time, each when another one was
// reconciled. A queue keeps the memory of the most that it ever held, which is the whole cluster otherwise. The controller watches its objects with
// SinceStart besides.
type Gradual struct {
	reconcile.Reconciler
	handler.Funcs

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting []reconcile.Request
}

// NewGradual makes the Gradual of a reconciler.
func NewGradual(r reconcile.Reconciler) *Gradual {
	g := &Gradual{Reconciler: r}
	g.CreateFunc = g.create
	return g
}

func (g *Gradual) create(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if !e.IsInInitialList {
		return
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = queue
	if queue.Len() < queuedAtStart {
		queue.Add(request)
		return
	}
	g.waiting = append(g.waiting, request)
}

// Reconcile reconciles an object and queues the next one. As long as one waits, at least one is in the queue: the one that was added last.
func (g *Gradual) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer g.next()
	return g.Reconciler.Reconcile(ctx, request)
}

func (g *Gradual) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.waiting) - 1
	if last < 0 {
		return
	}
	g.queue.Add(g.waiting[last])
	if g.waiting = g.waiting[:last]; last == 0 {
		g.waiting = nil
	}
}
