package attachment

import (
	"context"
	"sync"
)

// joined joins reads of one VM: callers that arrive during a read share the next one, which begins
// after their call. When forty disks have been attached by one operation, or must be detached from
// a lost node, that makes two reads and not forty.
type joined[T any] struct {
	read func(ctx context.Context, vmID string) (T, error)

	mu  sync.Mutex
	vms map[string]*reads[T]
}

type reads[T any] struct {
	running bool
	next    *read[T]
}

type read[T any] struct {
	done chan struct{}
	seen T
	err  error
}

func join[T any](one func(ctx context.Context, vmID string) (T, error)) *joined[T] {
	return &joined[T]{read: one, vms: map[string]*reads[T]{}}
}

// Read returns the VM as it was at some time after the call.
func (l *joined[T]) Read(ctx context.Context, vmID string) (T, error) {
	l.mu.Lock()
	vm, ok := l.vms[vmID]
	if !ok {
		vm = &reads[T]{}
		l.vms[vmID] = vm
	}
	if vm.next == nil {
		vm.next = &read[T]{done: make(chan struct{})}
	}
	mine := vm.next
	if !vm.running {
		vm.running = true
		// The read serves other callers too, so it does not end with the caller's context.
		go l.run(context.WithoutCancel(ctx), vmID, vm)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.seen, mine.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (l *joined[T]) run(ctx context.Context, vmID string, vm *reads[T]) {
	for {
		l.mu.Lock()
		current := vm.next
		vm.next = nil
		if current == nil {
			vm.running = false
			delete(l.vms, vmID)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		current.seen, current.err = l.read(ctx, vmID)
		close(current.done)
	}
}
