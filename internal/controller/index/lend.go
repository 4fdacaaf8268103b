package index

import (
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
)

// NewClient makes the client of the controller's reconcilers: it reads from the cache of its
// options and, if that is of NewCache, lends its objects.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if options.Cache != nil {
		if own, is := options.Cache.Reader.(lendingCache); is {
			return lendingClient{c, own.lender}, nil
		}
	}
	return c, nil
}

type lendingClient struct {
	client.Client
	*lender
}

type lendingCache struct {
	cache.Cache
	*lender
}

// lender implements kubeapi.Lender with the informers of a cache.
type lender struct {
	mu        sync.RWMutex
	informers map[reflect.Type]bucketed
}

func (l *lender) add(kind runtime.Object, informer bucketed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.informers[reflect.TypeOf(kind)] = informer
}

// filled returns the informer of a kind, if it has all objects.
func (l *lender) filled(kind runtime.Object) (bucketed, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	informer, known := l.informers[reflect.TypeOf(kind)]
	return informer, known && informer.HasSynced()
}

// Lend implements kubeapi.Lender.
func (l *lender) Lend(example client.Object, key client.ObjectKey) (client.Object, bool) {
	informer, filled := l.filled(example)
	if !filled {
		return nil, false
	}
	found, exists, err := informer.GetStore().GetByKey(toolscache.ObjectName{Namespace: key.Namespace, Name: key.Name}.String())
	if err != nil || !exists {
		return nil, err == nil
	}
	return found.(client.Object), true
}

// LendBy implements kubeapi.Lender.
func (l *lender) LendBy(example client.Object, namespace, field, value string) ([]any, bool) {
	informer, filled := l.filled(example)
	name := indexName(field)
	if !filled || informer.values[name] == nil {
		return nil, false
	}
	found, err := informer.indexer().by(name, namespace, value)
	return found, err == nil
}

var _ kubeapi.Lender = (*lender)(nil)
