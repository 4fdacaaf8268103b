// Package liveness makes the observations from which nodehealth.Detector judges each node, and
// publishes its judgements. It does not decide about a node's health itself.
//
// A Monitor runs in every replica of the controller, so that a new leader has its judgements
// already. It writes only requests for heartbeats. It passes to the Detector
//
//   - the heartbeats and announcements on the AzDriverNodes, when this process sees them;
//   - the ends of the connections to nodes that probes have left open;
//   - the answers to the looks that the Detector asks for: whether the API server answers this
//     process, probes, requests for heartbeats, what Azure says about a VM, the kubelet's lease, the
//     AzDriverNode as the API server itself has it, and the volumes that a lost node has left.
//
// The ConditionWriter, which runs only in the leader, writes the judgements into the condition
// Reachable of the AzDriverNodes. It writes into the condition Probeable which nodes probes reach,
// so that a new process knows it.
//
// All other state only makes the detection fast: after a restart every node has its grace period
// again. A node that was published as unreachable is Suspect until it sends a heartbeat.
package liveness
