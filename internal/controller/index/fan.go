package index

import (
	"errors"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

// fan passes the events of an informer to many handlers. client-go keeps a queue for each handler,
// and with it the memory of the most that it ever held: the whole kind, for a handler that is added
// once there are objects, as that of every watch of a controller is. A dozen watches of 60,000
// attachments took a quarter of what a controller allocates at its start. The handlers of a fan are
// called one after the other, and so must not block, nor add another one.
type fan struct {
	toolscache.SharedIndexInformer
	// own is the registration of the fan itself.
	own toolscache.ResourceEventHandlerRegistration
	err error

	mu       sync.Mutex
	handlers []*fanned
}

// fanned is the registration of a handler of a fan.
type fanned struct {
	toolscache.ResourceEventHandlerRegistration
	toolscache.ResourceEventHandler
}

// fanOut makes the fan of an informer that has not been started.
func fanOut(informer toolscache.SharedIndexInformer) *fan {
	f := &fan{SharedIndexInformer: informer}
	f.own, f.err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { f.each(func(h *fanned) { h.OnAdd(o, initial) }) },
		UpdateFunc: func(before, after any) { f.each(func(h *fanned) { h.OnUpdate(before, after) }) },
		DeleteFunc: func(o any) { f.each(func(h *fanned) { h.OnDelete(o) }) },
	})
	return f
}

func (f *fan) each(do func(*fanned)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.handlers {
		do(h)
	}
}

// AddEventHandlerWithOptions implements SharedIndexInformer. The handler gets the objects that are
// there before this returns. A change that they have already may come once more, because the
// objects may be newer than the last event that was passed on.
func (f *fan) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if f.err != nil {
		return nil, f.err
	}
	if f.IsStopped() {
		return nil, errors.New("add a handler: the informer has been stopped")
	}
	h := &fanned{f.own, handler}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers = append(f.handlers, h)
	for _, o := range f.GetStore().List() {
		h.OnAdd(o, true)
	}
	return h, nil
}

// AddEventHandler implements SharedIndexInformer.
func (f *fan) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return f.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements SharedIndexInformer. There are no resyncs.
func (f *fan) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler,
	_ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return f.AddEventHandler(handler)
}

// RemoveEventHandler implements SharedIndexInformer.
func (f *fan) RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers = slices.DeleteFunc(f.handlers, func(h *fanned) bool { return h == registration })
	return nil
}
