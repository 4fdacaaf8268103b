package scenario

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

// Failover is what became of a workload whose node was lost.
type Failover struct {
	Workload Workload
	Volume   observer.Volume
	// From is the node that was lost, To the one on which the pod ran next.
	From, To string
	// Machines are the nodes to which the disk may be attached.
	Machines []string
	// Old and New are the UIDs of the pods.
	Old, New types.UID
	// OntoReplica says that the disk was attached to To before.
	OntoReplica bool
	// Fencing is how the driver fences From, as its AzVolume said before the fault.
	Fencing string
	// Fault is when the node was lost.
	Fault time.Time
	// LastWrite is the time in the last acknowledged record of the old pod, FirstWrite
	// that in the first of the new one.
	LastWrite, FirstWrite time.Time
	Steps
}

// Steps are when the steps of a failover were first seen from outside. What was not
// seen is zero.
type Steps struct {
	// Unreachable: the driver said that the node is lost, for UnreachableReason. Decided:
	// it began to take the volume from it.
	Unreachable, Decided time.Time
	UnreachableReason    string
	// Proven: it had recorded that the node cannot write any more, by the proof ProofKind.
	Proven    time.Time
	ProofKind string
	// PodDeleted: the old pod's object was gone. NotInUse: the Node's status.volumesInUse
	// was without the volume. Unattached: the VolumeAttachment to the old node was gone.
	PodDeleted, NotInUse, Unattached time.Time
	// Published and Staged: these calls for the new node had succeeded. StageAsked is when
	// the kubelet asked for the latter: before it waits for its own next report, every ten
	// seconds, of the volumes that it uses.
	Published, StageAsked, Staged time.Time
	// Running: the new pod was Running and Ready.
	Running time.Time
}

// Phases are how long the parts of a failover took; a part whose begin or end was not
// seen is 0. Total is not the sum: between the phases Kubernetes has its own work.
type Phases struct {
	// Detect is from the fault until the driver showed that it knows.
	Detect time.Duration
	// Fence is from the decision until the proof was recorded.
	Fence time.Duration
	// Unblock is from the proof until the volume was staged on the new node.
	Unblock time.Duration
	// Total is from the fault until the new pod was Running and Ready.
	Total time.Duration
}

// readSteps finds the steps of the failover among all milestones and calls.
func readSteps(f Failover, marks []observer.Milestone, calls []evidence.Call) Steps {
	at := func(pattern observer.Milestone) observer.Milestone { return observer.First(marks, f.Fault, pattern) }
	unreachable := at(observer.Milestone{Kind: observer.NodeUnreachable, Node: f.From})
	proven := at(observer.Milestone{
		Kind:   observer.ReleaseProven,
		Node:   f.From,
		Volume: f.Volume.Name,
	})
	published, _ := firstSuccess(calls, f, "ControllerPublishVolume", "")
	staged, asked := firstSuccess(calls, f, "NodeStageVolume", f.To)
	return Steps{
		Unreachable:       unreachable.At,
		UnreachableReason: unreachable.Detail,
		Decided: at(observer.Milestone{
			Kind:   observer.FenceDecided,
			Node:   f.From,
			Volume: f.Volume.Name,
		}).At,
		Proven:     proven.At,
		ProofKind:  proven.Detail,
		PodDeleted: at(observer.Milestone{Kind: observer.PodGone, Pod: f.Old}).At,
		NotInUse: at(observer.Milestone{
			Kind:   observer.NotInUse,
			Node:   f.From,
			Volume: f.Volume.Name,
		}).At,
		Unattached: at(observer.Milestone{
			Kind:   observer.NotAttached,
			Node:   f.From,
			Volume: f.Volume.Name,
		}).At,
		Published:  published,
		StageAsked: asked,
		Staged:     staged,
		Running:    at(observer.Milestone{Kind: observer.PodRunning, Pod: f.New}).At,
	}
}

// firstSuccess is the end and the beginning of the first such call for the volume after
// the fault that succeeded, on the node if one is given.
func firstSuccess(calls []evidence.Call, f Failover, method, node string) (ended, began time.Time) {
	for _, c := range calls {
		if c.Method != method || c.Code != "OK" || !strings.EqualFold(c.Volume, f.Volume.Handle) ||
			c.Start.Before(f.Fault) || node != "" && c.Node != node {
			continue
		}
		if end := c.Start.Add(c.Duration); ended.IsZero() || end.Before(ended) {
			ended, began = end, c.Start
		}
	}
	return ended, began
}

// Known is when the driver first showed that it knows of the loss.
func (s Steps) Known() time.Time {
	if s.Unreachable.IsZero() || !s.Decided.IsZero() && s.Decided.Before(s.Unreachable) {
		return s.Decided
	}
	return s.Unreachable
}

// Phases are the durations of the phases of a failover that began with a fault at that time.
func (s Steps) Phases(fault time.Time) Phases {
	decided := s.Decided
	if decided.IsZero() {
		decided = s.Known() // a volume without an ownership
	}
	return Phases{
		Detect:  Between(fault, s.Known()),
		Fence:   Between(decided, s.Proven),
		Unblock: Between(s.Proven, s.Staged),
		Total:   Between(fault, s.Running),
	}
}

// KubeletWait is how long the volume was published to the new node before its kubelet asked
// for it; 0 where it had asked before, as it does without VolumeAttachments.
func (s Steps) KubeletWait() time.Duration { return max(Between(s.Published, s.StageAsked), 0) }

// Between is the time from a to b, 0 unless both are known.
func Between(a, b time.Time) time.Duration {
	if a.IsZero() || b.IsZero() {
		return 0
	}
	return b.Sub(a)
}

// involves reports whether the resource is the failover's disk or one of the machines.
func (f Failover) involves(resource string) bool {
	return Move{Volume: f.Volume, Machines: f.Machines}.involves(resource)
}

// Took is the time from the fault to the new pod Running and Ready.
func (f Failover) Took() time.Duration { return Between(f.Fault, f.Running) }
