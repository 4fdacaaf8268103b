package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// pageSize is how many objects a request for a page of a list returns. The API server has to send a page within a minute, however busy it is.
const pageSize = 2000

// Lists reads lists for an informer, 2,000 objects at a time, so that neither a whole list nor its text is ever in memory. Of custom resources it reads object
// by object while the answer comes.
//
// An informer would have the API server send the objects as events of a watch (WatchList). The API server encodes and sends each event by itself, and
// client-go reads the text of each several times. BenchmarkFill of internal/controller/index compares the two.
type Lists struct {
	// Client is for the group and version of the resource.
	Client rest.Interface
	// Resource and Namespace say what is listed.
	Resource, Namespace string
	// Item reads one object of a custom resource by calling decode with what encoding/json is to fill.
	Item func(decode func(into any) error) (runtime.Object, error)
	// Empty and Kept are set instead of Item for a kind that Client decodes, such as Kubernetes' own, which come as protobuf. Empty makes an empty list, and Kept
	// returns what is kept of an object.
	Empty func() (runtime.Object, error)
	Kept  func(runtime.Object) (runtime.Object, error)
	// Table, if it is set, is read instead where the API server has the columns.
	Table *Table
	// Watches makes the watches that follow a list.
	Watches toolscache.ListerWatcher
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
	return toolscache.ToListerWatcherWithContext(l.Watches).WatchWithContext(ctx, options)
}

// ListWithContext returns the whole list, page by page. It is as new as the first request, whatever version the options ask for: client-go asks for any at
// first, which may be older than what this program has seen before it was restarted.
func (l *Lists) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit, options.Continue = "", "", pageSize, ""
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
func (l *Lists) pages(ctx context.Context, options metav1.ListOptions, read func(context.Context, *rest.Request, *metainternalversion.List) error) (runtime.Object, error) {
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
	return stream(ctx, request, list, func(key json.Token, text *json.Decoder) error {
		if key != "items" {
			return text.Decode(&skipped{})
		}
		return each(text, func() error {
			item, err := l.Item(text.Decode)
			list.Items = append(list.Items, item)
			return err
		})
	})
}

func (l *Lists) tablePage(ctx context.Context, request *rest.Request, list *metainternalversion.List) error {
	p := &tablePage{Table: l.Table}
	err := stream(ctx, asTable(request), list, func(key json.Token, text *json.Decoder) error { return p.member(key, text, list) })
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

// stream reads a page while it comes. It reads the metadata, and calls member for each other member of the page.
func stream(ctx context.Context, request *rest.Request, list *metainternalversion.List, member func(key json.Token, text *json.Decoder) error) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	text := json.NewDecoder(body)
	if err := expect(text, '{'); err != nil {
		return err
	}
	for text.More() {
		key, err := text.Token()
		if err != nil {
			return err
		}
		if key == "metadata" {
			err = text.Decode(&list.ListMeta)
		} else {
			err = member(key, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return expect(text, '}')
}

// each reads an array, and calls do to read each of its values.
func each(text *json.Decoder, do func() error) error {
	if err := expect(text, '['); err != nil {
		return err
	}
	for text.More() {
		if err := do(); err != nil {
			return err
		}
	}
	return expect(text, ']')
}

func expect(text *json.Decoder, want json.Delim) error {
	got, err := text.Token()
	if err == nil && got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return err
}

// Object is the JSON of a custom resource without its managed fields, which are half of it.
type Object[Spec, Status any] struct {
	metav1.TypeMeta
	Metadata struct {
		metav1.ObjectMeta
		ManagedFields skipped `json:"managedFields"`
	} `json:"metadata"`
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// skipped is JSON of any kind that is not needed.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// Shared returns the string with the memory that all equal ones share. An object has many strings that others have as well.
func Shared[S ~string](s S) S { return unique.Make(s).Value() }
