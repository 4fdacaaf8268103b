package controller

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Watch wakes those who wait for an object to change. It carries no state: whoever is woken looks for themselves.
type Watch struct {
	mu      sync.Mutex
	waiting map[watched]map[chan struct{}]struct{}
}

type watched struct{ kind, name string }

const (
	kindVolume     = "AzVolume"
	kindAttachment = "AzVolumeAttachment"
	kindNode       = "AzDriverNode"
)

// NewWatch makes a Watch.
func NewWatch() *Watch {
	return &Watch{waiting: map[watched]map[chan struct{}]struct{}{}}
}

// Register lets a cache tell the Watch of changes.
func (w *Watch) Register(ctx context.Context, informers cache.Informers) error {
	for kind, object := range map[string]client.Object{
		kindVolume: &apiv1.AzVolume{}, kindAttachment: &apiv1.AzVolumeAttachment{}, kindNode: &apiv1.AzDriverNode{},
	} {
		informer, err := informers.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("get informer of %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(w.handler(kind)); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	return nil
}

func (w *Watch) handler(kind string) toolscache.ResourceEventHandler {
	wake := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if o, ok := object.(client.Object); ok {
			w.wake(watched{kind, o.GetName()})
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) }, DeleteFunc: wake}
}

func (w *Watch) wake(key watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.waiting[key] {
		select {
		case ch <- struct{}{}:
		default: // woken already
		}
	}
}

// until calls check now and whenever one of the objects changes, until it says
// that it is done, or fails, or ctx ends.
func (w *Watch) until(ctx context.Context, check func() (bool, error), keys ...watched) error {
	ch := make(chan struct{}, 1)
	w.add(ch, keys)
	defer w.remove(ch, keys)
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watch) add(ch chan struct{}, keys []watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.waiting[key] == nil {
			w.waiting[key] = map[chan struct{}]struct{}{}
		}
		w.waiting[key][ch] = struct{}{}
	}
}

func (w *Watch) remove(ch chan struct{}, keys []watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.waiting[key], ch)
		if len(w.waiting[key]) == 0 {
			delete(w.waiting, key)
		}
	}
}

// busy are the volumes that calls of this process are at work on. It spares callers and API server from
// calls that would undo one another; what is right does not rest on it.
type busy struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func newBusy() *busy { return &busy{keys: map[string]struct{}{}} }

func (b *busy) acquire(key string) (release func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.keys[key]; taken {
		return nil, false
	}
	b.keys[key] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.keys, key)
	}, true
}
