package index

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// told records what a handler gets.
type told struct {
	mu     sync.Mutex
	events []string
}

func (h *told) note(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, a...))
}

// OnAdd implements toolscache.ResourceEventHandler.
func (h *told) OnAdd(o any, initial bool) { h.note("add %s %t", o.(*corev1.Node).Name, initial) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (h *told) OnUpdate(_, o any) { h.note("update %s", o.(*corev1.Node).Name) }

// OnDelete implements toolscache.ResourceEventHandler.
func (h *told) OnDelete(o any) { h.note("delete %s", o.(*corev1.Node).Name) }

func (h *told) await(t *testing.T, want ...string) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("a handler gets %q", want), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(slices.Sorted(slices.Values(h.events)), want)
	})
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestEveryHandlerOfAFanGetsAllObjectsAndChanges(t *testing.T) {
	t.Parallel()
	server := fcache.NewFakeControllerSource()
	server.Add(node("a"))
	server.Add(node("b"))
	f := fanOut(toolscache.NewSharedIndexInformer(server, &corev1.Node{}, 0, nil))
	early, late, removed := &told{}, &told{}, &told{}
	registration, err := f.AddEventHandler(early)
	expect.Must(t, err)
	if registration.HasSynced() {
		t.Error("a handler has got everything before the informer was started")
	}
	go f.RunWithContext(t.Context())
	early.await(t, "add a true", "add b true")
	if !toolscache.WaitForCacheSync(t.Context().Done(), registration.HasSynced) {
		t.Fatal("the handler is not said to have got everything")
	}

	_, err = f.AddEventHandlerWithOptions(late, toolscache.HandlerOptions{})
	expect.Must(t, err)
	late.await(t, "add a true", "add b true")
	registration, err = f.AddEventHandlerWithResyncPeriod(removed, time.Hour)
	expect.Must(t, err)
	expect.Must(t, f.RemoveEventHandler(registration))
	server.Add(node("c"))
	server.Modify(node("a"))
	server.Delete(node("b"))
	for _, h := range []*told{early, late} {
		h.await(t, "add a true", "add b true", "add c false", "delete b", "update a")
	}
	removed.await(t, "add a true", "add b true")
}

func TestAFanOfAStoppedInformerTakesNoHandler(t *testing.T) {
	t.Parallel()
	f := fanOut(toolscache.NewSharedIndexInformer(fcache.NewFakeControllerSource(), &corev1.Node{}, 0, nil))
	stopped := make(chan struct{})
	close(stopped)
	f.Run(stopped)
	if _, err := f.AddEventHandler(&told{}); err == nil {
		t.Error("got no error, want one")
	}
}
