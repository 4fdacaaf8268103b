package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumeattachments,verbs=get;list;watch

// observation is a View with the cache that it reads.
type observation struct {
	*View
	objects cache.Cache
	// synced report whether the table of nodes has all objects.
	synced []toolscache.InformerSynced
	// full is closed when the cache and the table have all objects.
	full chan struct{}
}

// observe makes the cache that a view reads; start fills it.
func observe(ctx context.Context, config *rest.Config, view *View) (*observation, error) {
	options := cluster.CacheOptions(view.Namespace)
	mapper := meta.NewDefaultRESTMapper(nil) // the API server need not be asked, and may be away
	options.Scheme, options.Mapper = runtime.NewScheme(), mapper
	for _, add := range []func(*runtime.Scheme) error{apiv1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme} {
		if err := add(options.Scheme); err != nil {
			return nil, err
		}
	}
	for kind := range options.Scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch strings.TrimSuffix(kind.Kind, "List") {
		case "Node", "Namespace", "PersistentVolume", "StorageClass":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	objects, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("make a cache of the API server: %w", err)
	}
	o := &observation{View: view, objects: objects, full: make(chan struct{})}
	view.reader = objects
	for field, values := range map[string]client.IndexerFunc{
		cluster.AttachmentVolume: cluster.AttachmentVolumeKeys, cluster.AttachmentNode: cluster.AttachmentNodeKeys,
	} {
		if err := objects.IndexField(ctx, &apiv1.AzVolumeAttachment{}, field, values); err != nil {
			return nil, fmt.Errorf("index attachments by %s: %w", field, err)
		}
	}
	for kind, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&apiv1.AzDriverNode{}: view.driverNodes(), &apiv1.AzVolumeAttachment{}: view.attachments(),
		&corev1.PersistentVolumeClaim{}: nil, &corev1.PersistentVolume{}: nil, &storagev1.StorageClass{}: nil,
	} {
		informer, err := objects.GetInformer(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("get informer of %T: %w", kind, err)
		}
		if handler == nil {
			continue
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		o.synced = append(o.synced, registration.HasSynced)
	}
	return o, nil
}

// start fills the view and keeps it current until ctx is done.
func (o *observation) start(ctx context.Context) error {
	go func() {
		if o.objects.WaitForCacheSync(ctx) && toolscache.WaitForCacheSync(ctx.Done(), o.synced...) {
			close(o.full)
		}
	}()
	return o.objects.Start(ctx)
}

// isFull says that the view has all objects.
func (o *observation) isFull() bool {
	select {
	case <-o.full:
		return true
	default:
		return false
	}
}

// await returns a function that reports whether the view is full. During the time start from now
// on, the function waits until it is or patience has ended.
func (o *observation) await(c clock.Clock, start, patience time.Duration) func(context.Context) bool {
	begun := c.Now()
	return func(ctx context.Context) bool {
		if o.isFull() || c.Since(begun) > start {
			return o.isFull()
		}
		timer := c.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-o.full:
		case <-timer.C():
		case <-ctx.Done():
		}
		return o.isFull()
	}
}

// attachments keeps in the table how many attachments of each node do not give way.
func (v *View) attachments() toolscache.ResourceEventHandler {
	count := func(o any, by int) {
		if a, ok := last(o).(*apiv1.AzVolumeAttachment); ok && !givesWay(a) {
			v.table.change(a.Spec.NodeName, func(f *nodeFacts) { f.taken += by })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { count(o, 1) },
		UpdateFunc: func(before, after any) { count(before, -1); count(after, 1) },
		DeleteFunc: func(o any) { count(o, -1) },
	}
}

// driverNodes keeps the rest of the table.
func (v *View) driverNodes() toolscache.ResourceEventHandler {
	observe := func(o any) {
		if d, ok := o.(*apiv1.AzDriverNode); ok {
			v.table.observe(d, v.DriverName)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, after any) { observe(after) },
		DeleteFunc: func(o any) {
			if d, ok := last(o).(*apiv1.AzDriverNode); ok {
				v.table.forget(d.Name)
			}
		},
	}
}

// last is the object of an event, or what was last known of one whose deletion was missed.
func last(o any) any {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return o
}
