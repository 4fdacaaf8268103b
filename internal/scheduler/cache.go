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
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
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
	view.live, err = client.New(config, client.Options{Scheme: options.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	for _, index := range []struct {
		of     client.Object
		field  string
		values client.IndexerFunc
	}{
		{&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys},
		{&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys},
		{&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, cluster.PersistentVolumeKeys(view.DriverName)},
	} {
		if err := objects.IndexField(ctx, index.of, index.field, index.values); err != nil {
			return nil, fmt.Errorf("index %T by %s: %w", index.of, index.field, err)
		}
	}
	attachments, err := cluster.OnChange(ctx, objects, &apiv1.AzVolumeAttachment{}, view.countAttachment)
	if err != nil {
		return nil, err
	}
	driverNodes, err := cluster.OnChange(ctx, objects, &apiv1.AzDriverNode{}, view.noteNode)
	if err != nil {
		return nil, err
	}
	o.synced = append(o.synced, attachments, driverNodes)
	for _, kind := range []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{}} {
		if _, err := objects.GetInformer(ctx, kind); err != nil {
			return nil, fmt.Errorf("get informer of %T: %w", kind, err)
		}
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

// countAttachment keeps in the table how many attachments of each node keep their slots.
func (v *View) countAttachment(before, after *apiv1.AzVolumeAttachment) {
	count := func(a *apiv1.AzVolumeAttachment, by int) {
		if a != nil && attaching.KeepsSlot(a) {
			v.table.change(a.Spec.NodeName, func(f *nodeFacts) { f.taken += by })
		}
	}
	count(before, -1)
	count(after, 1)
}

// noteNode keeps the rest of the table.
func (v *View) noteNode(before, after *apiv1.AzDriverNode) {
	if after != nil {
		v.table.observe(before, after, v.DriverName)
	} else {
		v.table.forget(before)
	}
}
