// Package liveness collects the signals of each node and judges its health.
//
// A Monitor runs in every replica of the controller, so that a new leader has its judgements
// already. It writes nothing, and it judges by its own clock:
//
//   - the heartbeat on the AzDriverNode, from when this process saw it change;
//   - a probe of the node from here. While the node is healthy it is probed now and then, which
//     shows that probes reach it;
//   - if probes never reached the node, the kubelet's lease;
//   - Azure's answer about the VM; see nodehealth.Question.
//
// nodehealth.Judge and nodehealth.MassGuard decide what follows from the signals. Silence counts
// only while the API server answers this process: after a loss of contact the silence of each node
// is counted from its end, and no node is lost before the API server itself has shown its old
// heartbeat.
//
// The ConditionWriter, which runs only in the leader, writes the judgements into the condition
// Reachable of the AzDriverNodes. It writes into the condition Probeable which nodes probes reach,
// so that a new process knows it.
//
// All other state only makes the detection fast: after a restart every node has its grace period
// again. A node that was published as unreachable is Suspect until it sends a heartbeat.
package liveness
