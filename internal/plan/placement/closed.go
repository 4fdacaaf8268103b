package placement

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Closed returns the nodes, among those of the input, that are closed to the pods of the volume: by
// the zone, by the selectors and the node affinity of the pods and of their volumes, by a pod that
// must not be beside one of them, or by a cordon or a taint. What passes within the grace displaces
// no replica: a planned move cordons for seconds, and programs that label or taint nodes do so again
// when they restart.
func Closed(in Input) []string {
	var closed []string
	for i := range in.Nodes {
		if reason, _, _ := closedTo(in, &in.Nodes[i]); reason != "" {
			closed = append(closed, in.Nodes[i].Node.Name)
		}
	}
	return closed
}

// closedTooLong returns why a node has been closed to the pods for longer than the grace, or "". wait
// is when that may be; 0 for never.
func closedTooLong(in Input, node *NodeView) (reason string, wait time.Duration) {
	reason, since, forEver := closedTo(in, node)
	left := in.DrainGrace - in.Now.Sub(since)
	switch {
	case reason == "", forEver, left <= 0:
		return reason, 0
	default:
		return "", left
	}
}

// closedTo returns why a node is closed to the pods, or "", and since when: the time of a taint, if
// Kubernetes has set one, or when the controller saw it first. forEver says that it will not be open
// again.
func closedTo(in Input, node *NodeView) (reason string, since time.Time, forEver bool) {
	if !Attachable(in.Volume, node.Location, node.Zone) || !belongs(in.Pods, node.Node) || in.repelled(node.Node) {
		reason = apiv1.ReasonReplicaMisplaced
	}
	since = in.Now
	if seen, ok := in.ClosedSince[node.Node.Name]; ok {
		since = seen
	}
	pods := in.Pods
	if len(pods) == 0 {
		pods = []PodView{{Pod: &corev1.Pod{}}}
	}
	for _, p := range pods {
		for _, t := range untolerated(p.Pod, node.Node, leavingTaint) {
			if reason == "" {
				reason = apiv1.ReasonReplicaDrained
			}
			forEver = forEver || autoscaled(&t)
			if t.TimeAdded != nil && t.TimeAdded.Time.Before(since) {
				since = t.TimeAdded.Time
			}
		}
	}
	return reason, since, forEver
}

// repelled reports whether a pod that stays on a node must not be beside a pod of the volume.
func (in Input) repelled(node *corev1.Node) bool {
	return slices.ContainsFunc(in.Beside[node.Name], func(other *corev1.Pod) bool {
		ours := func(p PodView) bool { return nameOf(p.Pod) == nameOf(other) }
		return other.DeletionTimestamp == nil && !slices.ContainsFunc(in.Pods, ours) &&
			slices.ContainsFunc(in.Pods, func(p PodView) bool { return Repel(p.Pod, other, node) })
	})
}

// Repel reports whether two pods must not be on a node together, by the required anti-affinity of either. It
// does not know the labels of namespaces: a rule that asks for some repels no pod here.
func Repel(a, b *corev1.Pod, node *corev1.Node) bool {
	keepsAway := func(owner, other *corev1.Pod) bool {
		_, anti, _, _ := termsOf(owner)
		return slices.ContainsFunc(compileAll(owner, anti), func(t term) bool {
			return hasLabel(node, t.key) && t.matches(other, nil)
		})
	}
	return keepsAway(a, b) || keepsAway(b, a)
}

// leavingTaint passes the taints that a user or a controller sets on a node so that its pods move
// elsewhere. The taints that Kubernetes sets by itself on an unhealthy node describe the node's
// health, which is judged elsewhere; only a cordon is one of these.
func leavingTaint(t *corev1.Taint) bool {
	return hard(t) && (t.Key == corev1.TaintNodeUnschedulable || !strings.Contains(t.Key, "kubernetes.io/"))
}

// autoscaled reports whether an autoscaler is about to remove the node; there is no grace for a
// node that will not return.
func autoscaled(t *corev1.Taint) bool {
	return t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted"
}
