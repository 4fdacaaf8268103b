package supervisor

import (
	"context"
	"sync"

	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// eventLog keeps all events, so that a late reader misses none.
type eventLog struct {
	mu     sync.Mutex
	events []state.Event
	closed bool
	// changed is closed and replaced whenever there is something new.
	changed chan struct{}
}

func newEventLog() *eventLog { return &eventLog{changed: make(chan struct{})} }

func (l *eventLog) add(e state.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}

// close says that no event follows; it may be called more than once.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// follow calls f with each event from the first one on, until the log is closed.
func (l *eventLog) follow(ctx context.Context, f func(state.Event) error) error {
	for next := 0; ; {
		l.mu.Lock()
		pending, closed, changed := l.events[next:], l.closed, l.changed
		l.mu.Unlock()
		for _, e := range pending {
			if err := f(e); err != nil {
				return err
			}
		}
		next += len(pending)
		if closed && len(pending) == 0 {
			return nil
		}
		if len(pending) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
