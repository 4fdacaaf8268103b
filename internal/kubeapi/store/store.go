// Package store keeps of each object of a kind what a program needs of it, instead of the object,
// and follows the API server.
package store

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
)

// Store has a record of each object of a kind. It is the store of a reflector, which keeps it
// current, and is safe for concurrent use.
type Store[R any] struct {
	of      func(client.Object) R
	changed func(key client.ObjectKey, before, after *R)

	mu       sync.RWMutex
	kept     map[client.ObjectKey]*R
	filled   chan struct{}
	fillOnce sync.Once
}

// New makes an empty Store. of returns what is kept of an object. changed is called for each change
// with what was kept and what is kept now, nil for nothing, under the lock that Read takes; it may
// be nil.
func New[R any](of func(client.Object) R, changed func(key client.ObjectKey, before, after *R)) *Store[R] {
	return &Store[R]{
		of:      of,
		changed: changed,
		kept:    map[client.ObjectKey]*R{},
		filled:  make(chan struct{}),
	}
}

// Filled is closed when the records of all objects are kept.
func (r *Store[R]) Filled() <-chan struct{} { return r.filled }

// Read calls do while nothing changes.
func (r *Store[R]) Read(do func()) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	do()
}

// Get returns the record of an object, nil if there is none. The caller does not change it.
func (r *Store[R]) Get(key client.ObjectKey) *R {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.kept[key]
}

// record is what is kept of one object, on its way from the API server. It passes for an object,
// because client-go collects the objects of a list before it hands them over.
type record[R any] struct {
	metav1.TypeMeta
	key  client.ObjectKey
	kept R
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *record[R]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.key.Namespace, Name: r.key.Name}
}

// DeepCopyObject implements runtime.Object.
func (r *record[R]) DeepCopyObject() runtime.Object {
	c := *r
	return &c
}

func (r *Store[R]) record(object any) (*record[R], error) {
	switch o := object.(type) {
	case *record[R]:
		return o, nil
	case client.Object:
		return &record[R]{
			key:  client.ObjectKey{Namespace: kubeapi.Shared(o.GetNamespace()), Name: o.GetName()},
			kept: r.of(o),
		}, nil
	}
	return nil, fmt.Errorf("%T is not an object", object)
}

// Transformer implements TransformingStore: a reflector that collects objects collects records.
func (r *Store[R]) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) { return r.record(object) }
}

// Add implements ReflectorStore.
func (r *Store[R]) Add(object any) error { return r.change(object, r.put) }

// Update implements ReflectorStore.
func (r *Store[R]) Update(object any) error { return r.Add(object) }

// Delete implements ReflectorStore.
func (r *Store[R]) Delete(object any) error {
	return r.change(object, func(o *record[R]) { r.remove(o.key) })
}

// change calls do with the record of an object while nothing else reads or changes the records.
func (r *Store[R]) change(object any, do func(*record[R])) error {
	o, err := r.record(object)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	do(o)
	return nil
}

// Replace implements ReflectorStore.
func (r *Store[R]) Replace(objects []any, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[client.ObjectKey]struct{}, len(objects))
	for _, object := range objects {
		o, err := r.record(object)
		if err != nil {
			return err
		}
		now[o.key] = struct{}{}
		r.put(o)
	}
	for key := range r.kept {
		if _, exists := now[key]; !exists {
			r.remove(key)
		}
	}
	r.fillOnce.Do(func() { close(r.filled) })
	return nil
}

// Resync implements ReflectorStore.
func (r *Store[R]) Resync() error { return nil }

func (r *Store[R]) put(o *record[R]) {
	before, after := r.kept[o.key], &o.kept
	r.kept[o.key] = after
	if r.changed != nil {
		r.changed(o.key, before, after)
	}
}

func (r *Store[R]) remove(key client.ObjectKey) {
	before, exists := r.kept[key]
	if !exists {
		return
	}
	delete(r.kept, key)
	if r.changed != nil {
		r.changed(key, before, nil)
	}
}

// Source says how to reach the API server. Scheme has the kinds that are followed.
type Source struct {
	Config *rest.Config
	Client *http.Client
	Scheme *runtime.Scheme
}

func (s Source) rest(kind schema.GroupVersionKind) (rest.Interface, error) {
	return apiutil.RESTClientForGVK(kind, false, false, s.Config, serializer.NewCodecFactory(s.Scheme), s.Client)
}

// Follow returns what keeps the records of a kind of Kubernetes' own current until its context is
// done.
func Follow[R any](s Source, kind schema.GroupVersionKind, resource string, example client.Object,
	r *Store[R]) (func(context.Context), error) {
	kube, err := s.rest(kind)
	if err != nil {
		return nil, err
	}
	lists := &kubeapi.Lists{
		Client:   kube,
		Resource: resource,
		Follow:   toolscache.NewListWatchFromClient(kube, resource, metav1.NamespaceAll, fields.Everything()).WatchWithContext,
		Empty:    func() (runtime.Object, error) { return s.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List")) },
		Kept:     func(object runtime.Object) (runtime.Object, error) { return r.record(object) },
	}
	return toolscache.NewReflector(lists, example, r, 0).RunWithContext, nil
}

// Listing is what is read of the lists of a custom resource.
type Listing[O any] struct {
	Resource, Namespace string
	// Whole returns an object with the fields that are kept. O has these fields of its JSON.
	Whole func(*O) client.Object
	// Columns and Row are those of a kubeapi.Table, if lists are read as one. Row returns an object
	// with the fields that are kept.
	Columns []string
	Row     func(cells []string) client.Object
}

// FollowLists returns what keeps the records of a custom resource current until its context is
// done.
func FollowLists[R, O any](s Source, kind schema.GroupVersionKind, l Listing[O], example client.Object,
	r *Store[R]) (func(context.Context), error) {
	kube, err := s.rest(kind)
	if err != nil {
		return nil, err
	}
	lists := &kubeapi.Lists{
		Client:    kube,
		Resource:  l.Resource,
		Namespace: l.Namespace,
		Follow:    toolscache.NewListWatchFromClient(kube, l.Resource, l.Namespace, fields.Everything()).WatchWithContext,
		Item: func(decode func(any) error) (runtime.Object, error) {
			o := new(O)
			if err := decode(o); err != nil {
				return nil, err
			}
			return r.record(l.Whole(o))
		},
	}
	if l.Row != nil {
		lists.Table = &kubeapi.Table{
			Columns: l.Columns,
			Row:     func(cells []string) (runtime.Object, error) { return r.record(l.Row(cells)) },
		}
	}
	return toolscache.NewReflector(lists, example, r, 0).RunWithContext, nil
}
