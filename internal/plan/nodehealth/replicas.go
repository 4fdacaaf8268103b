package nodehealth

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const (
	// replicaGrace is how long a node may be lost before its replicas are replaced: a reboot must
	// not cost writes at Azure.
	replicaGrace = time.Minute
	// unreadyGrace is how long the kubelet of a node that is not lost may be not ready before the
	// node's replicas are replaced. If a kubelet does not start after an update, the cluster must
	// not lose its replicas at once.
	unreadyGrace = 5 * time.Minute
)

// ReplicaSigns are what decides whether a node can hold replicas.
type ReplicaSigns struct {
	Judgement Judgement
	// Node is the Node in Kubernetes.
	Node *corev1.Node
	// Usable says that the node's VM is established, and that the node plug-in does not report
	// itself as not ready.
	Usable bool
	// Disturbed says that Azure has announced maintenance of the VM for which the driver prepares.
	Disturbed bool
	Now       time.Time
}

// ForReplicas derives the health of a node for replicas from its judgement. A Healthy node may get
// replicas; a Suspect one keeps its replicas and gets no new ones; the replicas of a Lost one are
// replaced. A node that Azure is going to service is Suspect. A node that is lost, down or not ready
// remains Suspect for a grace period, because a reboot takes no longer; and while the guard against
// mass loss is active.
func ForReplicas(s ReplicaSigns) State {
	switch {
	case s.Judgement.State == Healthy && s.Usable && !s.Disturbed && KubeletReady(s.Node):
		return Healthy
	case s.Judgement.MassLoss:
		return Suspect
	case s.Judgement.PastReplicaGrace(s.Now):
		return Lost
	}
	for _, c := range s.Node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && s.Now.Sub(c.LastTransitionTime.Time) > unreadyGrace {
			return Lost
		}
	}
	return Suspect
}

// PastReplicaGrace reports whether a node has been lost or down for longer than replicaGrace.
func (j Judgement) PastReplicaGrace(now time.Time) bool {
	return j.State.LostOrDown() && now.Sub(j.SilentFrom) > replicaGrace
}

// NoReport reports whether no report of a node is to be expected: its AzDriverNode or its Node is
// gone (nil), or a fence of the node may begin, or its heartbeat is stale and the kubelet is not
// ready either. The last matters if failover is off: Kubernetes then decides when a volume is
// removed from the node, and this decides only how.
func NoReport(j Judgement, d *apiv1.AzDriverNode, node *corev1.Node) bool {
	return d == nil || node == nil || j.Fence() || (j.State != Healthy && !j.MassLoss && !KubeletReady(node))
}
