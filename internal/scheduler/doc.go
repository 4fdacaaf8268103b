// Package scheduler is the scheduler extender: it keeps pods off nodes that
// cannot mount the driver's volumes, and steers them to the nodes that have
// their volumes attached already.
//
// kube-scheduler calls it over HTTP for each pod: /filter with the nodes that passed the
// scheduler's own filters, /prioritize with the remaining nodes. The decisions are pure functions
// (filter.go, score.go) of an observation (view.go) of the cache and of a table of nodes that events
// keep (cache.go), so the work of a request grows with the pod's volumes and the nodes asked
// about, never with the cluster.
//
// For a kube-scheduler that cannot be configured, a mutating admission webhook writes the same
// judgement into new pods, as preferred node affinity (webhook.go, affinity.go). Its requests name
// no nodes, so it asks about all nodes that have a node plug-in.
//
// Invariants:
//   - The webhook allows every pod, and changes nothing but the preferred node affinity.
//   - All nodes pass for a pod without a volume of this driver.
//   - The extender fails requests until its caches are filled, because the scheduler would treat
//     any answer as right. The scheduler ignores an extender that fails, if it is configured so.
//   - Missing information does not exclude a node: the extender judges no heartbeat itself, but
//     believes the condition Reachable that the controller writes; and a VM of unknown size has
//     room.
//   - Replicas give way (law 8): the slots that they use count as free.
//   - Scores stay within the protocol's range, and a node's score never falls
//     because more of the pod's volumes are attached there.
//
// Every replica of the extender serves; the lease only says which of them is called active.
package scheduler
