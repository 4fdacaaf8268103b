package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// memory is an API server in memory.
type memory struct {
	store *memapi.Store
	// names counts the events and namespaces whose names the server makes.
	names atomic.Int64
}

// scheme is made once, because that takes long.
var scheme = sync.OnceValue(fakeapi.Scheme)

// NewInMemory is New over an API server in memory, which knows no rules of the custom resources. Call
// it in a bubble of testing/synctest: then no wait takes time.
func NewInMemory(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	if time.Now().Year() > 2000 {
		t.Fatal("NewInMemory is called outside of a bubble, whose clock begins in 2000")
	}
	// Goroutines that wait for a timer end by it, and a bubble's time stands still after the test.
	t.Cleanup(func() { time.Sleep(time.Hour) })
	m := &memory{store: memapi.New(scheme(), clock.RealClock{})}
	return begin(t, options, &ControlPlane{Namespace: "driver", Client: memapi.NewClient(m.store, settle, nil), memory: m})
}

// client reads from a cache, or from the server if the cache is nil.
func (m *memory) client(from *memapi.Cache) *memapi.Client {
	return memapi.NewClient(m.store, memapi.Open, from)
}

// settle is the gate of the test's client: a write returns when the driver's caches have it, and the
// driver has done what it does at once. The clock of a bubble goes on only when every goroutine waits.
func settle(ctx context.Context, call memapi.Call, do func() error) error {
	err := memapi.Open(ctx, call, do)
	if call.Writes() {
		time.Sleep(time.Nanosecond)
	}
	return err
}

// reading is a manager whose API reader reads from the server in memory.
type reading struct {
	ctrl.Manager
	reader client.Reader
}

// GetAPIReader implements manager.Manager.
func (m reading) GetAPIReader() client.Reader { return m.reader }

func (m *memory) manager(options ctrl.Options) (ctrl.Manager, error) {
	var live *memapi.Live
	options.NewCache = func(_ *rest.Config, options cache.Options) (cache.Cache, error) {
		live = memapi.NewLive(m.store, options)
		return live, nil
	}
	options.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return m.client(live.Cache), nil }
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		return meta.NewDefaultRESTMapper(nil), nil
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://memory.invalid", Transport: eventSink{m}, QPS: -1}, options)
	return reading{mgr, m.client(nil)}, err
}

// NewNamespace makes a namespace for what users make, and returns its name.
func (p *ControlPlane) NewNamespace() string {
	p.t.Helper()
	if p.memory == nil {
		return apiserver.Namespace(p.t)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("test-%d", p.memory.names.Add(1))}}
	p.must(p.Client.Create(context.Background(), ns))
	return ns.Name
}

// eventSink serves the requests of the event recorder, which are the only ones that do not come from
// a client of controller-runtime.
type eventSink struct{ *memory }

// RoundTrip implements http.RoundTripper.
func (s eventSink) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	e := &corev1.Event{}
	switch r.Method {
	case http.MethodPost:
		if _, _, err = clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, e); err == nil {
			err = s.create(e)
		}
	case http.MethodPatch:
		path := strings.Split(r.URL.Path, "/") // /api/v1/namespaces/NAMESPACE/events/NAME
		e.Namespace, e.Name = path[4], path[6]
		err = s.store.Patch(e, client.RawPatch(types.PatchType(r.Header.Get("Content-Type")), body), false)
	default:
		err = fmt.Errorf("%s %s is not served", r.Method, r.URL)
	}
	code, answer := http.StatusOK, any(e)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if known, is := err.(apierrors.APIStatus); is {
			status = known.Status()
		}
		code, answer = int(status.Code), &status
	}
	text, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(string(text))),
		Request:    r,
	}, err
}

// create adds an event. The recorder makes names from the time, which stands still.
func (s eventSink) create(e *corev1.Event) error {
	e.Name = fmt.Sprintf("%s.%d", e.Name, s.names.Add(1))
	return s.store.Create(e)
}
