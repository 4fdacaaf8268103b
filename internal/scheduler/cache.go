package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi/store"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumeattachments,verbs=get;list;watch

// observation is a View with what keeps it current.
type observation struct {
	*View
	reflectors []func(context.Context)
	// full is closed when the view has all objects.
	full chan struct{}
}

// observe makes what keeps a view current; start starts it.
func observe(config *rest.Config, view *View) (*observation, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiv1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	kube, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	view.makeRecords()
	s := store.Source{
		Config: config,
		Client: kube,
		Scheme: scheme,
	}
	o := &observation{View: view, full: make(chan struct{})}
	for _, follow := range []func() (func(context.Context), error){
		func() (func(context.Context), error) {
			kind := apiv1.GroupVersion.WithKind("AzVolumeAttachment")
			return store.FollowLists(s, kind, attachmentListing(view.Namespace), &apiv1.AzVolumeAttachment{}, view.attachments)
		},
		func() (func(context.Context), error) {
			kind := apiv1.GroupVersion.WithKind("AzDriverNode")
			l := store.Listing[listedDriverNode]{
				Resource:  "azdrivernodes",
				Namespace: view.Namespace,
				Whole:     driverNodeOf,
			}
			return store.FollowLists(s, kind, l, &apiv1.AzDriverNode{}, view.driverNodes)
		},
		func() (func(context.Context), error) {
			kind := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
			return store.Follow(s, kind, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, view.claims)
		},
		func() (func(context.Context), error) {
			kind := corev1.SchemeGroupVersion.WithKind("PersistentVolume")
			return store.Follow(s, kind, "persistentvolumes", &corev1.PersistentVolume{}, view.disks)
		},
		func() (func(context.Context), error) {
			kind := storagev1.SchemeGroupVersion.WithKind("StorageClass")
			return store.Follow(s, kind, "storageclasses", &storagev1.StorageClass{}, view.classes)
		},
	} {
		reflector, err := follow()
		if err != nil {
			return nil, fmt.Errorf("watch the API server: %w", err)
		}
		o.reflectors = append(o.reflectors, reflector)
	}
	return o, nil
}

// start fills the view and keeps it current until ctx is done.
func (o *observation) start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, run := range o.reflectors {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() {
		for _, full := range []<-chan struct{}{o.attachments.Filled(), o.driverNodes.Filled(), o.claims.Filled(),
			o.disks.Filled(), o.classes.Filled()} {
			select {
			case <-full:
			case <-ctx.Done():
				return
			}
		}
		close(o.full)
	})
	all.Wait()
	return nil
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

// makeRecords makes the records of a view, without any object.
func (v *View) makeRecords() {
	v.byVolume, v.taken = map[string][]*attachmentRecord{}, map[string][]*attachmentRecord{}
	v.attachments = store.New(keepAttachment, v.indexAttachment)
	v.driverNodes = store.New(keepDriverNode, v.observeDriverNode)
	v.claims = store.New(keepClaim, nil)
	v.disks = store.New(v.keepDisk, nil)
	v.classes = store.New(v.keepClass, nil)
}

// attachmentRecord is what is kept of an AzVolumeAttachment.
type attachmentRecord struct {
	volume, node string
	state        DiskState
	givesWay     bool
}

func keepAttachment(object client.Object) attachmentRecord {
	a := object.(*apiv1.AzVolumeAttachment)
	return attachmentRecord{
		volume:   kubeapi.Shared(a.Spec.VolumeName),
		node:     kubeapi.Shared(a.Spec.NodeName),
		state:    diskState(a),
		givesWay: givesWay(a),
	}
}

// listed is what a list of custom resources says of the metadata of an object, as far as it is
// needed. To decode more of 60,000 attachments takes its time.
type listed struct {
	Name              string       `json:"name"`
	Namespace         string       `json:"namespace"`
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
}

func (l *listed) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         l.Namespace,
		Name:              l.Name,
		DeletionTimestamp: l.DeletionTimestamp,
	}
}

// listedAttachment are the fields that keepAttachment reads.
type listedAttachment struct {
	Metadata listed `json:"metadata"`
	Spec     struct {
		VolumeName string     `json:"volumeName"`
		NodeName   string     `json:"nodeName"`
		Role       apiv1.Role `json:"role"`
	} `json:"spec"`
	Status struct {
		State apiv1.AttachmentState `json:"state"`
	} `json:"status"`
}

// attachmentListing reads attachments as the rows of a table where the definition has the columns:
// most of what a start costs is their lists.
func attachmentListing(namespace string) store.Listing[listedAttachment] {
	return store.Listing[listedAttachment]{
		Resource:  "azvolumeattachments",
		Namespace: namespace,
		Whole:     attachmentOf,
		Columns:   []string{"Name", "Volume", "Node", "Role", "State", "Deleting"},
		Row: func(cells []string) client.Object {
			o := &listedAttachment{Metadata: listed{Namespace: namespace, Name: cells[0]}}
			o.Spec.VolumeName, o.Spec.NodeName, o.Spec.Role, o.Status.State = cells[1], cells[2], apiv1.Role(
				cells[3]), apiv1.AttachmentState(cells[4])
			if cells[5] != "" { // for how long; when it began is not needed
				o.Metadata.DeletionTimestamp = &metav1.Time{}
			}
			return attachmentOf(o)
		},
	}
}

func attachmentOf(o *listedAttachment) client.Object {
	a := &apiv1.AzVolumeAttachment{ObjectMeta: o.Metadata.meta()}
	a.Spec.VolumeName, a.Spec.NodeName, a.Spec.Role = o.Spec.VolumeName, o.Spec.NodeName, o.Spec.Role
	a.Status.State = o.Status.State
	return a
}

// indexAttachment keeps the indexes of attachments, and how many of a node do not give way.
func (v *View) indexAttachment(_ client.ObjectKey, before, after *attachmentRecord) {
	if before != nil {
		drop(v.byVolume, before.volume, before)
		drop(v.taken, before.node, before)
	}
	if after != nil {
		v.byVolume[after.volume] = append(v.byVolume[after.volume], after)
		if !after.givesWay {
			v.taken[after.node] = append(v.taken[after.node], after)
		}
	}
	for _, a := range []*attachmentRecord{before, after} {
		if a != nil {
			v.table.change(a.node, func(f *nodeFacts) { f.taken = len(v.taken[a.node]) })
		}
	}
}

// drop removes an attachment from those of a key, if it is among them.
func drop(index map[string][]*attachmentRecord, key string, a *attachmentRecord) {
	rest := slices.DeleteFunc(index[key], func(other *attachmentRecord) bool { return other == a })
	if len(rest) == 0 {
		delete(index, key)
		return
	}
	index[key] = rest
}

// keepDriverNode keeps of an AzDriverNode what the table of nodes and the heartbeats follow from,
// and what it was asked to fence.
func keepDriverNode(object client.Object) *apiv1.AzDriverNode {
	d := object.(*apiv1.AzDriverNode)
	kept := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: d.Name}}
	kept.Spec.VMSize = kubeapi.Shared(d.Spec.VMSize)
	kept.Status.HeartbeatTime, kept.Status.HeartbeatSeconds = d.Status.HeartbeatTime, d.Status.HeartbeatSeconds
	kept.Status.Capacity = d.Status.Capacity
	kept.Status.FenceRequests, kept.Status.FenceResults = d.Status.FenceRequests, d.Status.FenceResults
	for _, c := range d.Status.Conditions {
		c.Type, c.Reason, c.Message = kubeapi.Shared(c.Type), kubeapi.Shared(c.Reason), kubeapi.Shared(c.Message)
		kept.Status.Conditions = append(kept.Status.Conditions, c)
	}
	return kept
}

// listedDriverNode are the fields that keepDriverNode reads.
type listedDriverNode struct {
	Metadata listed `json:"metadata"`
	Spec     struct {
		VMSize string `json:"vmSize"`
	} `json:"spec"`
	Status struct {
		HeartbeatTime    *metav1.MicroTime    `json:"heartbeatTime"`
		HeartbeatSeconds int32                `json:"heartbeatSeconds"`
		Capacity         *apiv1.NodeCapacity  `json:"capacity"`
		Conditions       []metav1.Condition   `json:"conditions"`
		FenceRequests    []apiv1.FenceRequest `json:"fenceRequests"`
		FenceResults     []apiv1.FenceResult  `json:"fenceResults"`
	} `json:"status"`
}

func driverNodeOf(o *listedDriverNode) client.Object {
	d := &apiv1.AzDriverNode{ObjectMeta: o.Metadata.meta()}
	d.Spec.VMSize = o.Spec.VMSize
	d.Status.HeartbeatTime, d.Status.HeartbeatSeconds = o.Status.HeartbeatTime, o.Status.HeartbeatSeconds
	d.Status.Capacity, d.Status.Conditions = o.Status.Capacity, o.Status.Conditions
	d.Status.FenceRequests, d.Status.FenceResults = o.Status.FenceRequests, o.Status.FenceResults
	return d
}

// observeDriverNode keeps the table of nodes and the heartbeats.
func (v *View) observeDriverNode(key client.ObjectKey, _, after **apiv1.AzDriverNode) {
	if after == nil {
		v.Heartbeats.Forget(key.Name)
		v.table.forget(key.Name)
		return
	}
	v.table.observe(*after, v.DriverName, v.Heartbeats.observe(*after))
}

// claimRecord is what is kept of a PersistentVolumeClaim.
type claimRecord struct {
	// volume and class are names; "" for none.
	volume, class string
	// owner is the UID of the pod that the claim was made for, if it was made for one.
	owner types.UID
}

func keepClaim(object client.Object) claimRecord {
	c := object.(*corev1.PersistentVolumeClaim)
	kept := claimRecord{volume: c.Spec.VolumeName}
	if c.Spec.StorageClassName != nil {
		kept.class = kubeapi.Shared(*c.Spec.StorageClassName)
	}
	if owner := metav1.GetControllerOf(c); owner != nil {
		kept.owner = owner.UID
	}
	return kept
}

// keepDisk keeps which disk a PersistentVolume is.
func (v *View) keepDisk(object client.Object) disk {
	pv := object.(*corev1.PersistentVolume)
	switch {
	case pv.Spec.CSI != nil && pv.Spec.CSI.Driver == v.DriverName:
		kept := disk{volume: kubeapi.Shared(volumeName(pv.Spec.CSI.VolumeHandle)), ours: true}
		if pv.Spec.VolumeAttributesClassName == nil { // which may have changed the SKU
			kept.sku = kubeapi.Shared(skuOf(pv.Spec.CSI.VolumeAttributes))
		}
		return kept
	case pv.Spec.CSI == nil && pv.Spec.AzureDisk != nil && v.servesInTree():
		return disk{volume: kubeapi.Shared(volumeName(pv.Spec.AzureDisk.DataDiskURI)), ours: true}
	}
	return disk{}
}

// keepClass keeps which disks a StorageClass has made.
func (v *View) keepClass(object client.Object) disk {
	class := object.(*storagev1.StorageClass)
	return disk{sku: kubeapi.Shared(skuOf(class.Parameters)), ours: class.Provisioner == v.DriverName}
}
