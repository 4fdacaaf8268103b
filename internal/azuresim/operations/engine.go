package operations

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

const (
	applyRetry  = 200 * time.Millisecond // between attempts to make effects
	applyGiveUp = 2 * time.Minute        // after the due time; then the operation fails, as Azure's do
	retention   = 24 * time.Hour         // how long a finished operation can be asked for
)

// Options of an engine. All but Intercept are required.
type Options struct {
	Store    *store.Store
	Clock    clock.WithTicker
	Log      *slog.Logger
	Executor Executor
	// Intercept is asked once when an operation is due. A delay puts the due time off; an error
	// makes the operation fail.
	Intercept func(op *Operation) (time.Duration, *armerror.Error)
}

// Engine runs operations. Its methods that take a transaction may be called before and during Run.
type Engine struct {
	Options
	mu       sync.Mutex
	pending  map[string]*entry // operations in state Running, by ID
	busy     map[string]bool   // lanes whose operation is being executed by a goroutine
	wake     chan struct{}
	inflight sync.WaitGroup
}

type entry struct {
	lane        string
	due         time.Time
	executing   bool
	intercepted bool
	fault       *armerror.Error // from the interceptor, takes effect after its delay
}

// New returns an engine; nothing runs before Run.
func New(o Options) *Engine {
	return &Engine{
		Options: o,
		pending: map[string]*entry{},
		busy:    map[string]bool{},
		wake:    make(chan struct{}, 1),
	}
}

// Run executes operations until ctx ends and waits for those at work. It begins with what an
// earlier process left.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.load(); err != nil {
		return err
	}
	defer e.inflight.Wait()
	for {
		next, ok := e.startDue(ctx)
		var expired <-chan time.Time
		var timer clock.Timer
		if ok {
			timer = e.Clock.NewTimer(next)
			expired = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-expired:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (e *Engine) load() error {
	return e.Store.Update(func(tx *store.Tx) error {
		if err := e.forgetOld(tx); err != nil {
			return err
		}
		lanes, err := laneTable.All(tx, "")
		if err != nil {
			return err
		}
		for _, r := range lanes {
			op, err := opTable.Get(tx, *r.Value)
			if err != nil {
				return err
			}
			if op != nil && op.State == Running {
				e.note(op)
			}
		}
		return nil
	})
}

// note makes a running operation known to the loop.
func (e *Engine) note(op *Operation) {
	e.mu.Lock()
	e.pending[op.ID] = &entry{lane: op.Lane, due: op.Due}
	e.mu.Unlock()
	e.poke()
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// startDue starts what is due and returns the time until the next; ok is false if nothing waits for
// a time.
func (e *Engine) startDue(ctx context.Context) (next time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Clock.Now()
	for id, p := range e.pending {
		if p.executing || e.busy[p.lane] {
			continue
		}
		if wait := p.due.Sub(now); wait > 0 {
			if !ok || wait < next {
				next, ok = wait, true
			}
			continue
		}
		p.executing, e.busy[p.lane] = true, true
		e.inflight.Add(1)
		go e.execute(ctx, id, p)
	}
	return next, ok
}

// execute drives one due operation as far as it gets now.
func (e *Engine) execute(ctx context.Context, id string, p *entry) {
	defer e.inflight.Done()
	retryIn, again := e.attempt(ctx, id, p)
	e.mu.Lock()
	p.executing = false
	delete(e.busy, p.lane)
	if again {
		p.due = e.Clock.Now().Add(retryIn)
	} else if e.pending[id] == p {
		delete(e.pending, id)
	}
	e.mu.Unlock()
	e.poke()
}

func (e *Engine) attempt(ctx context.Context, id string, p *entry) (retryIn time.Duration, again bool) {
	var op *Operation
	err := e.Store.View(func(tx *store.Tx) (err error) {
		op, err = opTable.Get(tx, id)
		return err
	})
	if err != nil {
		e.Log.Error("cannot read operation", "operation", id, "error", err)
		return applyRetry, true
	}
	if op == nil || op.State != Running {
		return 0, false
	}
	if e.Intercept != nil && !p.intercepted {
		var delay time.Duration
		p.intercepted = true
		if delay, p.fault = e.Intercept(op); delay > 0 {
			return delay, true
		}
	}
	refusal, waiting := p.fault, false
	if refusal == nil {
		if refusal, waiting = e.apply(ctx, op); waiting {
			return applyRetry, true
		}
	}
	if refusal == nil {
		if err := e.finish(id, nil); !errors.As(err, &refusal) {
			return e.settled(op, err)
		}
	}
	if err := e.Executor.Undo(ctx, op); err != nil {
		e.Log.Warn("cannot undo the effects of a failing operation, will retry", "operation", id, "kind", op.Kind, "target",
			op.Target, "error", err)
		return applyRetry, true
	}
	return e.settled(op, e.finish(id, refusal))
}

// apply makes the operation's effects; waiting means that it has to be tried again.
func (e *Engine) apply(ctx context.Context, op *Operation) (refusal *armerror.Error, waiting bool) {
	err := e.Executor.Apply(ctx, op)
	switch {
	case err == nil:
		return nil, false
	case errors.Is(err, ErrNotYet):
		return nil, true
	case e.Clock.Since(op.Due) < applyGiveUp:
		e.Log.Warn("operation effects failed, will retry", "operation", op.ID, "kind", op.Kind, "target", op.Target, "error", err)
		return nil, true
	}
	return armerror.From(err), false
}

func (e *Engine) settled(op *Operation, err error) (retryIn time.Duration, again bool) {
	if err != nil {
		e.Log.Error("cannot finish operation", "operation", op.ID, "kind", op.Kind, "error", err)
		return applyRetry, true
	}
	return 0, false
}

// finish ends the operation in one transaction with its model change: as succeeded, or as failed if
// there is a refusal.
func (e *Engine) finish(id string, refusal *armerror.Error) error {
	return e.Store.Update(func(tx *store.Tx) error {
		op, err := opTable.Get(tx, id)
		if err != nil || op == nil || op.State != Running {
			return err // taken over by a newer one while its effects were made
		}
		if refusal != nil {
			if err := e.Executor.Fail(tx, op, refusal); err != nil {
				return err
			}
			return e.end(tx, op, Failed, refusal)
		}
		if err := e.Executor.Complete(tx, op); err != nil {
			return err
		}
		return e.end(tx, op, Succeeded, nil)
	})
}
