package nodehealth

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HasTaint reports whether a Node has a taint of the key, with any effect.
func HasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// KubeletReady reports whether Kubernetes holds a Node Ready.
func KubeletReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// KubernetesLost reports whether Kubernetes has lost a node: there is no Node (nil), or it is not
// Ready. That is Kubernetes' judgement by the kubelet alone, and no sign for the Detector: it comes
// later, and does not say that the driver may fence.
func KubernetesLost(n *corev1.Node) bool { return n == nil || !KubeletReady(n) }

// NotReadySince returns since when a Node is not Ready; the zero time if it is Ready, or if there
// is no Node.
func NotReadySince(n *corev1.Node) time.Time {
	if n == nil || KubeletReady(n) {
		return time.Time{}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return n.CreationTimestamp.Time
}
