package index

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
)

// NewCache makes the controller's cache, which lists the custom resources of a namespace with kubeapi.Lists. AddIndexes adds its indexes.
func NewCache(namespace, driverName string) cache.NewCacheFunc {
	indexes := fieldIndexes(driverName)
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		kube, err := customResources(config, options.HTTPClient, options.Scheme)
		if err != nil {
			return nil, fmt.Errorf("make a client for lists: %w", err)
		}
		options.NewInformer = func(watches toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			if resource, item := itemOf(kind); item != nil {
				watches = &kubeapi.Lists{Client: kube, Resource: resource, Namespace: namespace, Item: item, Watches: watches}
			}
			return inBuckets(toolscache.NewSharedIndexInformer(watches, kind, resync, indexers), kind, indexes)
		}
		return cache.New(config, options)
	}
}

func customResources(config *rest.Config, client *http.Client, scheme *runtime.Scheme) (rest.Interface, error) {
	if client == nil {
		var err error
		if client, err = rest.HTTPClientFor(config); err != nil {
			return nil, err
		}
	}
	return apiutil.RESTClientForGVK(apiv1.GroupVersion.WithKind("AzVolume"), false, false, config, serializer.NewCodecFactory(scheme), client)
}

type decode = func(into any) error

// itemOf returns the resource of a kind of custom resource and what reads an object of a list of it, trimmed as in the cache; nil for other kinds.
func itemOf(kind runtime.Object) (resource string, item func(decode) (runtime.Object, error)) {
	switch kind.(type) {
	case *apiv1.AzVolume:
		return "azvolumes", trimmed(func(o *kubeapi.Object[apiv1.AzVolumeSpec, apiv1.AzVolumeStatus]) runtime.Object {
			return &apiv1.AzVolume{TypeMeta: o.TypeMeta, ObjectMeta: o.Metadata.ObjectMeta, Spec: o.Spec, Status: o.Status}
		})
	case *apiv1.AzVolumeAttachment:
		return "azvolumeattachments", trimmed(func(o *kubeapi.Object[apiv1.AzVolumeAttachmentSpec, apiv1.AzVolumeAttachmentStatus]) runtime.Object {
			return &apiv1.AzVolumeAttachment{TypeMeta: o.TypeMeta, ObjectMeta: o.Metadata.ObjectMeta, Spec: o.Spec, Status: o.Status}
		})
	case *apiv1.AzDriverNode:
		return "azdrivernodes", trimmed(func(o *kubeapi.Object[apiv1.AzDriverNodeSpec, apiv1.AzDriverNodeStatus]) runtime.Object {
			return &apiv1.AzDriverNode{TypeMeta: o.TypeMeta, ObjectMeta: o.Metadata.ObjectMeta, Spec: o.Spec, Status: o.Status}
		})
	}
	return "", nil
}

func trimmed[Spec, Status any](object func(*kubeapi.Object[Spec, Status]) runtime.Object) func(decode) (runtime.Object, error) {
	return func(decode decode) (runtime.Object, error) {
		o := &kubeapi.Object[Spec, Status]{}
		if err := decode(o); err != nil {
			return nil, err
		}
		whole := object(o)
		_, err := trimOwn(whole)
		return whole, err
	}
}
