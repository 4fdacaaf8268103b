package scheduler

import (
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Fault says why a node cannot mount the driver's volumes; it labels a metric.
type Fault string

// The faults of a node.
const (
	// FaultNone: the node can mount.
	FaultNone Fault = ""
	// FaultNoPlugin: no node plug-in has made an AzDriverNode for the node.
	FaultNoPlugin Fault = "no-node-plug-in"
	// FaultNotReady: the node plug-in says that it is not ready.
	FaultNotReady Fault = "not-ready"
	// FaultStale: the heartbeats that the node plug-in promised do not come.
	FaultStale Fault = "stale-heartbeat"
)

// Health is what is known of a node's ability to mount the driver's volumes.
type Health struct {
	// Fault is FaultNone for a node that can mount.
	Fault Fault
	// Message explains the fault to the people who read the pod's events.
	Message string
}

// Usable says that nothing is known against the node.
func (h Health) Usable() bool { return h.Fault == FaultNone }

// Filter splits the nodes into those that can mount the driver's volumes, in their
// order, and those that cannot, with the reason. Evicting other pods would not help the latter.
func Filter(nodes []string, health func(node string) Health) (passed []string, failed extenderv1.FailedNodesMap) {
	passed = make([]string, 0, len(nodes))
	failed = extenderv1.FailedNodesMap{}
	for _, node := range nodes {
		if h := health(node); h.Usable() {
			passed = append(passed, node)
		} else {
			failed[node] = h.Message
		}
	}
	return passed, failed
}
