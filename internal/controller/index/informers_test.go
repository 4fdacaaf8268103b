package index

import (
	"context"
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

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

// An object that comes with a list is the same as one that comes with a watch, which client-go reads and trimOwn trims.
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
		_, item := itemOf(kind)
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
			listed, err := item(func(into any) error { return json.Unmarshal(text, into) })
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

// An upgrade of controller-runtime may change the keys that it makes: then this test fails, because an index has other keys than those with the namespace.
func TestAnIndexOfOneNamespaceHasNoKeysForAllNamespaces(t *testing.T) {
	t.Parallel()
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	expect.Must(t, apiv1.AddToScheme(scheme))
	mapper.Add(apiv1.GroupVersion.WithKind("AzVolumeAttachment"), meta.RESTScopeNamespace)
	a := apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "v-node"}}
	a.Spec.VolumeName, a.Spec.NodeName = "v", "node"
	var indexer toolscache.Indexer
	objects, err := cache.New(&rest.Config{Host: "http://unused"}, cache.Options{
		Scheme: scheme, Mapper: mapper,
		NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := ofOneNamespace{toolscache.NewSharedIndexInformer(listed(a), kind, resync, indexers)}
			indexer = informer.GetIndexer()
			return informer
		},
	})
	expect.Must(t, err)
	expect.Must(t, objects.IndexField(t.Context(), &a, AttachmentVolume, AttachmentVolumeKeys))
	go func() { _ = objects.Start(t.Context()) }()
	if !objects.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache is not filled")
	}

	here, err := Attachments(t.Context(), objects, "n", AttachmentVolume, "v")
	if err != nil || len(here) != 1 || here[0].Name != a.Name {
		t.Errorf("in the namespace: got %v, %v, want the attachment", here, err)
	}
	if err := objects.List(t.Context(), &apiv1.AzVolumeAttachmentList{}, client.MatchingFields{AttachmentVolume: "v"}); err == nil {
		t.Error("in all namespaces: got no error, want one")
	}
	if got, want := indexer.ListIndexFuncValues("field:"+AttachmentVolume), []string{"n/v"}; !slices.Equal(got, want) {
		t.Errorf("keys of the index: got %v, want %v", got, want)
	}
}
