// Package kubeapi reads lists page by page.
package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects a request for a page of a list returns. The API server has to send a
// page within a minute, however busy it is.
const pageSize = 2000

// Lists reads lists for an informer, 2,000 objects at a time, so that neither a whole list nor its
// text is ever in memory. Of custom resources it reads object by object while the answer comes.
//
// An informer would have the API server send the objects as events of a watch (WatchList). The API
// server encodes and sends each event by itself, and client-go reads the text of each several
// times. BenchmarkFill of internal/controller/index compares the two.
type Lists struct {
	// Client is for the group and version of the resource.
	Client rest.Interface
	// Resource and Namespace say what is listed.
	Resource, Namespace string
	// Item reads one object of a custom resource by calling decode with what the object's JSON is
	// to fill.
	Item func(decode func(into any) error) (runtime.Object, error)
	// Empty and Kept are set instead of Item for a kind that Client decodes, such as Kubernetes'
	// own, which come as protobuf. Empty makes an empty list, and Kept returns what is kept of an
	// object.
	Empty func() (runtime.Object, error)
	Kept  func(runtime.Object) (runtime.Object, error)
	// Table, if it is set, is read instead where the API server has the columns.
	Table *Table
	// Fields selects the objects that are listed; nil for all.
	Fields fields.Selector
	// Follow makes a watch that follows a list.
	Follow func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// IsWatchListSemanticsUnSupported makes client-go call List.
func (l *Lists) IsWatchListSemanticsUnSupported() bool { return true }

// List implements ListerWatcher.
func (l *Lists) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options) //nolint:forbidigo // the interface has no context
}

// Watch implements ListerWatcher.
func (l *Lists) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options) //nolint:forbidigo // the interface has no context
}

// WatchWithContext implements ListerWatcherWithContext.
func (l *Lists) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return l.Follow(ctx, options)
}

// ListWithContext returns the whole list, page by page. It is as new as the first request, whatever
// version the options ask for: client-go asks for any at first, which may be older than what this
// program has seen before it was restarted.
func (l *Lists) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit, options.Continue = "", "", pageSize, ""
	if l.Fields != nil {
		options.FieldSelector = l.Fields.String()
	}
	if l.Table != nil {
		if list, err := l.pages(ctx, options, l.tablePage); !errors.Is(err, errNoTable) {
			return list, err
		}
	}
	if l.Item == nil {
		return l.pages(ctx, options, l.decodedPage)
	}
	return l.pages(ctx, options, l.page)
}

// pages reads all pages of a list, each by read, which adds its objects.
func (l *Lists) pages(ctx context.Context, options metav1.ListOptions,
	read func(context.Context, *rest.Request, *metainternalversion.List) error) (runtime.Object, error) {
	list := &metainternalversion.List{}
	for {
		request := l.Client.Get().Resource(l.Resource).VersionedParams(&options, metav1.ParameterCodec)
		if l.Namespace != "" {
			request.Namespace(l.Namespace)
		}
		list.ListMeta = metav1.ListMeta{}
		if err := read(ctx, request, list); err != nil {
			return nil, fmt.Errorf("read the list of %s: %w", l.Resource, err)
		}
		if list.Continue == "" {
			return list, nil
		}
		options.Continue = list.Continue
	}
}

func (l *Lists) page(ctx context.Context, request *rest.Request, list *metainternalversion.List) error {
	return stream(ctx, request, list, func(key string, text *jsontext.Decoder) error {
		if key != "items" {
			return text.SkipValue()
		}
		decode := func(into any) error { return json.UnmarshalDecode(text, into) }
		return each(text, func() error {
			item, err := l.Item(decode)
			list.Items = append(list.Items, item)
			return err
		})
	})
}

func (l *Lists) tablePage(ctx context.Context, request *rest.Request, list *metainternalversion.List) error {
	p := &tablePage{Table: l.Table}
	err := stream(ctx, asTable(request), list,
		func(key string, text *jsontext.Decoder) error { return p.member(key, text, list) })
	if err == nil && p.places == nil {
		return errNoTable
	}
	return err
}

// decodedPage reads a page that the client decodes.
func (l *Lists) decodedPage(ctx context.Context, request *rest.Request, list *metainternalversion.List) error {
	page, err := l.Empty()
	if err != nil {
		return err
	}
	if err := request.Do(ctx).Into(page); err != nil {
		return err
	}
	of, err := meta.ListAccessor(page)
	if err != nil {
		return err
	}
	list.ResourceVersion, list.Continue = of.GetResourceVersion(), of.GetContinue()
	return meta.EachListItem(page, func(object runtime.Object) error {
		kept, err := l.Kept(object)
		list.Items = append(list.Items, kept)
		return err
	})
}

// stream reads a page while it comes. It reads the metadata, and calls member for each other member
// of the page.
func stream(ctx context.Context, request *rest.Request, list *metainternalversion.List,
	member func(key string, text *jsontext.Decoder) error) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	// The API server writes no name twice in an object, and to look for that takes time.
	text := jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true))
	return members(text, func(key string) error {
		if key == "metadata" {
			return json.UnmarshalDecode(text, &list.ListMeta)
		}
		return member(key, text)
	})
}

// members reads an object, and calls do to read the value of each of its members.
func members(text *jsontext.Decoder, do func(key string) error) error {
	if err := expect(text, jsontext.KindBeginObject); err != nil {
		return err
	}
	for text.PeekKind() == jsontext.KindString {
		name, err := text.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		if err := do(key); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return expect(text, jsontext.KindEndObject)
}

// each reads an array, and calls do to read each of its values.
func each(text *jsontext.Decoder, do func() error) error {
	if err := expect(text, jsontext.KindBeginArray); err != nil {
		return err
	}
	for text.PeekKind() != jsontext.KindEndArray {
		if err := do(); err != nil {
			return err
		}
	}
	return expect(text, jsontext.KindEndArray)
}

func expect(text *jsontext.Decoder, want jsontext.Kind) error {
	got, err := text.ReadToken()
	if err == nil && got.Kind() != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return err
}

// Fields is what the JSON of a custom resource fills: the fields of the object, without its managed
// fields, which are half of the text.
func Fields[Spec, Status any](kind *metav1.TypeMeta, meta *metav1.ObjectMeta, spec *Spec, status *Status) any {
	o := &struct {
		*metav1.TypeMeta
		Metadata struct {
			*metav1.ObjectMeta
			ManagedFields skipped `json:"managedFields"`
		} `json:"metadata"`
		Spec   *Spec   `json:"spec"`
		Status *Status `json:"status"`
	}{
		TypeMeta: kind,
		Spec:     spec,
		Status:   status,
	}
	o.Metadata.ObjectMeta = meta
	return o
}

// skipped is JSON of any kind that is not needed.
type skipped struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (*skipped) UnmarshalJSONFrom(text *jsontext.Decoder) error { return text.SkipValue() }

// Shared returns the string with the memory that all equal ones share. An object has many strings
// that others have as well.
func Shared[S ~string](s S) S { return unique.Make(s).Value() }
