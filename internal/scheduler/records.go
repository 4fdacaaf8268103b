package scheduler

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

// records has of each object of a kind what the decisions need, which is a small part of it. A reflector keeps them current. It is safe for concurrent use.
type records[R any] struct {
	// of returns what is kept of an object.
	of func(client.Object) R
	// changed is called for each change with what was kept and what is kept now, nil for nothing; not at once for two changes. It may be nil.
	changed func(key client.ObjectKey, before, after *R)

	mu   sync.RWMutex
	kept map[client.ObjectKey]*R
	// full is closed when the records of all objects are kept.
	full     chan struct{}
	fillOnce sync.Once
}

func newRecords[R any](of func(client.Object) R, changed func(key client.ObjectKey, before, after *R)) *records[R] {
	return &records[R]{of: of, changed: changed, kept: map[client.ObjectKey]*R{}, full: make(chan struct{})}
}

// get returns the record of an object, nil if there is none. The caller does not change it.
func (r *records[R]) get(key client.ObjectKey) *R {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.kept[key]
}

// record is what is kept of one object, on its way from the API server. It passes for an object, because client-go collects the objects of a list before
// it hands them over.
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

func (r *records[R]) record(object any) (*record[R], error) {
	switch o := object.(type) {
	case *record[R]:
		return o, nil
	case client.Object:
		return &record[R]{key: client.ObjectKey{Namespace: shared(o.GetNamespace()), Name: o.GetName()}, kept: r.of(o)}, nil
	}
	return nil, fmt.Errorf("%T is not an object", object)
}

// Transformer implements TransformingStore: a reflector that collects objects collects records.
func (r *records[R]) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) { return r.record(object) }
}

// Add implements ReflectorStore.
func (r *records[R]) Add(object any) error {
	o, err := r.record(object)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(o)
	return nil
}

// Update implements ReflectorStore.
func (r *records[R]) Update(object any) error { return r.Add(object) }

// Delete implements ReflectorStore.
func (r *records[R]) Delete(object any) error {
	o, err := r.record(object)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(o.key)
	return nil
}

// Replace implements ReflectorStore.
func (r *records[R]) Replace(objects []any, _ string) error {
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
	r.fillOnce.Do(func() { close(r.full) })
	return nil
}

// Resync implements ReflectorStore.
func (r *records[R]) Resync() error { return nil }

func (r *records[R]) put(o *record[R]) {
	before, after := r.kept[o.key], &o.kept
	r.kept[o.key] = after
	if r.changed != nil {
		r.changed(o.key, before, after)
	}
}

func (r *records[R]) remove(key client.ObjectKey) {
	before, exists := r.kept[key]
	if !exists {
		return
	}
	delete(r.kept, key)
	if r.changed != nil {
		r.changed(key, before, nil)
	}
}

// source makes what reads objects from the API server.
type source struct {
	config *rest.Config
	client *http.Client
	scheme *runtime.Scheme
}

func (s source) rest(kind schema.GroupVersionKind) (rest.Interface, error) {
	return apiutil.RESTClientForGVK(kind, false, false, s.config, serializer.NewCodecFactory(s.scheme), s.client)
}

// follow returns what keeps the records of a kind of Kubernetes' own current until its context is done.
func follow[R any](s source, kind schema.GroupVersionKind, resource string, example client.Object, r *records[R]) (func(context.Context), error) {
	kube, err := s.rest(kind)
	if err != nil {
		return nil, err
	}
	all := toolscache.NewListWatchFromClient(kube, resource, metav1.NamespaceAll, fields.Everything())
	return toolscache.NewReflector(all, example, r, 0).RunWithContext, nil
}

// followOwn returns the same for a custom resource. Of a list only O is read of each object, which has the fields that whole needs.
func followOwn[R, O any](s source, kind schema.GroupVersionKind, resource, namespace string, example client.Object, r *records[R], whole func(*O) client.Object) (func(context.Context), error) {
	kube, err := s.rest(kind)
	if err != nil {
		return nil, err
	}
	lists := &kubeapi.Lists{
		Client: kube, Resource: resource, Namespace: namespace,
		Watches: toolscache.NewListWatchFromClient(kube, resource, namespace, fields.Everything()),
		Item: func(decode func(any) error) (runtime.Object, error) {
			o := new(O)
			if err := decode(o); err != nil {
				return nil, err
			}
			return r.record(whole(o))
		},
	}
	return toolscache.NewReflector(lists, example, r, 0).RunWithContext, nil
}
