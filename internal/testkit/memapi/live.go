package memapi

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Live is a Cache that learns of each change by itself while Start runs, as the cache of a manager
// does. It has only the pods that the field selector of its options selects.
type Live struct {
	*Cache
	changed chan struct{}
}

// NewLive makes a Live with the transforms and the field selectors of options.
func NewLive(store *Store, options cache.Options) *Live {
	l := &Live{Cache: NewCache(store, options), changed: make(chan struct{}, 1)}
	for o, by := range options.ByObject {
		if _, pod := o.(*corev1.Pod); pod && by.Field != nil {
			l.pods = by.Field
		}
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	store.live = append(store.live, l)
	return l
}

// Start implements cache.Informers. It returns when ctx ends.
func (l *Live) Start(ctx context.Context) error {
	for {
		for _, kind := range l.Pending() {
			for l.Deliver(kind) {
			}
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			l.store.mu.Lock()
			defer l.store.mu.Unlock()
			l.store.live = slices.DeleteFunc(l.store.live, func(other *Live) bool { return other == l })
			return nil
		}
	}
}

// wake has Start look for changes.
func (l *Live) wake() {
	select {
	case l.changed <- struct{}{}:
	default: // woken already
	}
}

// selects reports whether the cache has an object.
func (c *Cache) selects(o client.Object) bool {
	p, pod := o.(*corev1.Pod)
	return !pod || c.pods == nil || c.pods.Matches(fields.Set{
		"metadata.name": p.Name,
		"spec.nodeName": p.Spec.NodeName,
		"status.phase":  string(p.Status.Phase),
	})
}
