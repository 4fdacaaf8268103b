package kubeapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// named reads the name of an object.
func named(decode func(any) error) (runtime.Object, error) {
	o := &kubeapi.Object[struct{}, struct{}]{}
	err := decode(o)
	return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: o.Metadata.ObjectMeta}, err
}

// listsOf lists what a server answers, and records the queries.
func listsOf(t *testing.T, answer func(query url.Values) string) (*kubeapi.Lists, *[]url.Values) {
	t.Helper()
	var queries []url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.Query())
		_, _ = w.Write([]byte(answer(r.URL.Query())))
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	expect.Must(t, err)
	kube, err := rest.NewRESTClient(at, "", rest.ClientContentConfig{}, nil, server.Client())
	expect.Must(t, err)
	return &kubeapi.Lists{Client: kube, Resource: "things", Namespace: "n", Item: named}, &queries
}

func TestAListIsReadPageByPageAndObjectByObject(t *testing.T) {
	t.Parallel()
	lists, queries := listsOf(t, func(query url.Values) string {
		if query.Get("continue") == "more" {
			return `{"items":[{"kind":"Thing","metadata":{"name":"c"}}],"metadata":{"resourceVersion":"7"}}`
		}
		return `{"apiVersion":"v1","kind":"ThingList","later":[{"a":[1,"]"]}],"items":[
			{"kind":"Thing","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:metadata":{}}}],"labels":{"l":"x"}},"spec":{"any":1}},
			{"kind":"Thing","metadata":{"name":"b"}}],"metadata":{"resourceVersion":"7","continue":"more"}}`
	})
	list, err := lists.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500})
	expect.Must(t, err)
	items, err := meta.ExtractListWithAlloc(list)
	if err != nil || len(items) != 3 {
		t.Fatalf("got %v, %v, want 3 objects", items, err)
	}
	for i, want := range []string{"a map[l:x] []", "b map[] []", "c map[] []"} {
		o := items[i].(*metav1.PartialObjectMetadata)
		if got := fmt.Sprint(o.Name, " ", o.Labels, " ", o.ManagedFields); got != want || o.Kind != "Thing" {
			t.Errorf("object %d: got %s of kind %q, want %s of kind Thing", i, got, o.Kind, want)
		}
	}
	of, err := meta.ListAccessor(list)
	if err != nil || of.GetResourceVersion() != "7" || of.GetContinue() != "" {
		t.Errorf("got %+v, %v, want version 7 and no next page", of, err)
	}
	if q := *queries; len(q) != 2 || q[0].Get("resourceVersion") != "" || q[0].Get("limit") != "2000" {
		t.Errorf("asked with %v, want two pages of the newest version", q)
	}
}

func TestAListThatIsNotCompleteIsAnError(t *testing.T) {
	t.Parallel()
	const whole = `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"7"}}`
	for end := range len(whole) {
		lists, _ := listsOf(t, func(url.Values) string { return whole[:end] })
		if list, err := lists.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatalf("got %+v for %s, want an error", list, whole[:end])
		}
	}
	for _, wrong := range []string{`[]`, `{"items":{}}`, `{"items":[{"metadata":[]}]}`, `{"metadata":3}`} {
		lists, _ := listsOf(t, func(url.Values) string { return wrong })
		if list, err := lists.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("got %+v for %s, want an error", list, wrong)
		}
	}
}
