package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// What the driver's API says of a lost node.
const (
	causeNodeLost      = "NodeLost"
	conditionReachable = "Reachable"
	proofDetached      = "Detached"
	proofVMDown        = "VMDown"
)

const (
	// eventSource is how the names of those begin who write the driver's events.
	eventSource = "azuredisk-"
	// sameTelling is the time within which events of one reason tell of the same.
	sameTelling = 500 * time.Millisecond
)

// sawNodeHealth reports when Kubernetes thinks differently of a node: its condition
// Ready, and the taint that says that the machine is out of service.
func (o *observer) sawNodeHealth(old, node *corev1.Node) {
	if old == nil || node == nil {
		return
	}
	if was, is := nodeReady(old), nodeReady(node); was != is {
		o.add(timeline.Kubernetes, node.Name, "Node "+node.Name+", condition Ready", "%s: Ready is %s", node.Name, is)
	}
	switch was, is := isOutOfService(old), isOutOfService(node); {
	case is && !was:
		o.add(timeline.Kubernetes, node.Name, corev1.TaintNodeOutOfService, "%s: out of service", node.Name)
		o.mark(milestone{Kind: taintedOut, Node: node.Name})
	case was && !is:
		o.add(timeline.Kubernetes, node.Name, corev1.TaintNodeOutOfService, "%s: not out of service any more", node.Name)
		o.mark(milestone{Kind: untainted, Node: node.Name})
	}
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// sawReachable reports when the driver thinks differently of whether a node is there.
func (o *observer) sawReachable(old, object *unstructured.Unstructured) {
	was, is := reachability(old), reachability(object)
	if is.status == "" || was.status == is.status && was.reason == is.reason {
		return
	}
	node := object.GetName()
	o.add(timeline.Controller, node, "AzDriverNode "+node+": "+is.message, "%s: reachable %s, %s", node, is.status, is.reason)
	switch {
	case is.status == "False" && was.status != "False":
		o.mark(milestone{Kind: nodeUnreachable, Node: node, Detail: is.reason})
	case is.status == "True" && was.status != "True":
		o.mark(milestone{Kind: nodeReachable, Node: node})
	}
}

// conditionOf is a condition of one of the driver's objects; its fields are empty if
// there is none.
type conditionOf struct{ status, reason, message string }

// reachability is the condition of an AzDriverNode that says whether the node is there.
func reachability(u *unstructured.Unstructured) conditionOf {
	if u == nil {
		return conditionOf{}
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["type"] == conditionReachable {
			field := func(name string) string { s, _ := c[name].(string); return s }
			return conditionOf{field("status"), field("reason"), field("message")}
		}
	}
	return conditionOf{}
}

// sawFence reports when a volume is taken from a lost node, and when that is done.
func (o *observer) sawFence(old, object *unstructured.Unstructured, v volume) {
	decided := func(u *unstructured.Unstructured) string {
		if u == nil || text(u, "status", "primary", "cause") != causeNodeLost {
			return ""
		}
		return text(u, "status", "primary", "nodeName")
	}
	if node := decided(object); node != "" && node != decided(old) {
		o.add(timeline.Controller, v.Workload, "AzVolume "+v.Name+": cause NodeLost", "%s is to be fenced", node)
		o.mark(milestone{Kind: fenceDecided, Node: node, Volume: v.Name})
	}
	proof := func(u *unstructured.Unstructured) string {
		if u == nil {
			return ""
		}
		epoch, _, _ := unstructured.NestedInt64(u.Object, "status", "lastRelease", "proof", "epoch")
		return fmt.Sprint(text(u, "status", "lastRelease", "nodeName"), " ", epoch)
	}
	if kind := text(object, "status", "lastRelease", "proof", "kind"); kind != "" && proof(object) != proof(old) {
		o.mark(milestone{Kind: releaseProven, Node: text(object, "status", "lastRelease", "nodeName"), Volume: v.Name, Detail: kind})
	}
}

// sawProof reports when it is recorded on the attachment that its node cannot write
// to the volume any more.
func (o *observer) sawProof(old, object *unstructured.Unstructured, v volume, node string) {
	var before string
	if old != nil {
		before = text(old, "status", "proof", "kind") + text(old, "status", "proof", "time")
	}
	kind := text(object, "status", "proof", "kind")
	if kind == "" || kind+text(object, "status", "proof", "time") == before {
		return
	}
	o.add(timeline.Controller, v.Workload, text(object, "status", "proof", "message"), "%s: proof %s", node, kind)
	o.mark(milestone{Kind: releaseProven, Node: node, Volume: v.Name, Detail: kind})
}

// sawEvent reports what the driver tells people by Kubernetes' own events. The same
// is told on the pod, the claim, the node and the volume: the first one counts.
func (o *observer) sawEvent(old, event *corev1.Event) {
	if old != nil || event == nil || event.CreationTimestamp.Time.Before(o.started) || !byDriver(event) {
		return
	}
	o.mu.Lock()
	told, now := o.told[event.Reason], o.clock.Now()
	o.told[event.Reason] = now
	o.mu.Unlock()
	if now.Sub(told) < sameTelling {
		return
	}
	subject := event.InvolvedObject.Name
	if event.InvolvedObject.Kind == "AzVolume" {
		subject = diskOf(subject)
	}
	if v, ours := o.volume(subject); ours {
		subject = v.Workload
	} else if event.InvolvedObject.Namespace == o.view.namespace {
		subject = workloadOfClaim(subject)
	}
	o.add(timeline.Controller, subject, event.InvolvedObject.Kind+" "+event.InvolvedObject.Name+": "+event.Message, "event %s", event.Reason)
}

// byDriver reports whether a part of the driver's controller wrote the event.
func byDriver(event *corev1.Event) bool {
	return strings.HasPrefix(event.ReportingController, eventSource) || strings.HasPrefix(event.Source.Component, eventSource)
}
