package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumeattachments,verbs=get;list;watch

// observation is a View with the caches that feed it.
type observation struct {
	*View
	cache  cache.Cache
	synced []toolscache.InformerSynced
	// full is closed when the caches are filled.
	full chan struct{}
}

// observe makes the caches; start fills them.
func observe(ctx context.Context, config *rest.Config, view *View) (*observation, error) {
	objects, err := newCache(config, view.Namespace)
	if err != nil {
		return nil, fmt.Errorf("make the caches: %w", err)
	}
	view.Reader = objects
	o := &observation{View: view, cache: objects, full: make(chan struct{})}
	for field, keys := range map[string]client.IndexerFunc{volumeIndex: volumeKeys, takenIndex: takenKeys} {
		if err := objects.IndexField(ctx, &apiv1.AzVolumeAttachment{}, field, keys); err != nil {
			return nil, fmt.Errorf("index the attachments by %s: %w", field, err)
		}
	}
	for _, object := range watched() {
		informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
		o.synced = append(o.synced, informer.HasSynced)
		handler := view.handler(ctx, object)
		if handler == nil {
			continue
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("follow the changes of %T: %w", object, err)
		}
		o.synced = append(o.synced, registration.HasSynced)
	}
	return o, nil
}

func volumeKeys(object client.Object) []string {
	return []string{object.(*apiv1.AzVolumeAttachment).Spec.VolumeName}
}

func takenKeys(object client.Object) []string {
	if a := object.(*apiv1.AzVolumeAttachment); !givesWay(a) {
		return []string{a.Spec.NodeName}
	}
	return nil
}

// start fills the caches and keeps them until ctx is done.
func (o *observation) start(ctx context.Context) error {
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), o.synced...) {
			close(o.full)
		}
	}()
	return o.cache.Start(ctx)
}

// isFull says that the caches are filled.
func (o *observation) isFull() bool {
	select {
	case <-o.full:
		return true
	default:
		return false
	}
}

// await returns a function that says whether the caches are filled. During the time start from now on, the function
// waits until they are filled or patience has ended.
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

// handler returns what keeps the table of nodes current with the objects of a kind, nil for a kind that it does not depend on.
func (v *View) handler(ctx context.Context, kind client.Object) toolscache.ResourceEventHandler {
	switch kind.(type) {
	case *apiv1.AzDriverNode:
		return v.driverNodeHandler()
	case *apiv1.AzVolumeAttachment:
		return v.attachmentHandler(ctx)
	}
	return nil
}

func (v *View) driverNodeHandler() toolscache.ResourceEventHandler {
	observe := func(object any) {
		if d, ok := object.(*apiv1.AzDriverNode); ok {
			v.table.observe(d, v.DriverName, v.Heartbeats.observe(d))
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, object any) { observe(object) },
		DeleteFunc: func(object any) {
			// Also for an object whose deletion was missed, for which only the key is certain.
			key, err := toolscache.DeletionHandlingObjectToName(object)
			if err == nil {
				v.Heartbeats.Forget(key.Name)
				v.table.forget(key.Name)
			}
		},
	}
}

// attachmentHandler counts the attachments of a node again when one of them changes. The cache has that change and perhaps later ones.
func (v *View) attachmentHandler(ctx context.Context) toolscache.ResourceEventHandler {
	count := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		a, ok := object.(*apiv1.AzVolumeAttachment)
		if !ok {
			return
		}
		taken, err := v.taken(ctx, a.Spec.NodeName)
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot count the disks of a node", "node", a.Spec.NodeName)
			return
		}
		v.table.change(a.Spec.NodeName, func(f *nodeFacts) { f.taken = len(taken) })
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: count, UpdateFunc: func(_, object any) { count(object) }, DeleteFunc: count}
}

func watched() []client.Object {
	return []client.Object{
		&apiv1.AzDriverNode{}, &apiv1.AzVolumeAttachment{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{},
	}
}

// newCache makes a cache of the objects that the extender reads, reduced to the fields that it reads.
func newCache(config *rest.Config, namespace string) (cache.Cache, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiv1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	own := map[string]cache.Config{namespace: {}}
	return cache.New(config, cache.Options{
		Scheme: scheme,
		// A fixed mapping instead of discovery, so that the extender also starts without an API server.
		Mapper:                       mapper(),
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		ByObject: map[client.Object]cache.ByObject{
			&apiv1.AzDriverNode{}:           {Namespaces: own, Transform: slim},
			&apiv1.AzVolumeAttachment{}:     {Namespaces: own, Transform: slim},
			&corev1.PersistentVolumeClaim{}: {Transform: slim},
			&corev1.PersistentVolume{}:      {Transform: slim},
			&storagev1.StorageClass{}:       {Transform: slim},
		},
	})
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(apiv1.GroupVersion.WithKind("AzDriverNode"), meta.RESTScopeNamespace)
	m.Add(apiv1.GroupVersion.WithKind("AzVolumeAttachment"), meta.RESTScopeNamespace)
	// A cache that is limited to a namespace also needs the scope of the lists' kinds.
	m.Add(apiv1.GroupVersion.WithKind("AzDriverNodeList"), meta.RESTScopeNamespace)
	m.Add(apiv1.GroupVersion.WithKind("AzVolumeAttachmentList"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), meta.RESTScopeRoot)
	m.Add(storagev1.SchemeGroupVersion.WithKind("StorageClass"), meta.RESTScopeRoot)
	return m
}

// slim removes the fields that the extender does not read, which are most of a claim and of a volume.
func slim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
		accessor.SetLabels(nil)
		accessor.SetFinalizers(nil)
		accessor.SetUID("")
	}
	switch o := object.(type) {
	case *apiv1.AzDriverNode:
		o.Status.StagedVolumes = nil
	case *apiv1.AzVolumeAttachment:
		o.Status = apiv1.AzVolumeAttachmentStatus{State: o.Status.State}
	case *corev1.PersistentVolumeClaim:
		o.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName, StorageClassName: o.Spec.StorageClassName}
		o.Status = corev1.PersistentVolumeClaimStatus{}
	case *corev1.PersistentVolume:
		o.Spec = slimVolume(o.Spec)
		o.Status = corev1.PersistentVolumeStatus{}
	case *storagev1.StorageClass:
		*o = storagev1.StorageClass{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion},
			Provisioner: o.Provisioner, Parameters: onlySKU(o.Parameters)}
	}
	return object, nil
}

// skus are what onlySKU returns, by SKU.
var skus sync.Map

// onlySKU returns the parameters or attributes that skuOf reads. All objects of a SKU share them.
func onlySKU(parameters map[string]string) map[string]string {
	sku := skuOf(parameters)
	if sku == "" {
		return nil
	}
	only, _ := skus.LoadOrStore(sku, map[string]string{"skuName": sku})
	return only.(map[string]string)
}

func slimVolume(source corev1.PersistentVolumeSpec) corev1.PersistentVolumeSpec {
	var spec corev1.PersistentVolumeSpec
	if csi := source.CSI; csi != nil {
		spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
		if source.VolumeAttributesClassName == nil { // which may have changed the SKU
			spec.CSI.VolumeAttributes = onlySKU(csi.VolumeAttributes)
		}
	}
	if disk := source.AzureDisk; disk != nil {
		spec.AzureDisk = &corev1.AzureDiskVolumeSource{DataDiskURI: disk.DataDiskURI}
	}
	return spec
}
