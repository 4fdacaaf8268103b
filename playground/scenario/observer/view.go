package observer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// DriverNamespace holds the driver's custom resources.
const DriverNamespace = "azure-disk-csi"

// syncTimeout bounds how long the watches may take to catch up.
const syncTimeout = 2 * time.Minute

var (
	azVolumes = schema.GroupVersionResource{
		Group:    "disk.csi.azure.com",
		Version:  "v1",
		Resource: "azvolumes",
	}
	azAttachments = schema.GroupVersionResource{
		Group:    "disk.csi.azure.com",
		Version:  "v1",
		Resource: "azvolumeattachments",
	}
	azDriverNodes = schema.GroupVersionResource{
		Group:    "disk.csi.azure.com",
		Version:  "v1",
		Resource: "azdrivernodes",
	}
)

// View is the cluster as the watches show it. Conditions are awaited on it: they are
// evaluated whenever something has changed, so nothing is polled.
type View struct {
	namespace string
	Typed     informers.SharedInformerFactory
	own       informers.SharedInformerFactory
	driver    dynamicinformer.DynamicSharedInformerFactory
	ofDriver  informers.SharedInformerFactory
	Observer  *Observer

	mu      sync.Mutex
	changed chan struct{}
}

// NewView starts the watches and returns when they have caught up.
func NewView(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, namespace string, o *Observer) (*View,
	error) {
	v := &View{
		namespace: namespace,
		Typed:     informers.NewSharedInformerFactory(kube, 0),
		own:       informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(namespace)),
		ofDriver:  informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(DriverNamespace)),
		driver:    dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, DriverNamespace, nil),
		Observer:  o,
		changed:   make(chan struct{}),
	}
	o.view = v
	all := []cache.SharedIndexInformer{
		v.own.Core().V1().Pods().Informer(), v.own.Core().V1().PersistentVolumeClaims().Informer(),
		v.Typed.Core().V1().PersistentVolumes().Informer(), v.Typed.Core().V1().Nodes().Informer(),
		v.Typed.Storage().V1().VolumeAttachments().Informer(), v.Typed.Core().V1().Events().Informer(),
		v.driver.ForResource(azVolumes).Informer(), v.driver.ForResource(azAttachments).Informer(),
		v.driver.ForResource(azDriverNodes).Informer(),
	}
	var synced []cache.InformerSynced
	for _, informer := range all {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.saw(nil, object); v.notify() },
			UpdateFunc: func(old, object any) { o.saw(old, object); v.notify() },
			DeleteFunc: func(object any) { o.saw(object, nil); v.notify() },
		})
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	for _, informer := range []cache.SharedIndexInformer{v.ofDriver.Core().V1().Pods().Informer(),
		v.ofDriver.Coordination().V1().Leases().Informer()} {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { v.notify() },
			UpdateFunc: func(_, _ any) { v.notify() },
			DeleteFunc: func(any) { v.notify() },
		})
		if err != nil {
			return nil, fmt.Errorf("watch the driver's pods and leases: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	v.Typed.Start(ctx.Done())
	v.ofDriver.Start(ctx.Done())
	v.own.Start(ctx.Done())
	v.driver.Start(ctx.Done())
	ready, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ready.Done(), synced...) {
		return nil, fmt.Errorf("watch the cluster: no object was seen for %s; is the driver installed?", syncTimeout)
	}
	return v, nil
}

// notify wakes those that wait in Await.
func (v *View) notify() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// Await blocks until the condition holds or the time is over; the error then names
// what was awaited.
func (v *View) Await(ctx context.Context, limit time.Duration, what string, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// Nodes are the names of the nodes in the zone, of all if it is empty.
func (v *View) Nodes(zone string) []string {
	selector := labels.Everything()
	if zone != "" {
		selector = labels.SelectorFromSet(labels.Set{corev1.LabelTopologyZone: zone})
	}
	all, _ := v.Typed.Core().V1().Nodes().Lister().List(selector)
	var names []string
	for _, node := range all {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

// Zones are the names of the zones in which a pod can move: those with two nodes or more.
func (v *View) Zones() []string {
	all, _ := v.Typed.Core().V1().Nodes().Lister().List(labels.Everything())
	count := map[string]int{}
	for _, node := range all {
		count[node.Labels[corev1.LabelTopologyZone]]++
	}
	maps.DeleteFunc(count, func(zone string, nodes int) bool { return zone == "" || nodes < 2 })
	return slices.Sorted(maps.Keys(count))
}

// Pod is the scenario's pod of that name, nil if there is none.
func (v *View) Pod(name string) *corev1.Pod {
	pod, err := v.own.Core().V1().Pods().Lister().Pods(v.namespace).Get(name)
	if err != nil {
		return nil
	}
	return pod
}

// AllPods are the scenario's pods.
func (v *View) AllPods() []*corev1.Pod {
	// A lister's List fails never: it reads memory.
	pods, _ := v.own.Core().V1().Pods().Lister().List(labels.Everything())
	return pods
}

// VolumeOfClaim returns the PersistentVolume that is bound to the claim, or nil.
func (v *View) VolumeOfClaim(claim string) *corev1.PersistentVolume {
	c, err := v.own.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(v.namespace).Get(claim)
	if err != nil || c.Spec.VolumeName == "" {
		return nil
	}
	pv, err := v.Typed.Core().V1().PersistentVolumes().Lister().Get(c.Spec.VolumeName)
	if err != nil {
		return nil
	}
	return pv
}

// Attachment is an AzVolumeAttachment, as far as scenarios look at it. Volume is the disk's name.
type Attachment struct {
	Name, Volume, Node, Role, State string
	Deleting                        bool
}

// AllAttachments are all of the driver's attachments.
func (v *View) AllAttachments() []Attachment {
	objects, _ := v.driver.ForResource(azAttachments).Lister().List(labels.Everything())
	var found []Attachment
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok {
			found = append(found, readAttachment(u))
		}
	}
	return found
}

// Attachments are the driver's attachments of the volume, by node.
func (v *View) Attachments(volume string) map[string]Attachment {
	found := map[string]Attachment{}
	for _, a := range v.AllAttachments() {
		if a.Volume == volume {
			found[a.Node] = a
		}
	}
	return found
}

// ReplicasOf are the nodes that have a replica of the volume, sorted.
func (v *View) ReplicasOf(volume string) []string {
	var nodes []string
	for node, a := range v.Attachments(volume) {
		if a.IsReplica() {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// IsReplica reports whether the attachment is a replica that a pod could move to.
func (a Attachment) IsReplica() bool {
	return a.Role == "Replica" && a.State == "Attached" && !a.Deleting
}

func readAttachment(u *unstructured.Unstructured) Attachment {
	return Attachment{
		Name:     u.GetName(),
		Volume:   diskOf(Text(u, "spec", "volumeName")),
		Node:     Text(u, "spec", "nodeName"),
		Role:     Text(u, "spec", "role"),
		State:    Text(u, "status", "state"),
		Deleting: u.GetDeletionTimestamp() != nil,
	}
}

// Text is the string at the path, "" if there is none.
func Text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// IsBack reports whether Kubernetes and the driver have received news of the node since that
// time and think well of it.
func (v *View) IsBack(name string, since time.Time) bool {
	node := v.Node(name)
	if node == nil || NodeReady(node) != corev1.ConditionTrue || isOutOfService(node) {
		return false
	}
	driver := v.DriverNode(name)
	heartbeat, err := time.Parse(time.RFC3339Nano, Text(driver, "status", "heartbeatTime"))
	return err == nil && heartbeat.After(since) && Reachability(driver).Status == "True"
}

// DriverNode is the AzDriverNode, empty if there is none.
func (v *View) DriverNode(name string) *unstructured.Unstructured {
	objects, _ := v.driver.ForResource(azDriverNodes).Lister().List(labels.Everything())
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok && u.GetName() == name {
			return u
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// Node is the Node, nil if there is none.
func (v *View) Node(name string) *corev1.Node {
	node, err := v.Typed.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return nil
	}
	return node
}

// DescribeNode says how Kubernetes and the driver judge the node, for an error.
func (v *View) DescribeNode(name string) string {
	node := v.Node(name)
	if node == nil {
		return "no Node"
	}
	driver := v.DriverNode(name)
	reachable := Reachability(driver)
	return fmt.Sprintf("Ready %s, out of service %t, reachable %q %s, last heartbeat %s", NodeReady(node), isOutOfService(node),
		reachable.Status, reachable.Reason, Text(driver, "status", "heartbeatTime"))
}

// AzVolume is the AzVolume of a disk, empty if there is none.
func (v *View) AzVolume(disk string) *unstructured.Unstructured {
	objects, _ := v.driver.ForResource(azVolumes).Lister().List(labels.Everything())
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok && diskOf(u.GetName()) == disk {
			return u
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// PrimaryOf says which node is the volume's primary, as in "Held by node-1, epoch 2".
func (v *View) PrimaryOf(volume string) string {
	u := v.AzVolume(volume)
	epoch, _, _ := unstructured.NestedInt64(u.Object, "status", "primary", "epoch")
	return fmt.Sprintf("%s by %s, epoch %d", Text(u, "status", "primary", "state"), Text(u, "status", "primary", "nodeName"),
		epoch)
}

// Slots is how many data disks the node takes, 0 if the driver does not know.
func (v *View) Slots(node string) int {
	most, _, _ := unstructured.NestedInt64(v.DriverNode(node).Object, "status", "capacity", "maxDataDisks")
	return int(most)
}

// Attached counts the disks that are attached to the node, or that are on their way.
func (v *View) Attached(node string) int {
	count := 0
	for _, a := range v.AllAttachments() {
		if a.Node == node && a.State != "" && a.State != "Pending" && a.State != "Failed" {
			count++
		}
	}
	return count
}
