package index

import (
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bucketed is an informer whose indexes by fields share a fixed number of sets. client-go keeps a
// set of objects for each value: with 20,000 volumes most sets have one member, and they took a
// fifth of the cache's memory. A set for all values of one hash takes much less. Look-ups leave out
// the objects of the other values.
type bucketed struct {
	toolscache.SharedIndexInformer
	// values are the functions that return the values of an object, by the names that
	// controller-runtime gives their indexes.
	values map[string]client.IndexerFunc
}

func inBuckets(informer toolscache.SharedIndexInformer, kind runtime.Object, indexes []fieldIndex) bucketed {
	b := bucketed{informer, map[string]client.IndexerFunc{}}
	for _, index := range indexes {
		if reflect.TypeOf(index.object) == reflect.TypeOf(kind) {
			b.values[indexName(index.field)] = index.values
		}
	}
	return b
}

// indexName is the name that controller-runtime gives the index of a field.
func indexName(field string) string { return "field:" + field }

// AddIndexers implements SharedIndexInformer.
func (b bucketed) AddIndexers(added toolscache.Indexers) error {
	buckets := make(toolscache.Indexers, len(added))
	for name, keys := range added {
		values, known := b.values[name]
		if !known {
			buckets[name] = keys
			continue
		}
		buckets[name] = func(o any) ([]string, error) {
			var found []string
			for _, value := range values(o.(client.Object)) {
				if bucket := bucketOf(value); !slices.Contains(found, bucket) {
					found = append(found, bucket)
				}
			}
			return found, nil
		}
	}
	return b.SharedIndexInformer.AddIndexers(buckets)
}

// GetIndexer implements SharedIndexInformer.
func (b bucketed) GetIndexer() toolscache.Indexer { return b.indexer() }

func (b bucketed) indexer() bucketIndexer {
	return bucketIndexer{b.SharedIndexInformer.GetIndexer(), b.values}
}

// bucketIndexer finds objects by one of those indexes.
type bucketIndexer struct {
	toolscache.Indexer
	values map[string]client.IndexerFunc
}

// allNamespaces is what controller-runtime's keys have for the namespace if objects of all
// namespaces are looked for.
const allNamespaces = "__all_namespaces"

// ByIndex implements Indexer.
func (x bucketIndexer) ByIndex(name, key string) ([]any, error) {
	if _, known := x.values[name]; !known {
		return x.Indexer.ByIndex(name, key)
	}
	namespace, value, _ := strings.Cut(key, "/")
	if namespace == allNamespaces {
		namespace = ""
	}
	return x.by(name, namespace, value)
}

// by returns the objects of a namespace, or of all for "", that an index has a value for.
func (x bucketIndexer) by(name, namespace, value string) ([]any, error) {
	values := x.values[name]
	found, err := x.Indexer.ByIndex(name, bucketOf(value))
	return slices.DeleteFunc(found, func(o any) bool {
		object := o.(client.Object)
		return namespace != "" && namespace != object.GetNamespace() || !slices.Contains(values(object), value)
	}), err
}

// GetIndexers implements Indexer. controller-runtime compares the keys that these functions return
// with those that it looks for, if it looks for several fields at once. Buckets are no such keys,
// and nothing looks so: it gets an error, and not an empty list.
func (bucketIndexer) GetIndexers() toolscache.Indexers { return nil }

// bucketNames are the names of the buckets. With 60,000 attachments one has seven.
var bucketNames = func() (names [1 << 13]string) {
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}()

var bucketSeed = maphash.MakeSeed()

func bucketOf(value string) string {
	return bucketNames[maphash.String(bucketSeed, value)%uint64(len(bucketNames))]
}
