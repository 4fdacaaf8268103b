package collect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
)

// failoverSource is the source of the events of failovers.
const failoverSource = "azuredisk-failover"

// WatchOptions say what is watched.
type WatchOptions struct {
	// DriverNamespace is the namespace of the driver's objects.
	DriverNamespace string
	// PodNamespace is the namespace whose pods are watched, "" for all. NoPods watches none.
	PodNamespace string
	NoPods       bool
}

// Watch keeps the records of an overview up to date. Its methods may be called concurrently.
type Watch struct {
	clock     *ServerClock
	informers map[string]toolscache.SharedIndexInformer // by resource
	changed   chan struct{}

	mu     sync.Mutex
	unread map[string]explain.Unread // by resource
}

// NewWatch watches with a client and its clock, until ctx ends. It returns when each resource was
// listed, or could not be. It goes on trying the latter, less and less often.
func NewWatch(ctx context.Context, from client.WithWatch, now *ServerClock, o WatchOptions) (*Watch, error) {
	w := &Watch{
		clock:     now,
		informers: map[string]toolscache.SharedIndexInformer{},
		changed:   make(chan struct{}, 1),
		unread:    map[string]explain.Unread{},
	}
	own := client.InNamespace(o.DriverNamespace)
	w.add(from, explain.AzVolumes, &apiv1.AzVolumeList{}, &apiv1.AzVolume{}, own)
	w.add(from, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &apiv1.AzVolumeAttachment{}, own)
	w.add(from, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &apiv1.AzDriverNode{}, own)
	w.add(from, explain.Leases, &coordinationv1.LeaseList{}, &coordinationv1.Lease{}, own,
		client.MatchingFields{"metadata.name": explain.LeaseController})
	w.add(from, explain.NodesResource, &corev1.NodeList{}, &corev1.Node{})
	w.add(from, explain.EventResource, &corev1.EventList{}, &corev1.Event{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingFields{"source": failoverSource, "involvedObject.kind": "Node"})
	if !o.NoPods {
		w.add(from, explain.Pods, &corev1.PodList{}, &corev1.Pod{}, client.InNamespace(o.PodNamespace))
	}
	for what := range w.informers {
		if err := w.start(ctx, what); err != nil {
			return nil, fmt.Errorf("watch %s: %w", what, err)
		}
	}
	for !w.tried() {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.notify() // for the first reader
	return w, nil
}

func (w *Watch) add(from client.WithWatch, what string, list client.ObjectList, object client.Object,
	options ...client.ListOption) {
	with := func(raw metav1.ListOptions) *client.ListOptions {
		o := (&client.ListOptions{}).ApplyOptions(options)
		o.Raw = &raw
		return o
	}
	w.informers[what] = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject().(client.ObjectList)
			err := from.List(ctx, into, with(raw))
			w.note(what, err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			events, err := from.Watch(ctx, list.DeepCopyObject().(client.ObjectList), with(raw))
			w.note(what, err)
			return events, err
		},
	}, object, 0, toolscache.Indexers{})
}

func (w *Watch) start(ctx context.Context, what string) error {
	i := w.informers[what]
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.notify() },
		UpdateFunc: func(any, any) {
			if what != explain.Leases { // which is renewed all the time
				w.notify()
			}
		},
		DeleteFunc: func(any) { w.notify() },
	}); err != nil {
		return err
	}
	// What failed is in the records, and not on the terminal.
	if err := i.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}); err != nil {
		return err
	}
	go i.RunWithContext(ctx)
	go func() {
		toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced)
		w.notify()
	}()
	return nil
}

// note remembers whether a resource can be read.
func (w *Watch) note(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		delete(w.unread, what)
	case apierrors.IsResourceExpired(err): // the informer lists again
		return
	default:
		w.unread[what] = unread(what, err)
	}
	w.notify()
}

// notify never blocks: a change that is not taken yet stands for all.
func (w *Watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// tried reports whether each resource was listed, or could not be.
func (w *Watch) tried() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, i := range w.informers {
		if !i.HasSynced() && w.unread[what].What == "" {
			return false
		}
	}
	return true
}

// Changed receives when the records have changed since the last time. It is for one reader.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Records are the records as they are now. They must not be changed. Those of a resource that cannot
// be read any more are the last ones that were.
func (w *Watch) Records() explain.Records {
	r := explain.Records{
		Now:            w.clock.Now(),
		Volumes:        stored[*apiv1.AzVolume](w.informers[explain.AzVolumes]),
		Attachments:    stored[*apiv1.AzVolumeAttachment](w.informers[explain.AzAttachments]),
		DriverNodes:    stored[*apiv1.AzDriverNode](w.informers[explain.AzDriverNodes]),
		Nodes:          stored[*corev1.Node](w.informers[explain.NodesResource]),
		Pods:           byClaim(stored[*corev1.Pod](w.informers[explain.Pods])),
		FailoverEvents: stored[*corev1.Event](w.informers[explain.EventResource]),
	}
	if leases := stored[*coordinationv1.Lease](w.informers[explain.Leases]); len(leases) > 0 {
		r.Leader = leases[0]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Unread = slices.Collect(maps.Values(w.unread))
	slices.SortFunc(r.Unread, func(a, b explain.Unread) int { return cmp.Compare(a.What, b.What) })
	return r
}

// stored returns nil if the resource was never read.
func stored[Object any](i toolscache.SharedIndexInformer) []Object {
	if i == nil || !i.HasSynced() {
		return nil
	}
	objects := []Object{}
	for _, item := range i.GetStore().List() {
		objects = append(objects, item.(Object))
	}
	return objects
}

func byClaim(pods []*corev1.Pod) map[string][]*corev1.Pod {
	of := map[string][]*corev1.Pod{}
	for _, p := range pods {
		for _, v := range cluster.PodVolumes(p) {
			if v.PersistentVolumeClaim != nil {
				key := p.Namespace + "/" + v.PersistentVolumeClaim.ClaimName
				of[key] = append(of[key], p)
			}
		}
	}
	return of
}
