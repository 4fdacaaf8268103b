package scenario

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// milestoneKind is a step of a failover.
type milestoneKind string

const (
	// nodeUnreachable: the driver says that the node is lost; Detail is the reason.
	nodeUnreachable milestoneKind = "unreachable"
	// nodeReachable: the driver says that the node is there.
	nodeReachable milestoneKind = "reachable"
	// fenceDecided: the claim of the volume is taken back because its node is lost.
	fenceDecided milestoneKind = "fence decided"
	// releaseProven: it is recorded that the node cannot write any more; Detail is the kind of proof.
	releaseProven milestoneKind = "proven"
	// podGone: the pod is no more.
	podGone milestoneKind = "pod gone"
	// podRunning: the pod runs and is Ready.
	podRunning milestoneKind = "pod running"
	// notInUse: the Node's status says no more that it uses the volume.
	notInUse milestoneKind = "not in use"
	// notAttached: Kubernetes' attachment of the volume to the node is no more.
	notAttached milestoneKind = "not attached"
	// attachedTo: Kubernetes' attachment of the volume to the node is attached.
	attachedTo milestoneKind = "attached"
	// taintedOut: the Node has the out-of-service taint.
	taintedOut milestoneKind = "tainted"
	// untainted: it has it no more.
	untainted milestoneKind = "untainted"
)

// milestone is a step of a failover at the moment at which a watch showed it. Fields
// that do not belong to the kind are empty.
type milestone struct {
	At     time.Time
	Kind   milestoneKind
	Node   string
	Volume string // the AzVolume's name
	Pod    types.UID
	Detail string
}

// mark keeps a milestone.
func (o *observer) mark(m milestone) {
	m.At = o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.milestones = append(o.milestones, m)
}

// marks are all milestones so far, in their order.
func (o *observer) marks() []milestone {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.milestones)
}

// first is the first of the milestones from that time on that agrees with what the
// pattern has set, or one with the time zero.
func first(marks []milestone, from time.Time, pattern milestone) milestone {
	for _, m := range marks {
		if !m.At.Before(from) && m.Kind == pattern.Kind &&
			(pattern.Node == "" || pattern.Node == m.Node) &&
			(pattern.Volume == "" || pattern.Volume == m.Volume) &&
			(pattern.Pod == "" || pattern.Pod == m.Pod) {
			return m
		}
	}
	return milestone{}
}
