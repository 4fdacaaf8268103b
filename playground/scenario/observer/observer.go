package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// AppLabel names the workload on its pods.
const AppLabel = "app"

// Observer turns what the watches see into events. It speaks only of the scenario's
// own pods and volumes.
type Observer struct {
	events *timeline.Log
	clock  clock.PassiveClock
	view   *View

	mu sync.Mutex
	// volumes are the volumes of the scenario: by PersistentVolume and by AzVolume.
	volumes map[string]Volume
	// uses is when each kubelet last reported that it uses one more volume. Only a kubelet
	// says that; the driver too takes volumes out of the list.
	uses       map[string]time.Time
	milestones []Milestone
	// told is when an event of the driver with that reason was last seen.
	told map[string]time.Time
	// started is when the observer began: events of an earlier time are ignored.
	started time.Time
}

// NewObserver returns an observer that adds to those events. A View has it see the changes.
func NewObserver(events *timeline.Log, clock clock.PassiveClock) *Observer {
	return &Observer{
		events:  events,
		clock:   clock,
		started: clock.Now(),
		volumes: map[string]Volume{},
		uses:    map[string]time.Time{},
		told:    map[string]time.Time{},
	}
}

// Volume is a disk under its different names.
type Volume struct {
	// Handle is the CSI volume handle: the disk's resource ID.
	Handle string
	// PV is the name of the PersistentVolume, Claim that of the claim.
	PV, Claim string
	// Name is the disk's, in lower case. See diskOf for that of the AzVolume.
	Name string
	// Workload whose volume it is.
	Workload string
}

// NewVolume is the volume of a PersistentVolume of the driver that is bound to a claim.
func NewVolume(pv *corev1.PersistentVolume) Volume {
	handle := pv.Spec.CSI.VolumeHandle
	return Volume{
		Handle:   handle,
		PV:       pv.Name,
		Claim:    pv.Spec.ClaimRef.Name,
		Workload: workloadOfClaim(pv.Spec.ClaimRef.Name),
		Name:     strings.ToLower(handle[strings.LastIndex(handle, "/")+1:]),
	}
}

// hashSuffix is how long the hash of the disk's resource ID is at the end of an AzVolume's name,
// with the dash before it.
const hashSuffix = 1 + 10

// diskOf returns the name of the disk of an AzVolume. It holds for disks whose names Kubernetes can
// hold, as those of all scenarios.
func diskOf(azVolume string) string { return azVolume[:max(0, len(azVolume)-hashSuffix)] }

// volume returns the scenario's volume that has the name, of whatever kind.
func (o *Observer) volume(name string) (Volume, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.volumes[name]
	return v, ok
}

// ReportedUse is when the kubelet of the node last reported that it uses one more
// volume, which it does at fixed intervals; zero if it has not.
func (o *Observer) ReportedUse(node string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uses[node]
}

func (o *Observer) learn(pv *corev1.PersistentVolume) {
	if pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Namespace != o.view.namespace {
		return
	}
	v := NewVolume(pv)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.volumes[v.PV], o.volumes[v.Name] = v, v
}

// AllVolumes are the scenario's volumes that have been seen.
func (o *Observer) AllVolumes() []Volume {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.volumes))
}

func (o *Observer) add(lane timeline.Lane, subject, detail, format string, args ...any) {
	o.events.Add(timeline.Event{
		At:      o.clock.Now(),
		Lane:    lane,
		Kind:    timeline.State,
		Source:  "kubernetes",
		Subject: subject,
		Detail:  detail,
		Step:    fmt.Sprintf(format, args...),
	})
}

// saw is called with the old and the new state of an object; one of them may be nil.
func (o *Observer) saw(old, object any) {
	if tombstone, ok := old.(cache.DeletedFinalStateUnknown); ok {
		old = tombstone.Obj
	}
	some := object
	if some == nil {
		some = old
	}
	switch some.(type) {
	case *corev1.PersistentVolume:
		if pv, ok := object.(*corev1.PersistentVolume); ok {
			o.learn(pv)
		}
	case *corev1.Pod:
		o.sawPod(as[*corev1.Pod](old), as[*corev1.Pod](object))
	case *corev1.Event:
		o.sawEvent(as[*corev1.Event](old), as[*corev1.Event](object))
	case *corev1.Node:
		o.sawNodeHealth(as[*corev1.Node](old), as[*corev1.Node](object))
		o.sawNode(as[*corev1.Node](old), as[*corev1.Node](object))
	case *storagev1.VolumeAttachment:
		o.sawVolumeAttachment(as[*storagev1.VolumeAttachment](old), as[*storagev1.VolumeAttachment](object))
	case *unstructured.Unstructured:
		o.sawDriverObject(as[*unstructured.Unstructured](old), as[*unstructured.Unstructured](object))
	}
}

// as is the object, or nil.
func as[T any](object any) T {
	typed, _ := object.(T)
	return typed
}

func (o *Observer) sawPod(old, pod *corev1.Pod) {
	if pod == nil {
		o.add(timeline.Kubernetes, old.Labels[AppLabel], "pod UID "+string(old.UID), "pod on %s is gone",
			orNowhere(old.Spec.NodeName))
		o.mark(Milestone{
			Kind: PodGone,
			Pod:  old.UID,
			Node: old.Spec.NodeName,
		})
		return
	}
	subject, detail := pod.Labels[AppLabel], fmt.Sprintf("pod %s, UID %s", pod.Name, pod.UID)
	if old == nil {
		o.add(timeline.Kubernetes, subject, detail, "new pod is made")
		old = &corev1.Pod{}
	}
	if old.Spec.NodeName == "" && pod.Spec.NodeName != "" {
		o.add(timeline.Kubernetes, subject, detail, "scheduled to %s", pod.Spec.NodeName)
	}
	if old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil {
		o.add(timeline.Kubernetes, subject, detail, "pod on %s is to end", pod.Spec.NodeName)
	}
	if !IsRunning(old) && IsRunning(pod) {
		o.add(timeline.Kubernetes, subject, detail, "pod runs on %s", pod.Spec.NodeName)
		o.mark(Milestone{
			Kind: PodRunning,
			Pod:  pod.UID,
			Node: pod.Spec.NodeName,
		})
	}
}

func orNowhere(node string) string {
	if node == "" {
		return "no node"
	}
	return node
}

// sawNode reports when a Node's status does not say any more that a volume is used there:
// Kubernetes does not detach it before. A kubelet writes that, or the driver for a
// lost node.
func (o *Observer) sawNode(old, node *corev1.Node) {
	if old == nil || node == nil {
		return
	}
	inUse := func(n *corev1.Node) []string {
		var names []string
		for _, v := range n.Status.VolumesInUse {
			names = append(names, strings.ToLower(string(v)[strings.LastIndex(string(v), "/")+1:]))
		}
		return names
	}
	before, now := inUse(old), inUse(node)
	if slices.ContainsFunc(now, func(name string) bool { return !slices.Contains(before, name) }) {
		o.mu.Lock()
		o.uses[node.Name] = o.clock.Now()
		o.mu.Unlock()
	}
	for _, name := range before {
		if v, ours := o.volume(name); ours && !slices.Contains(now, name) {
			o.add(timeline.Kubernetes, v.Workload, "Node "+node.Name+", status.volumesInUse without the volume of "+v.Claim,
				"Node %s: not in use", node.Name)
			o.mark(Milestone{
				Kind:   NotInUse,
				Node:   node.Name,
				Volume: v.Name,
			})
		}
	}
}

func (o *Observer) sawVolumeAttachment(old, va *storagev1.VolumeAttachment) {
	some := va
	if some == nil {
		some = old
	}
	if some.Spec.Source.PersistentVolumeName == nil {
		return
	}
	v, ours := o.volume(*some.Spec.Source.PersistentVolumeName)
	if !ours {
		return
	}
	detail := fmt.Sprintf("VolumeAttachment of %s to %s", v.Claim, some.Spec.NodeName)
	say := func(format string) { o.add(timeline.Kubernetes, v.Workload, detail, format, some.Spec.NodeName) }
	if va == nil {
		say("detached from %s")
		o.mark(Milestone{
			Kind:   NotAttached,
			Node:   some.Spec.NodeName,
			Volume: v.Name,
		})
		return
	}
	if old == nil {
		say("to be attached to %s")
		old = &storagev1.VolumeAttachment{}
	}
	if old.DeletionTimestamp == nil && va.DeletionTimestamp != nil {
		say("to be detached from %s")
	}
	if !old.Status.Attached && va.Status.Attached {
		say("attached to %s")
		o.mark(Milestone{
			Kind:   AttachedTo,
			Node:   va.Spec.NodeName,
			Volume: v.Name,
		})
	}
}

func (o *Observer) sawDriverObject(old, object *unstructured.Unstructured) {
	some := object
	if some == nil {
		some = old
	}
	switch some.GetKind() {
	case "AzVolume":
		o.sawAzVolume(old, object)
	case "AzVolumeAttachment":
		o.sawAzAttachment(old, object)
	case "AzDriverNode":
		o.sawAzDriverNode(old, object)
	}
}

func (o *Observer) sawAzVolume(old, object *unstructured.Unstructured) {
	if object == nil {
		return
	}
	v, ours := o.volume(diskOf(object.GetName()))
	if !ours {
		return
	}
	claim := func(u *unstructured.Unstructured) (string, string) {
		if u == nil {
			return "", ""
		}
		epoch, _, _ := unstructured.NestedInt64(u.Object, "status", "primary", "epoch")
		state, node := Text(u, "status", "primary", "state"), Text(u, "status", "primary", "nodeName")
		detail := fmt.Sprintf("AzVolume %s: primary %q, epoch %d, %s", u.GetName(), node, epoch, state)
		switch state {
		case "Held":
			return fmt.Sprintf("epoch %d: held by %s", epoch, node), detail
		case "Releasing":
			return fmt.Sprintf("epoch %d: to be released", epoch), detail
		case "Released":
			return fmt.Sprintf("epoch %d: released", epoch), detail
		}
		return "", detail
	}
	before, _ := claim(old)
	if now, detail := claim(object); now != "" && now != before {
		o.add(timeline.Controller, v.Workload, detail, "%s", now)
	}
	o.sawFence(old, object, v)
}

func (o *Observer) sawAzAttachment(old, object *unstructured.Unstructured) {
	some := object
	if some == nil {
		some = old
	}
	now := readAttachment(some)
	v, ours := o.volume(now.Volume)
	if !ours {
		return
	}
	detail := fmt.Sprintf("AzVolumeAttachment %s: %s, %s", now.Name, now.Role, now.State)
	if object == nil {
		o.add(timeline.Controller, v.Workload, detail, "%s: no attachment", now.Node)
		return
	}
	var before Attachment
	if old != nil {
		before = readAttachment(old)
	}
	o.sawProof(old, object, v, now.Node)
	if now.State != "" && (now.Role != before.Role || now.State != before.State) {
		o.add(timeline.Controller, v.Workload, detail, "%s: %s, %s", now.Node, strings.ToLower(now.Role), now.State)
	}
}

// sawAzDriverNode reports the phases in which the node says a volume is.
func (o *Observer) sawAzDriverNode(old, object *unstructured.Unstructured) {
	if object == nil {
		return
	}
	o.sawReachable(old, object)
	before, now := StagedPhases(old), StagedPhases(object)
	lane := timeline.Node(object.GetName())
	for name, phase := range now {
		if v, ours := o.volume(name); ours && before[name] != phase {
			o.add(lane, v.Workload, "AzDriverNode "+object.GetName()+", status.stagedVolumes", "reports %s", phase)
		}
	}
	for name := range before {
		if v, ours := o.volume(name); ours && now[name] == "" {
			o.add(lane, v.Workload, "AzDriverNode "+object.GetName()+", status.stagedVolumes without the volume",
				"reports unstaged")
		}
	}
}

// StagedPhases are the phases of the volumes that an AzDriverNode reports, by the disk's name.
func StagedPhases(u *unstructured.Unstructured) map[string]string {
	phases := map[string]string{}
	if u == nil {
		return phases
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "stagedVolumes")
	for _, item := range list {
		if entry, ok := item.(map[string]any); ok {
			name, _ := entry["volumeName"].(string)
			phases[diskOf(name)], _ = entry["phase"].(string)
		}
	}
	return phases
}

// IsRunning reports whether the pod is Ready and not about to end.
func IsRunning(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && IsReady(pod)
}

// IsReady reports whether the pod is Running and Ready.
func IsReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DescribePod says in a few words how a pod is.
func DescribePod(pod *corev1.Pod) string {
	parts := []string{string(pod.Status.Phase), "on " + orNowhere(pod.Spec.NodeName)}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			parts = append(parts, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			parts = append(parts, w.Reason+" "+w.Message)
		}
		if t := c.State.Terminated; t != nil {
			parts = append(parts, fmt.Sprintf("ended with exit code %d %s", t.ExitCode, t.Message))
		}
	}
	return strings.Join(parts, ", ")
}

// workloadOfClaim is the name of the workload that has the claim.
func workloadOfClaim(claim string) string {
	return strings.TrimSuffix(strings.TrimPrefix(claim, "data-"), "-0")
}
