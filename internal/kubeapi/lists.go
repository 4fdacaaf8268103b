package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unique"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// pageSize is how many objects a request for a page of a list returns. The API server has to send a page within a minute, however busy it is.
const pageSize = 2000

// Lists reads lists of custom resources for an informer, object by object while the answer comes. The text of a list is never in memory as a whole.
//
// An informer would have the API server send the objects as events of a watch (WatchList). The API server encodes and sends each event by itself, and
// client-go reads the text of each several times. BenchmarkFill of internal/controller/index compares the two.
type Lists struct {
	// Client is for the group and version of the resource.
	Client rest.Interface
	// Resource and Namespace say what is listed.
	Resource, Namespace string
	// Item reads one object by calling decode with what encoding/json is to fill.
	Item func(decode func(into any) error) (runtime.Object, error)
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
	list := &metainternalversion.List{}
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit, options.Continue = "", "", pageSize, ""
	for {
		if err := l.page(ctx, options, list); err != nil {
			return nil, err
		}
		if list.Continue == "" {
			return list, nil
		}
		options.Continue = list.Continue
	}
}

// page adds the objects of a page to a list.
func (l *Lists) page(ctx context.Context, options metav1.ListOptions, list *metainternalversion.List) error {
	request := l.Client.Get().Resource(l.Resource).VersionedParams(&options, metav1.ParameterCodec)
	if l.Namespace != "" {
		request.Namespace(l.Namespace)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	list.ListMeta = metav1.ListMeta{}
	if err := l.read(body, list); err != nil {
		return fmt.Errorf("read the list of %s: %w", l.Resource, err)
	}
	return nil
}

func (l *Lists) read(body io.Reader, list *metainternalversion.List) error {
	text := json.NewDecoder(body)
	if err := expect(text, '{'); err != nil {
		return err
	}
	for text.More() {
		key, err := text.Token()
		if err != nil {
			return err
		}
		switch key {
		case "metadata":
			err = text.Decode(&list.ListMeta)
		case "items":
			err = l.items(text, list)
		default:
			err = text.Decode(&skipped{})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return expect(text, '}')
}

func (l *Lists) items(text *json.Decoder, list *metainternalversion.List) error {
	if err := expect(text, '['); err != nil {
		return err
	}
	for text.More() {
		item, err := l.Item(text.Decode)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, item)
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
