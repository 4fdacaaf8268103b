package cluster

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Watch wakes calls that wait for an object to change: a call that wakes reads the object.
type Watch struct {
	mu      sync.Mutex
	waiting map[Object]map[chan struct{}]struct{}
	silent  *silentNodes
}

// Object is an object to wait for.
type Object struct{ kind, name string }

const (
	kindVolume     = "AzVolume"
	kindAttachment = "AzVolumeAttachment"
	kindNode       = "AzDriverNode"
)

// VolumeNamed is the AzVolume of a name.
func VolumeNamed(name string) Object { return Object{kindVolume, name} }

// AttachmentNamed is the AzVolumeAttachment of a name.
func AttachmentNamed(name string) Object { return Object{kindAttachment, name} }

// NodeNamed is the AzDriverNode of a name.
func NodeNamed(name string) Object { return Object{kindNode, name} }

// NewWatch makes a Watch.
func NewWatch() *Watch {
	return &Watch{waiting: map[Object]map[chan struct{}]struct{}{}}
}

// Register makes a cache report its changes to the Watch.
func (w *Watch) Register(ctx context.Context, informers cache.Informers) error {
	for kind, o := range map[string]client.Object{
		kindVolume: &apiv1.AzVolume{}, kindAttachment: &apiv1.AzVolumeAttachment{}, kindNode: &apiv1.AzDriverNode{},
	} {
		informer, err := informers.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("get informer of %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(w.handler(kind)); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	var err error
	w.silent, err = newSilentNodes(ctx, informers)
	return err
}

// AnySilent reports whether there may be a node whose report does not say which volumes it uses,
// from the cache.
func (w *Watch) AnySilent() bool { return w.silent.any() }

func (w *Watch) handler(kind string) toolscache.ResourceEventHandler {
	wake := func(changed any) {
		if gone, ok := changed.(toolscache.DeletedFinalStateUnknown); ok {
			changed = gone.Obj
		}
		if o, ok := changed.(client.Object); ok {
			w.wake(Object{kind, o.GetName()})
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, after any) { wake(after) },
		DeleteFunc: wake,
	}
}

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
