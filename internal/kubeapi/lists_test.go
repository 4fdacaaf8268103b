package kubeapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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
	o := &metav1.PartialObjectMetadata{}
	return o, decode(kubeapi.Fields(&o.TypeMeta, &o.ObjectMeta, &struct{}{}, &struct{}{}))
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
	return &kubeapi.Lists{
		Client:    kube,
		Resource:  "things",
		Namespace: "n",
		Item:      named,
	}, &queries
}

func TestAListIsReadPageByPageAndObjectByObject(t *testing.T) {
	t.Parallel()
	lists, queries := listsOf(t, func(query url.Values) string {
		if query.Get("continue") == "more" {
			return `{"items":[{"kind":"Thing","metadata":{"name":"c"}}],"metadata":{"resourceVersion":"7"}}`
		}
		return `{"apiVersion":"v1","kind":"ThingList","later":[{"a":[1,"]"]}],"items":[
			{"kind":"Thing","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:metadata":{}}}],"labels":{"l":"x"}},
				"spec":{"any":1}},
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

func TestAListIsReadAsATableIfItHasTheColumns(t *testing.T) {
	t.Parallel()
	const items = `{"items":[{"metadata":{"name":"whole"}}],"metadata":{"resourceVersion":"7"}}`
	const columns = `{"kind":"Table","metadata":{"resourceVersion":"7"},"columnDefinitions":[{"name":"Name"},{"name":"Size"},{"name":"Color"}],"rows":`
	for name, c := range map[string]struct{ table, want string }{
		"all columns":               {columns + `[{"cells":["a",1,"red"],"object":null},{"cells":["b",2,null]}]}`, "a red, b "},
		"no rows":                   {columns + `[]}`, ""},
		"a column is missing":       {strings.Replace(columns, "Color", "Shade", 1) + `[{"cells":["a",1,"red"]}]}`, "whole"},
		"the server has no tables":  {items, "whole"},
		"a row has too few columns": {columns + `[{"cells":["a"]}]}`, "error"},
	} {
		lists, _ := listsOf(t, func(query url.Values) string {
			if query.Get("includeObject") == "None" {
				return c.table
			}
			return items
		})
		lists.Table = &kubeapi.Table{Columns: []string{"Name", "Color"}, Row: func(cells []string) (runtime.Object, error) {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Join(cells, " ")}}, nil
		}}
		list, err := lists.ListWithContext(t.Context(), metav1.ListOptions{})
		got := "error"
		if err == nil {
			var names []string
			expect.Must(t, meta.EachListItem(list, func(o runtime.Object) error {
				names = append(names, o.(*metav1.PartialObjectMetadata).Name)
				return nil
			}))
			got = strings.Join(names, ", ")
		}
		if got != c.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, c.want)
		}
	}
}
