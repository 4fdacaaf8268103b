package scheduler

import (
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// DiskState is how near a volume's disk is to a node.
type DiskState int

// The states, from far to near.
const (
	// absent: nothing of the disk is on the node.
	absent DiskState = iota
	// Attaching: the disk is on its way to the node, or is there, and the node has not answered the
	// request to fence another one, or Azure is going to service its VM.
	Attaching
	// Replica: the disk is attached and waits to be promoted.
	Replica
	// primary: the node is the one that may use the volume now.
	primary
)

// weights order the presences: a replica spares the move the wait for Azure, a
// primary also the hand-over, and an attach under way a part of its wait.
var weights = map[DiskState]int64{Attaching: 1, Replica: 3, primary: 4}

// Volume is one of a pod's volumes.
type Volume struct {
	// Name of the AzVolume; "" for a claim that has no disk yet.
	Name string
	// SKU of the disk as its class or its PersistentVolume names it; "" if they do not, or if it
	// may have changed since.
	SKU string
	// Zone is where a disk that does not exist yet has to be created, as in "eastus-1"; "" if the
	// node decides that.
	Zone string
	// Nodes that the disk is at, or on its way to.
	Nodes map[string]DiskState
	// leftBehind are the nodes where a process that outlived its pod may use the volume.
	leftBehind map[string]bool
}

// Avoid says that a process that outlived its pod may use the volume on a node
// (ownership.LeftBehind): the next pod must not start there, however near the disk is. It waits on
// another node until the process has ended.
func (v *Volume) Avoid(node string) {
	if v.leftBehind == nil {
		v.leftBehind = map[string]bool{}
	}
	v.leftBehind[node] = true
}

// Release makes the primary's node equal to one without the disk if another node has the disk or is about to,
// because the volume's claim asks for a change that may have to wait until the primary releases the volume, and
// it does not if the next pod starts on its node.
func (v *Volume) Release() {
	elsewhere := false
	for _, state := range v.Nodes {
		elsewhere = elsewhere || state == Replica || state == Attaching
	}
	for node, state := range v.Nodes {
		if elsewhere && state == primary {
			v.Nodes[node] = absent
		}
	}
}

// mostWithoutAll is the highest score of a node without one of the pod's disks: a move there waits
// for Azure, so a node with a replica of each disk scores more.
const mostWithoutAll = 7

// score rates a node for a pod by the share of all of the pod's volumes that are
// at the node: MinExtenderPriority if none is, MaxExtenderPriority if it is the
// primary of all of them. Any presence at all scores at least one.
func score(node string, volumes []Volume) int64 {
	if len(volumes) == 0 {
		return extenderv1.MinExtenderPriority
	}
	var sum int64
	all := true
	for _, volume := range volumes {
		presence := volume.Nodes[node]
		sum += weights[presence]
		all = all && presence >= Replica
	}
	best := weights[primary] * int64(len(volumes))
	score := (sum*extenderv1.MaxExtenderPriority + best - 1) / best
	if !all {
		return min(score, mostWithoutAll)
	}
	return score
}

// Prioritize rates the nodes, and returns those whose score is not the least: to the scheduler a
// node without a score has none. A node that cannot mount is rated as if nothing were there.
func Prioritize(names []string, volumes []Volume, nodes Nodes) extenderv1.HostPriorityList {
	list := extenderv1.HostPriorityList{}
	near := demandOf(volumes).near
	for _, name := range names {
		if !near[name] {
			continue
		}
		if score := score(name, volumes); score > extenderv1.MinExtenderPriority && nodes.Mountable(name).feasible() {
			list = append(list, extenderv1.HostPriority{Host: name, Score: score})
		}
	}
	return list
}
