package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// script is an executor that records its calls and fails on request.
type script struct {
	mu     sync.Mutex
	log    []string
	errors map[string]error // operation ID -> what Apply returns
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *script) count(entry string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if l == entry {
			n++
		}
	}
	return n
}

func (s *script) set(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors[id] = err
}

func (s *script) Apply(_ context.Context, op *Operation) error {
	s.note("apply %s", op.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errors[op.ID]
}

func (s *script) Undo(_ context.Context, op *Operation) error {
	s.note("undo %s", op.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errors["undo "+op.ID]
}

func (s *script) Complete(_ *store.Tx, op *Operation) error {
	s.note("complete %s", op.ID)
	return nil
}

func (s *script) Fail(_ *store.Tx, op *Operation, cause *armerror.Error) error {
	s.note("fail %s %s", op.ID, cause.Code)
	return nil
}

type bench struct {
	t      *testing.T
	clock  *clocktesting.FakeClock
	script *script
	path   string
	store  *store.Store
	engine *Engine
	stop   func()
}

func newBench(t *testing.T) *bench {
	b := &bench{
		t:      t,
		clock:  clocktesting.NewFakeClock(time.Unix(1e9, 0)),
		script: &script{errors: map[string]error{}},
		path:   filepath.Join(t.TempDir(), "db"),
	}
	b.open()
	t.Cleanup(func() { b.stop() })
	return b
}

// open starts an engine on the store; again after stop, as a restart of the process would.
func (b *bench) open() {
	b.t.Helper()
	db, err := store.Open(b.path, time.Second, Tables...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = db
	b.engine = New(Options{Store: db, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Executor: b.script})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.engine.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	b.stop = func() {
		cancel()
		<-done
		_ = db.Close()
	}
}

func (b *bench) enqueue(id, lane string, d time.Duration) {
	b.t.Helper()
	err := b.store.Update(func(tx *store.Tx) error {
		return b.engine.Enqueue(tx, &Operation{ID: id, Lane: lane, Duration: d})
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) get(id string) *Operation {
	b.t.Helper()
	var op *Operation
	if err := b.store.View(func(tx *store.Tx) (err error) { op, err = b.engine.Get(tx, id); return err }); err != nil {
		b.t.Fatal(err)
	}
	return op
}

func (b *bench) await(what string, condition func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain until %s; log %v", what, b.script.log)
		}
		<-time.After(time.Millisecond)
	}
}

// advance lets time pass once the engine waits for it.
func (b *bench) advance(d time.Duration) {
	b.t.Helper()
	b.await("the engine sleeps", b.clock.HasWaiters)
	b.clock.Step(d)
}

func (b *bench) awaitState(id string, want State) {
	b.t.Helper()
	b.await(id+" is "+string(want), func() bool { return b.get(id).State == want })
}

func TestOperationsOfALaneRunOneAfterTheOther(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "vm", 10*time.Second)
	b.enqueue("b", "vm", 5*time.Second)
	b.enqueue("other", "vm2", 10*time.Second)
	if st := b.get("b").State; st != Queued {
		t.Errorf("b is %s, want %s", st, Queued)
	}
	b.advance(10 * time.Second)
	b.awaitState("a", Succeeded)
	b.awaitState("other", Succeeded)
	b.awaitState("b", Running)
	b.advance(5 * time.Second)
	b.awaitState("b", Succeeded)
}

func TestNothingHappensBeforeItIsDue(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "vm", 10*time.Second)
	b.advance(9 * time.Second)
	b.await("the engine sleeps again", b.clock.HasWaiters)
	if st := b.get("a").State; st != Running || b.script.count("apply a") != 0 {
		t.Errorf("a is %s", st)
	}
}

func TestOperationsGoOnAfterARestart(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "vm", 10*time.Second)
	b.enqueue("b", "vm", 5*time.Second)
	b.stop()
	b.clock.Step(time.Minute) // while it was down, a became due
	b.open()
	b.awaitState("a", Succeeded)
	b.advance(5 * time.Second)
	b.awaitState("b", Succeeded)
}

func TestEffectsAreRetriedAndThenGivenUp(t *testing.T) {
	b := newBench(t)
	b.script.set("a", errors.New("no device"))
	b.enqueue("a", "vm", time.Second)
	b.advance(time.Second)
	b.await("it was tried", func() bool { return b.script.count("apply a") == 1 })
	b.advance(applyRetry)
	b.await("it was tried again", func() bool { return b.script.count("apply a") == 2 })
	b.advance(applyGiveUp)
	b.awaitState("a", Failed)
	if op := b.get("a"); op.Error == nil || op.Error.Code != "InternalServerError" || b.script.count("undo a") != 1 {
		t.Errorf("error is %v, log %v", op.Error, b.script.log)
	}
}

func TestOperationFailsOnlyWhenItsEffectsAreUndone(t *testing.T) {
	b := newBench(t)
	b.script.set("a", errors.New("no device"))
	b.script.set("undo a", errors.New("still no device"))
	b.enqueue("a", "vm", time.Second)
	b.advance(applyGiveUp + 2*time.Second)
	b.await("undo was tried", func() bool { return b.script.count("undo a") == 1 })
	if st := b.get("a").State; st != Running {
		t.Errorf("a is %s, want %s", st, Running)
	}
	b.script.set("undo a", nil)
	b.advance(applyRetry)
	b.awaitState("a", Failed)
}

func TestWaitingForSomethingElseHasNoEnd(t *testing.T) {
	b := newBench(t)
	b.script.set("a", ErrNotYet)
	b.enqueue("a", "vm", time.Second)
	b.advance(time.Second)
	b.await("it was tried", func() bool { return b.script.count("apply a") == 1 })
	b.advance(10 * applyGiveUp)
	b.await("it was tried again", func() bool { return b.script.count("apply a") == 2 })
	b.script.set("a", nil)
	b.advance(applyRetry)
	b.awaitState("a", Succeeded)
}

func TestCanceledOperationsDoNotComplete(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "vm", time.Second)
	b.enqueue("b", "vm", time.Second)
	err := b.store.Update(func(tx *store.Tx) error {
		victims, err := b.engine.Cancel(tx, "vm", armerror.Conflict())
		if err == nil && len(victims) != 2 {
			t.Errorf("%d operations were canceled", len(victims))
		}
		if err != nil {
			return err
		}
		return b.engine.Enqueue(tx, &Operation{ID: "c", Lane: "vm", Duration: time.Second})
	})
	if err != nil {
		t.Fatal(err)
	}
	b.advance(time.Second)
	b.awaitState("c", Succeeded)
	if b.get("a").State != Canceled || b.get("b").State != Canceled || b.script.count("complete a") != 0 {
		t.Errorf("log %v", b.script.log)
	}
}

func TestOldOperationsAreForgotten(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "vm", 0)
	b.awaitState("a", Succeeded)
	b.stop()
	b.clock.Step(retention + time.Minute)
	b.open()
	b.await("a is forgotten", func() bool { return b.get("a") == nil })
}
