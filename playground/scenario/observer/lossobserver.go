package observer

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
	ProofDetached      = "Detached"
	ProofVMDown        = "VMDown"
	ProofPreempted     = "Preempted"
	ProofUnstaged      = "Unstaged"
	FencingPreemption  = "Preemption"
)

const (
	// eventSource is how the names of the driver's event sources begin.
	eventSource = "azuredisk-"
	// sameTelling is the time within which events of one reason are about the same thing.
	sameTelling = 500 * time.Millisecond
)

// sawNodeHealth reports when Kubernetes changes its opinion of a node: its condition
// Ready, and the taint that says that the machine is out of service.
func (o *Observer) sawNodeHealth(old, node *corev1.Node) {
	if old == nil || node == nil {
		return
	}
	if was, is := NodeReady(old), NodeReady(node); was != is {
		o.add(timeline.Kubernetes, node.Name, "Node "+node.Name+", condition Ready", "%s: Ready is %s", node.Name, is)
	}
	switch was, is := isOutOfService(old), isOutOfService(node); {
	case is && !was:
		o.add(timeline.Kubernetes, node.Name, corev1.TaintNodeOutOfService, "%s: out of service", node.Name)
		o.mark(Milestone{Kind: TaintedOut, Node: node.Name})
	case was && !is:
		o.add(timeline.Kubernetes, node.Name, corev1.TaintNodeOutOfService, "%s: not out of service any more", node.Name)
		o.mark(Milestone{Kind: Untainted, Node: node.Name})
	}
}

// NodeReady is the status of the Node's condition Ready, Unknown if it has none.
func NodeReady(node *corev1.Node) corev1.ConditionStatus {
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

// sawReachable reports when the driver changes its opinion of whether a node is reachable.
func (o *Observer) sawReachable(old, object *unstructured.Unstructured) {
	was, is := Reachability(old), Reachability(object)
	if is.Status == "" || was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	node := object.GetName()
	o.add(timeline.Controller, node, "AzDriverNode "+node+": "+is.Message, "%s: reachable %s, %s", node, is.Status, is.Reason)
	switch {
	case is.Status == "False" && was.Status != "False":
		o.mark(Milestone{
			Kind:   NodeUnreachable,
			Node:   node,
			Detail: is.Reason,
		})
	case is.Status == "True" && was.Status != "True":
		o.mark(Milestone{Kind: nodeReachable, Node: node})
	}
}

// Condition is a condition of one of the driver's objects; its fields are empty if
// the object does not have it.
type Condition struct{ Status, Reason, Message string }

// Reachability is the condition of an AzDriverNode that reports whether the node is there.
func Reachability(u *unstructured.Unstructured) Condition {
	if u == nil {
		return Condition{}
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["type"] == conditionReachable {
			field := func(name string) string { s, _ := c[name].(string); return s }
			return Condition{field("status"), field("reason"), field("message")}
		}
	}
	return Condition{}
}

// sawFence reports when a volume is taken from a lost node, and when that is done.
func (o *Observer) sawFence(old, object *unstructured.Unstructured, v Volume) {
	decided := func(u *unstructured.Unstructured) string {
		if u == nil || Text(u, "status", "primary", "cause") != causeNodeLost {
			return ""
		}
		return Text(u, "status", "primary", "nodeName")
	}
	if node := decided(object); node != "" && node != decided(old) {
		o.add(timeline.Controller, v.Workload, "AzVolume "+v.Name+": cause NodeLost", "%s is to be fenced", node)
		o.mark(Milestone{
			Kind:   FenceDecided,
			Node:   node,
			Volume: v.Name,
		})
	}
	proof := func(u *unstructured.Unstructured) string {
		if u == nil {
			return ""
		}
		epoch, _, _ := unstructured.NestedInt64(u.Object, "status", "lastRelease", "proof", "epoch")
		return fmt.Sprint(Text(u, "status", "lastRelease", "nodeName"), " ", epoch)
	}
	if kind := Text(object, "status", "lastRelease", "proof", "type"); kind != "" && proof(object) != proof(old) {
		o.mark(Milestone{
			Kind:   ReleaseProven,
			Node:   Text(object, "status", "lastRelease", "nodeName"),
			Volume: v.Name,
			Detail: kind,
		})
	}
}

// sawProof reports when it is recorded on the attachment that its node cannot write
// to the volume any more.
func (o *Observer) sawProof(old, object *unstructured.Unstructured, v Volume, node string) {
	var before string
	if old != nil {
		before = Text(old, "status", "proof", "type") + Text(old, "status", "proof", "provenTime")
	}
	kind := Text(object, "status", "proof", "type")
	if kind == "" || kind+Text(object, "status", "proof", "provenTime") == before {
		return
	}
	o.add(timeline.Controller, v.Workload, Text(object, "status", "proof", "message"), "%s: proof %s", node, kind)
	o.mark(Milestone{
		Kind:   ReleaseProven,
		Node:   node,
		Volume: v.Name,
		Detail: kind,
	})
}

// sawEvent reports what the driver tells people by Kubernetes' own events. The same
// is told on the pod, the claim, the node and the volume: the first one counts.
func (o *Observer) sawEvent(old, event *corev1.Event) {
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
	o.add(timeline.Controller, subject, event.InvolvedObject.Kind+" "+event.InvolvedObject.Name+": "+event.Message, "event %s",
		event.Reason)
}

// byDriver reports whether a part of the driver's controller wrote the event.
func byDriver(event *corev1.Event) bool {
	return strings.HasPrefix(event.ReportingController, eventSource) || strings.HasPrefix(event.Source.Component, eventSource)
}
