package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Watch wakes calls that wait for an object to change: a call that wakes reads the object.
type Watch struct {
	mu        sync.Mutex
	waiting   map[Object]map[chan struct{}]struct{}
	unscanned *unscannedNodes
}

// Object is an object to wait for.
type Object struct{ kind, name string }

// VolumeNamed is the AzVolume of a name.
func VolumeNamed(name string) Object { return Object{"AzVolume", name} }

// AttachmentNamed is the AzVolumeAttachment of a name.
func AttachmentNamed(name string) Object { return Object{"AzVolumeAttachment", name} }

// NodeNamed is the AzDriverNode of a name.
func NodeNamed(name string) Object { return Object{"AzDriverNode", name} }

// NewWatch makes a Watch.
func NewWatch() *Watch {
	return &Watch{waiting: map[Object]map[chan struct{}]struct{}{}}
}

// Register makes a cache report its changes to the Watch.
func (w *Watch) Register(ctx context.Context, informers cache.Informers) error {
	var err error
	if w.unscanned, err = newUnscannedNodes(ctx, informers); err != nil {
		return err
	}
	return errors.Join(
		wakeOn(ctx, w, informers, &apiv1.AzVolume{}, VolumeNamed),
		wakeOn(ctx, w, informers, &apiv1.AzVolumeAttachment{}, AttachmentNamed),
		wakeOn(ctx, w, informers, &apiv1.AzDriverNode{}, NodeNamed))
}

func wakeOn[T object](ctx context.Context, w *Watch, informers cache.Informers, kind T, named func(string) Object) error {
	_, err := OnChange(ctx, informers, kind, func(before, after T) { w.wake(named(cmp.Or(after, before).GetName())) })
	return err
}

type object interface {
	comparable
	client.Object
}

// OnChange has the cache call change for each object of a kind that appears, changes or is deleted,
// with the object before and after it; nil if it did not exist. synced reports whether change has
// been called for all objects that were there.
func OnChange[T object](ctx context.Context, informers cache.Informers, kind T,
	change func(before, after T)) (synced toolscache.InformerSynced, err error) {
	informer, err := informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("get informer of %T: %w", kind, err)
	}
	changed := func(before, after any) {
		if gone, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
			before = gone.Obj
		}
		was, _ := before.(T)
		is, _ := after.(T)
		if was != is {
			change(was, is)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { changed(nil, after) },
		UpdateFunc: changed,
		DeleteFunc: func(before any) { changed(before, nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// AnyUnscanned reports whether there may be a node whose report does not say which volumes it uses,
// from the cache.
func (w *Watch) AnyUnscanned() bool { return w.unscanned.any() }

func (w *Watch) wake(key Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.waiting[key] {
		select {
		case ch <- struct{}{}:
		default: // woken already
		}
	}
}

// Until calls check now and whenever one of the objects changes, until it says
// that it is done, or fails, or ctx ends.
func (w *Watch) Until(ctx context.Context, check func() (bool, error), keys ...Object) error {
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

func (w *Watch) add(ch chan struct{}, keys []Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.waiting[key] == nil {
			w.waiting[key] = map[chan struct{}]struct{}{}
		}
		w.waiting[key][ch] = struct{}{}
	}
}

func (w *Watch) remove(ch chan struct{}, keys []Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.waiting[key], ch)
		if len(w.waiting[key]) == 0 {
			delete(w.waiting, key)
		}
	}
}
