package index

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
)

// NewCache makes the controller's cache, which lists the kinds that its options name with
// kubeapi.Lists, the custom resources in a namespace. Each object is trimmed once, when it is read.
// AddIndexes adds the indexes.
func NewCache(namespace string) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		var err error
		if options.HTTPClient == nil {
			if options.HTTPClient, err = rest.HTTPClientFor(config); err != nil {
				return nil, fmt.Errorf("make a client for lists: %w", err)
			}
		}
		if options.Mapper == nil {
			if options.Mapper, err = kubeapi.NewMapper(config, options.HTTPClient); err != nil {
				return nil, fmt.Errorf("make a mapper of kinds: %w", err)
			}
		}
		sources := map[reflect.Type]source{}
		options.ByObject = maps.Clone(options.ByObject)
		for object, by := range options.ByObject {
			s, err := newSource(object, by.Transform, by.Field, config, options)
			if err != nil {
				return nil, fmt.Errorf("make a client for lists of %T: %w", object, err)
			}
			if s.lists.Item != nil {
				s.lists.Namespace = namespace
			}
			sources[reflect.TypeOf(object)] = s
			by.Transform = nil
			options.ByObject[object] = by
		}
		options.NewInformer = func(watches toolscache.ListerWatcher, kind runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			if s, known := sources[reflect.TypeOf(kind)]; known {
				watches = s.from(watches)
			}
			return toolscache.NewSharedIndexInformer(watches, kind, resync, indexers)
		}
		return cache.New(config, options)
	}
}

// source is where the objects of a kind come from.
type source struct {
	lists kubeapi.Lists
	trim  toolscache.TransformFunc
}

func newSource(object client.Object, trim toolscache.TransformFunc, selected fields.Selector, config *rest.Config,
	options cache.Options) (source, error) {
	kind, err := apiutil.GVKForObject(object, options.Scheme)
	if err != nil {
		return source{}, err
	}
	mapping, err := options.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return source{}, err
	}
	kube, err := apiutil.RESTClientForGVK(kind, false, false, config, serializer.NewCodecFactory(options.Scheme),
		options.HTTPClient)
	s := source{trim: trim, lists: kubeapi.Lists{
		Client:   kube,
		Resource: mapping.Resource.Resource,
		Fields:   selected,
	}}
	if s.lists.Item = itemOf(object); s.lists.Item == nil {
		s.lists.Empty = func() (runtime.Object, error) {
			return options.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
		}
		s.lists.Kept = func(o runtime.Object) (runtime.Object, error) {
			trimmed, err := trim(o)
			return trimmed.(runtime.Object), err
		}
	}
	return s, err
}

// from returns what lists the objects, and follows them with the watches that another one makes.
func (s source) from(watches toolscache.ListerWatcher) *kubeapi.Lists {
	lists := s.lists
	lists.Follow = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		changes, err := toolscache.ToListerWatcherWithContext(watches).WatchWithContext(ctx, options)
		if err != nil {
			return nil, err
		}
		return watch.Filter(changes, s.trimmed), nil
	}
	return &lists
}

// trimmed trims the object of an event.
func (s source) trimmed(e watch.Event) (watch.Event, bool) {
	if e.Type == watch.Bookmark || e.Type == watch.Error {
		return e, true
	}
	object, err := s.trim(e.Object)
	if err != nil {
		return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}, true
	}
	e.Object = object.(runtime.Object)
	return e, true
}

type decode = func(into any) error

// itemOf returns what reads an object of a list of a kind of custom resource, trimmed; nil for
// other kinds.
func itemOf(kind runtime.Object) func(decode) (runtime.Object, error) {
	switch kind.(type) {
	case *apiv1.AzVolume:
		return func(decode decode) (runtime.Object, error) {
			o := &apiv1.AzVolume{}
			return trimmed(o, decode(kubeapi.Fields(&o.TypeMeta, &o.ObjectMeta, &o.Spec, &o.Status)))
		}
	case *apiv1.AzVolumeAttachment:
		return func(decode decode) (runtime.Object, error) {
			o := &apiv1.AzVolumeAttachment{}
			return trimmed(o, decode(kubeapi.Fields(&o.TypeMeta, &o.ObjectMeta, &o.Spec, &o.Status)))
		}
	case *apiv1.AzDriverNode:
		return func(decode decode) (runtime.Object, error) {
			o := &apiv1.AzDriverNode{}
			return trimmed(o, decode(kubeapi.Fields(&o.TypeMeta, &o.ObjectMeta, &o.Spec, &o.Status)))
		}
	}
	return nil
}

func trimmed(o client.Object, err error) (runtime.Object, error) {
	if err == nil {
		_, err = trimOwn(o)
	}
	return o, err
}
