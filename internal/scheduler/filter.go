package scheduler

import (
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Fault says why a node cannot mount the driver's volumes; it labels a metric.
type Fault string

// The faults of a node.
const (
	// faultNone: the node can mount.
	faultNone Fault = ""
	// faultNoPlugin: no node plug-in has made an AzDriverNode for the node.
	faultNoPlugin Fault = "NoNodePlugin"
	// faultNotReady: the node plug-in says that it is not ready.
	faultNotReady Fault = "NotReady"
	// faultLost: the controller judged the node lost, by two signals or because Azure reports its
	// VM as stopped.
	faultLost Fault = "Lost"
	// faultUnsupported: disks of that SKU cannot be attached to the VM.
	faultUnsupported Fault = "UnsupportedDisk"
	// FaultNoRoom: the VM cannot take the pod's disks beside the disks that cannot give way.
	FaultNoRoom Fault = "NoRoom"
	// FaultLeftBehind: a process there that outlived its pod may use one of the volumes.
	FaultLeftBehind Fault = apiv1.ReasonProcessLeftBehind
	// faultZone: a disk of the pod will be created as a clone, in the zone of its source, and the VM
	// is in another zone.
	faultZone Fault = "OtherZone"
)

// Feasibility is the answer whether a node can mount the driver's volumes, with the reason if it
// cannot.
type Feasibility struct {
	// Fault is faultNone for a node that can mount.
	Fault Fault
	// Message explains the fault to the people who read the pod's events.
	Message string
}

// feasible reports whether nothing is known against the node.
func (h Feasibility) feasible() bool { return h.Fault == faultNone }

// Filter splits the nodes into nodes that can mount the pod's volumes, in their order, and nodes
// that cannot, with the reason. It counts the faults. passed takes the place of names.
//
// The result says that evicting other pods does not make the unfit nodes fit. It may for a node
// without room, but the scheduler asks only about nodes where it sees room itself, and would look
// there for pods to evict and find none.
func Filter(names []string, nodes Nodes) (passed []string, failed extenderv1.FailedNodesMap, faults map[Fault]int) {
	passed = names[:0]
	failed, faults = extenderv1.FailedNodesMap{}, map[Fault]int{}
	for _, name := range names {
		h := nodes.Feasible(name)
		if h.feasible() {
			passed = append(passed, name)
			continue
		}
		failed[name] = h.Message
		faults[h.Fault]++
	}
	return passed, failed, faults
}
