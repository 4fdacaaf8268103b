package attachment

import (
	"context"
	"sync"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// listing joins reads of one VM's disks: those who ask while a read is under way
// share the next one, which began after they asked. When forty disks have been attached by
// one operation, that makes two reads and not forty.
type listing struct {
	attachments provisioner.Attachments

	mu  sync.Mutex
	vms map[string]*reads
}

type reads struct {
	running bool
	next    *read
}

type read struct {
	done  chan struct{}
	disks []provisioner.Attachment
	err   error
}

func newListing(attachments provisioner.Attachments) *listing {
	return &listing{attachments: attachments, vms: map[string]*reads{}}
}

// List returns the disks of a VM as they were at some time after the call.
func (l *listing) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	l.mu.Lock()
	vm, ok := l.vms[vmID]
	if !ok {
		vm = &reads{}
		l.vms[vmID] = vm
	}
	if vm.next == nil {
		vm.next = &read{done: make(chan struct{})}
	}
	mine := vm.next
	if !vm.running {
		vm.running = true
		// The read serves others too, and so does not end with the caller's context.
		go l.run(context.WithoutCancel(ctx), vmID, vm)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.disks, mine.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listing) run(ctx context.Context, vmID string, vm *reads) {
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
		current.disks, current.err = l.attachments.List(ctx, vmID)
		close(current.done)
	}
}
