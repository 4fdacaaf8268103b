package scenario

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

// driverNamespace holds the driver's custom resources.
const driverNamespace = "azure-disk-csi"

// syncTimeout bounds how long the watches may take to catch up.
const syncTimeout = 2 * time.Minute

var (
	azVolumes     = schema.GroupVersionResource{Group: "disk.csi.azure.com", Version: "v1", Resource: "azvolumes"}
	azAttachments = schema.GroupVersionResource{Group: "disk.csi.azure.com", Version: "v1", Resource: "azvolumeattachments"}
	azDriverNodes = schema.GroupVersionResource{Group: "disk.csi.azure.com", Version: "v1", Resource: "azdrivernodes"}
)

// view is the cluster as the watches show it. Conditions are awaited on it: they are
// evaluated whenever something has changed, so nothing is polled.
type view struct {
	namespace string
	typed     informers.SharedInformerFactory
	own       informers.SharedInformerFactory
	driver    dynamicinformer.DynamicSharedInformerFactory
	observer  *observer

	mu      sync.Mutex
	changed chan struct{}
}

// newView starts the watches and returns when they have caught up.
func newView(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, namespace string, o *observer) (*view, error) {
	v := &view{
		namespace: namespace,
		typed:     informers.NewSharedInformerFactory(kube, 0),
		own:       informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(namespace)),
		driver:    dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, driverNamespace, nil),
		observer:  o,
		changed:   make(chan struct{}),
	}
	o.view = v
	all := []cache.SharedIndexInformer{
		v.own.Core().V1().Pods().Informer(), v.own.Core().V1().PersistentVolumeClaims().Informer(),
		v.typed.Core().V1().PersistentVolumes().Informer(), v.typed.Core().V1().Nodes().Informer(),
		v.typed.Storage().V1().VolumeAttachments().Informer(), v.typed.Core().V1().Events().Informer(),
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
	v.typed.Start(ctx.Done())
	v.own.Start(ctx.Done())
	v.driver.Start(ctx.Done())
	ready, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ready.Done(), synced...) {
		return nil, fmt.Errorf("watch the cluster: no object was seen for %s; is the driver installed?", syncTimeout)
	}
	return v, nil
}

func (v *view) notify() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// await blocks until the condition holds or the time is over; the error then names
// what was awaited.
func (v *view) await(ctx context.Context, limit time.Duration, what string, condition func() bool) error {
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

// nodes are the names of the nodes in the zone, of all if it is empty.
func (v *view) nodes(zone string) []string {
	selector := labels.Everything()
	if zone != "" {
		selector = labels.SelectorFromSet(labels.Set{corev1.LabelTopologyZone: zone})
	}
	all, _ := v.typed.Core().V1().Nodes().Lister().List(selector)
	var names []string
	for _, node := range all {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

// zones are the names of the zones in which a pod can move: those with two nodes or more.
func (v *view) zones() []string {
	all, _ := v.typed.Core().V1().Nodes().Lister().List(labels.Everything())
	count := map[string]int{}
	for _, node := range all {
		count[node.Labels[corev1.LabelTopologyZone]]++
	}
	maps.DeleteFunc(count, func(zone string, nodes int) bool { return zone == "" || nodes < 2 })
	return slices.Sorted(maps.Keys(count))
}

func (v *view) pod(name string) *corev1.Pod {
	pod, err := v.own.Core().V1().Pods().Lister().Pods(v.namespace).Get(name)
	if err != nil {
		return nil
	}
	return pod
}

func (v *view) allPods() []*corev1.Pod {
	// A lister's List fails never: it reads memory.
	pods, _ := v.own.Core().V1().Pods().Lister().List(labels.Everything())
	return pods
}

// volumeOfClaim returns the PersistentVolume that is bound to the claim, or nil.
func (v *view) volumeOfClaim(claim string) *corev1.PersistentVolume {
	c, err := v.own.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(v.namespace).Get(claim)
	if err != nil || c.Spec.VolumeName == "" {
		return nil
	}
	pv, err := v.typed.Core().V1().PersistentVolumes().Lister().Get(c.Spec.VolumeName)
	if err != nil {
		return nil
	}
	return pv
}

// attachment is an AzVolumeAttachment, as far as scenarios look at it. Volume is the disk's name.
type attachment struct {
	Name, Volume, Node, Role, State string
	Deleting                        bool
}

// allAttachments are all of the driver's attachments.
func (v *view) allAttachments() []attachment {
	objects, _ := v.driver.ForResource(azAttachments).Lister().List(labels.Everything())
	var found []attachment
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok {
			found = append(found, readAttachment(u))
		}
	}
	return found
}

// attachments are the driver's attachments of the volume, by node.
func (v *view) attachments(volume string) map[string]attachment {
	found := map[string]attachment{}
	for _, a := range v.allAttachments() {
		if a.Volume == volume {
			found[a.Node] = a
		}
	}
	return found
}

// replicasOf are the nodes that have a replica of the volume, sorted.
func (v *view) replicasOf(volume string) []string {
	var nodes []string
	for node, a := range v.attachments(volume) {
		if a.isReplica() {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// isReplica reports whether the attachment is a replica that a pod could move to.
func (a attachment) isReplica() bool {
	return a.Role == "Replica" && a.State == "Attached" && !a.Deleting
}

func readAttachment(u *unstructured.Unstructured) attachment {
	return attachment{
		Name:     u.GetName(),
		Volume:   diskOf(text(u, "spec", "volumeName")),
		Node:     text(u, "spec", "nodeName"),
		Role:     text(u, "spec", "role"),
		State:    text(u, "status", "state"),
		Deleting: u.GetDeletionTimestamp() != nil,
	}
}

// text is the string at the path, "" if there is none.
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// isBack reports whether Kubernetes and the driver have heard of the node since that
// time and think well of it.
func (v *view) isBack(name string, since time.Time) bool {
	node, err := v.typed.Core().V1().Nodes().Lister().Get(name)
	if err != nil || nodeReady(node) != corev1.ConditionTrue || isOutOfService(node) {
		return false
	}
	driver := v.driverNode(name)
	heartbeat, err := time.Parse(time.RFC3339Nano, text(driver, "status", "heartbeatTime"))
	return err == nil && heartbeat.After(since) && reachability(driver).status == "True"
}

// driverNode is the AzDriverNode, empty if there is none.
func (v *view) driverNode(name string) *unstructured.Unstructured {
	objects, _ := v.driver.ForResource(azDriverNodes).Lister().List(labels.Everything())
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok && u.GetName() == name {
			return u
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

func (v *view) describeNode(name string) string {
	node, err := v.typed.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return "no Node"
	}
	driver := v.driverNode(name)
	reachable := reachability(driver)
	return fmt.Sprintf("Ready %s, out of service %t, reachable %q %s, last heartbeat %s", nodeReady(node), isOutOfService(node),
		reachable.status, reachable.reason, text(driver, "status", "heartbeatTime"))
}

// azVolume is the AzVolume of a disk, empty if there is none.
func (v *view) azVolume(disk string) *unstructured.Unstructured {
	objects, _ := v.driver.ForResource(azVolumes).Lister().List(labels.Everything())
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok && diskOf(u.GetName()) == disk {
			return u
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// claimOf says who has the volume, as in "Held by node-1, epoch 2".
func (v *view) claimOf(volume string) string {
	u := v.azVolume(volume)
	epoch, _, _ := unstructured.NestedInt64(u.Object, "status", "primary", "epoch")
	return fmt.Sprintf("%s by %s, epoch %d", text(u, "status", "primary", "state"), text(u, "status", "primary", "nodeName"), epoch)
}

// slots is how many data disks the node takes, 0 if the driver does not know.
func (v *view) slots(node string) int {
	most, _, _ := unstructured.NestedInt64(v.driverNode(node).Object, "status", "capacity", "maxDataDisks")
	return int(most)
}

// attached counts the disks that are attached to the node, or that are on their way.
func (v *view) attached(node string) int {
	count := 0
	for _, a := range v.allAttachments() {
		if a.Node == node && a.State != "" && a.State != "Pending" && a.State != "Failed" {
			count++
		}
	}
	return count
}
