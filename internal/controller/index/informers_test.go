package index

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// An object that comes with a list is the same as one that comes with a watch, which client-go
// reads and trimOwn trims.
func TestAListedObjectIsWhatAWatchedOneIs(t *testing.T) {
	t.Parallel()
	fill := randfill.New().RandSource(rand.NewSource(1)).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(m *metav1.Time, c randfill.Continue) { *m = metav1.Unix(c.Int63n(1<<32), 0) },
		func(m *metav1.MicroTime, c randfill.Continue) {
			*m = metav1.NewMicroTime(metav1.Unix(c.Int63n(1<<32), 0).Time)
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
	)
	for _, kind := range []client.Object{&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{}} {
		item := itemOf(kind)
		for range 50 {
			full := kind.DeepCopyObject()
			fill.Fill(full)
			text, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			watched := kind.DeepCopyObject()
			if err := json.Unmarshal(text, watched); err != nil {
				t.Fatal(err)
			}
			if _, err := trimOwn(watched); err != nil {
				t.Fatal(err)
			}
			listed, err := item(func(into any) error { return jsonv2.Unmarshal(text, into) })
			if err != nil || !reflect.DeepEqual(listed, watched) {
				t.Fatalf("%s: got %+v, %v, want %+v", text, listed, err, watched)
			}
		}
	}
}

// listed lists the same objects whenever it is asked, and watches nothing.
func listed(objects ...apiv1.AzVolumeAttachment) toolscache.ListerWatcher {
	return &noWatchList{ListWatch: toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &apiv1.AzVolumeAttachmentList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: objects}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}
}

type noWatchList struct{ toolscache.ListWatch }

func (*noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// The values are so many that buckets have the objects of several.
func TestAnIndexFindsTheObjectsOfItsKeyOnly(t *testing.T) {
	t.Parallel()
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	expect.Must(t, apiv1.AddToScheme(scheme))
	mapper.Add(apiv1.GroupVersion.WithKind("AzVolumeAttachment"), meta.RESTScopeNamespace)
	const volumes, nodes = 3 * len(bucketNames), 5
	var all []apiv1.AzVolumeAttachment
	for i := range volumes {
		a := apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"n", "m"}[i%2], Name: fmt.Sprint(i)}}
		a.Spec.VolumeName, a.Spec.NodeName = fmt.Sprintf("v/%d", i), fmt.Sprint(i%nodes)
		all = append(all, a)
	}
	var indexer toolscache.Indexer
	objects, err := cache.New(&rest.Config{Host: "http://unused"}, cache.Options{
		Scheme: scheme,
		Mapper: mapper,
		NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := inBuckets(toolscache.NewSharedIndexInformer(listed(all...), kind, resync, indexers), kind,
				fieldIndexes("driver"))
			indexer = informer.GetIndexer()
			return informer
		},
	})
	expect.Must(t, err)
	expect.Must(t, objects.IndexField(t.Context(), &apiv1.AzVolumeAttachment{}, AttachmentVolume, AttachmentVolumeKeys))
	expect.Must(t, objects.IndexField(t.Context(), &apiv1.AzVolumeAttachment{}, AttachmentNode, AttachmentNodeKeys))
	go func() { _ = objects.Start(t.Context()) }()
	if !objects.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache is not filled")
	}

	if sets := len(indexer.ListIndexFuncValues("field:" + AttachmentVolume)); sets > len(bucketNames) {
		t.Errorf("got %d sets, want at most %d: an upgrade of controller-runtime may have changed the names of its indexes", sets,
			len(bucketNames))
	}
	const one = 4321
	volume := client.MatchingFields{AttachmentVolume: all[one].Spec.VolumeName}
	node := client.MatchingFields{AttachmentNode: all[one].Spec.NodeName}
	here, elsewhere := client.InNamespace(all[one].Namespace), client.InNamespace(all[one+1].Namespace)
	for name, test := range map[string]struct {
		options []client.ListOption
		want    int
	}{
		"a volume, in its namespace":                   {[]client.ListOption{volume, here}, 1},
		"a volume, in another namespace":               {[]client.ListOption{volume, elsewhere}, 0},
		"a volume, in all namespaces":                  {[]client.ListOption{volume}, 1},
		"a node, in all namespaces":                    {[]client.ListOption{node}, volumes / nodes},
		"all of a namespace, by client-go's own index": {[]client.ListOption{here}, volumes / 2},
	} {
		var found apiv1.AzVolumeAttachmentList
		if err := objects.List(t.Context(), &found, test.options...); err != nil || len(found.Items) != test.want {
			t.Errorf("%s: got %d, %v, want %d", name, len(found.Items), err, test.want)
		}
	}
	both := client.MatchingFields{AttachmentVolume: all[one].Spec.VolumeName, AttachmentNode: all[one].Spec.NodeName}
	if err := objects.List(t.Context(), &apiv1.AzVolumeAttachmentList{}, both); err == nil {
		t.Error("by two fields at once: got no error, want one")
	}
}
