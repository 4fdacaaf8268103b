// Package liveness watches whether nodes are alive.
//
// A Monitor runs in every replica of the controller, so that one that becomes the leader knows already, and it writes nothing. It judges by its own clock:
//
//   - the heartbeat on the AzDriverNode, from when this process saw it change;
//   - a probe of the node from here, of which one is made now and then to know that it works at all;
//   - where probes never worked, the kubelet's lease;
//   - Azure's word on the VM, once a heartbeat is late.
//
// What follows from the signs is decided by nodehealth.Judge and nodehealth.MassGuard. Silence
// counts only while the API server answers this process: the clocks of all nodes start again
// after a loss of contact, and no node is lost before the API server itself has shown its old heartbeat.
//
// The ConditionWriter, which runs in the leader alone, writes the verdicts into the condition Reachable of the AzDriverNodes, and which nodes can be
// probed into the condition Probeable, from which a new process takes it up.
//
// All other state is only about speed: after a restart every node has its grace again.
package liveness
