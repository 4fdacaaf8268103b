package observer

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// milestoneKind is a step of a failover.
type milestoneKind string

const (
	// NodeUnreachable: the driver says that the node is lost; Detail is the reason.
	NodeUnreachable milestoneKind = "unreachable"
	// nodeReachable: the driver says that the node is there.
	nodeReachable milestoneKind = "reachable"
	// FenceDecided: the release of the volume is started because its node is lost.
	FenceDecided milestoneKind = "fence decided"
	// ReleaseProven: it is recorded that the node cannot write any more; Detail is the kind of
	// proof.
	ReleaseProven milestoneKind = "proven"
	// PodGone: the pod's object was deleted.
	PodGone milestoneKind = "pod gone"
	// PodRunning: the pod runs and is Ready.
	PodRunning milestoneKind = "pod running"
	// NotInUse: the Node's status does not say any more that it uses the volume.
	NotInUse milestoneKind = "not in use"
	// NotAttached: Kubernetes' attachment of the volume to the node was deleted.
	NotAttached milestoneKind = "not attached"
	// AttachedTo: Kubernetes' attachment of the volume to the node is attached.
	AttachedTo milestoneKind = "attached"
	// TaintedOut: the Node has the out-of-service taint.
	TaintedOut milestoneKind = "tainted"
	// Untainted: the Node does not have that taint any more.
	Untainted milestoneKind = "untainted"
)

// Milestone is a step of a failover at the moment at which a watch showed it. Fields
// that do not belong to the kind are empty.
type Milestone struct {
	At     time.Time
	Kind   milestoneKind
	Node   string
	Volume string // the AzVolume's name
	Pod    types.UID
	Detail string
}

// mark keeps a milestone.
func (o *Observer) mark(m Milestone) {
	m.At = o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.milestones = append(o.milestones, m)
}

// Marks are all milestones so far, in their order.
func (o *Observer) Marks() []Milestone {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.milestones)
}

// First is the first of the milestones from that time on that agrees with what the
// pattern has set, or one with the time zero.
func First(marks []Milestone, from time.Time, pattern Milestone) Milestone {
	for _, m := range marks {
		if !m.At.Before(from) && m.Kind == pattern.Kind &&
			(pattern.Node == "" || pattern.Node == m.Node) &&
			(pattern.Volume == "" || pattern.Volume == m.Volume) &&
			(pattern.Pod == "" || pattern.Pod == m.Pod) {
			return m
		}
	}
	return Milestone{}
}
