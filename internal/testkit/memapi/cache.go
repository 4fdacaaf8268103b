package memapi

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is a view of a Store that learns of one change at a time, when Deliver is called. It serves
// as the cache of a manager: it has indexes, transforms objects as a real one does, and calls the
// handlers of its informers.
type Cache struct {
	cache.Cache // for the methods that are not called

	store      *Store
	transforms map[reflect.Type]toolscache.TransformFunc
	// pods selects the pods that the cache has; nil for all.
	pods fields.Selector

	mu      sync.Mutex
	kinds   map[reflect.Type]*view
	views   []*view // the same, in the order of their names
	indexes map[reflect.Type]map[string]client.IndexerFunc
}

type view struct {
	stored   *kind
	seen     int
	objects  objects
	handlers []toolscache.ResourceEventHandler
	// keys of the objects in each index, as far as they were asked for.
	keys map[string]map[client.Object][]string
}

// NewCache makes a Cache with the transforms of options. Kinds are read when they are first asked
// for.
func NewCache(store *Store, options cache.Options) *Cache {
	c := &Cache{
		store:      store,
		transforms: map[reflect.Type]toolscache.TransformFunc{},
		kinds:      map[reflect.Type]*view{},
		indexes:    map[reflect.Type]map[string]client.IndexerFunc{},
	}
	for o, by := range options.ByObject {
		if by.Transform != nil {
			c.transforms[typeOf(o)] = by.Transform
		}
	}
	return c
}

// kind returns the view of a kind, which begins with all that there is. The caller holds mu.
func (c *Cache) kind(of reflect.Type) *view {
	v, ok := c.kinds[of]
	if ok {
		return v
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	stored := c.store.kindOf(of)
	v = &view{
		stored:  stored,
		seen:    len(stored.log),
		objects: newObjects(),
		keys:    map[string]map[client.Object][]string{},
	}
	for key, o := range stored.objects.byName {
		if c.selects(o) {
			v.objects.set(key, c.transformed(o))
		}
	}
	c.kinds[of] = v
	c.views = append(c.views, v)
	slices.SortFunc(c.views, func(a, b *view) int { return strings.Compare(a.stored.name, b.stored.name) })
	return v
}

// transformed returns what the cache has of a stored object, which is a copy also if the kind has no
// transform: what a reader changes in it must not change the store.
func (c *Cache) transformed(o client.Object) client.Object {
	own := o.DeepCopyObject().(client.Object)
	transform := c.transforms[typeOf(o)]
	if transform == nil {
		return own
	}
	result, err := transform(own)
	if err != nil {
		panic(fmt.Sprintf("transform %T: %v", o, err))
	}
	return result.(client.Object)
}

// Pending returns the kinds with changes that wait to be delivered, in a fixed order.
func (c *Cache) Pending() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	var names []string
	for _, v := range c.views {
		if v.seen < len(v.stored.log) {
			names = append(names, v.stored.name)
		}
	}
	return names
}

// Deliver takes note of the next change of a kind and tells the handlers. It returns false if there
// is none.
func (c *Cache) Deliver(kind string) bool {
	c.mu.Lock()
	i := slices.IndexFunc(c.views, func(v *view) bool { return v.stored.name == kind })
	if i < 0 {
		c.mu.Unlock()
		return false
	}
	v := c.views[i]
	change, ok := c.next(v)
	handlers := slices.Clone(v.handlers)
	c.mu.Unlock()
	for _, h := range handlers {
		switch {
		case !ok, change.Before == nil && change.After == nil:
		case change.After == nil:
			h.OnDelete(change.Before)
		case change.Before == nil:
			h.OnAdd(change.After, false)
		default:
			h.OnUpdate(change.Before, change.After)
		}
	}
	return ok
}

func (c *Cache) next(v *view) (Change, bool) {
	c.store.mu.Lock()
	log := v.stored.log
	if v.seen >= len(log) {
		c.store.mu.Unlock()
		return Change{}, false
	}
	change := log[v.seen]
	c.store.mu.Unlock()
	v.seen++
	if change.After == nil || !c.selects(change.After) {
		of := change.Before
		if of == nil {
			return Change{}, true
		}
		key := client.ObjectKeyFromObject(of)
		change.After, change.Before = nil, c.unchanged(v.objects.byName[key], of)
		v.put(key, nil)
		return change, true
	}
	key := client.ObjectKeyFromObject(change.After)
	change.After, change.Before = c.transformed(change.After), c.unchanged(v.objects.byName[key], change.Before)
	v.put(key, change.After)
	return change, true
}

// unchanged returns an object of the cache, with which readers share memory. It panics if one of
// them has changed it: stored is what it was made from.
func (c *Cache) unchanged(o, stored client.Object) client.Object {
	if o != nil && stored != nil && o.GetResourceVersion() == stored.GetResourceVersion() {
		if want := c.transformed(stored); !reflect.DeepEqual(o, want) {
			panic(fmt.Sprintf("an object of the cache was changed: it is %+v, want %+v", o, want))
		}
	}
	return o
}

// put gives a name another object; nil for none.
func (v *view) put(key types.NamespacedName, o client.Object) {
	for _, keys := range v.keys {
		delete(keys, v.objects.byName[key])
	}
	if o == nil {
		v.objects.remove(key)
	} else {
		v.objects.set(key, o)
	}
}

// keysOf returns the keys of an object in an index. Objects do not change, so that each is indexed
// once.
func (v *view) keysOf(o client.Object, field string, index client.IndexerFunc) []string {
	known, found := v.keys[field]
	if !found {
		known = map[client.Object][]string{}
		v.keys[field] = known
	}
	keys, found := known[o]
	if !found {
		keys = index(o)
		known[o] = keys
	}
	return keys
}

// Get implements client.Reader. As from a real cache, a copy shares memory with the object if
// client.UnsafeDisableDeepCopy is among the options.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	var all client.GetOptions
	all.ApplyOptions(options)
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.kind(typeOf(into)).objects.byName[key]
	if !ok {
		return apierrors.NewNotFound(groupResource(typeOf(into)), key.Name)
	}
	if all.UnsafeDisableDeepCopy != nil && *all.UnsafeDisableDeepCopy {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
	} else {
		copyInto(into, o)
	}
	return nil
}

// List implements client.Reader.
func (c *Cache) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := itemType(list)
	v := c.kind(of)
	fillList(list, &v.objects, options, func(o client.Object, field string) ([]string, bool) {
		index, ok := c.indexes[of][field]
		if !ok {
			return nil, false
		}
		return v.keysOf(o, field, index), true
	})
	return nil
}

// IndexField implements client.FieldIndexer.
func (c *Cache) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.indexes[typeOf(o)] == nil {
		c.indexes[typeOf(o)] = map[string]client.IndexerFunc{}
	}
	c.indexes[typeOf(o)][field] = keys
	return nil
}

// WaitForCacheSync implements cache.Informers; a Cache is filled from the beginning.
func (c *Cache) WaitForCacheSync(context.Context) bool { return true }

// GetInformer implements cache.Informers.
func (c *Cache) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &informer{c: c, v: c.kind(typeOf(o))}, nil
}

type informer struct {
	cache.Informer // for the methods that are not called
	c              *Cache
	v              *view
}

// AddEventHandler implements cache.Informer: the handler is told at once of what is there.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.c.mu.Lock()
	i.v.handlers = append(i.v.handlers, h)
	present := slices.Clone(i.v.objects.sorted)
	i.c.mu.Unlock()
	for _, o := range present {
		h.OnAdd(o, true)
	}
	return registered{}, nil
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool { return true }

type registered struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (registered) HasSynced() bool { return true }

// String describes how far behind the cache is.
func (c *Cache) String() string { return "behind in: " + strings.Join(c.Pending(), ", ") }
