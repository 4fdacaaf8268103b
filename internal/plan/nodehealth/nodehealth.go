// Package nodehealth judges the health of nodes on one scale: Healthy, Suspect, Lost or Down.
//
// The Detector is the failure detector of one process, as one state machine without a clock, a lock
// or a client:
//
//	Observation ──See──▶ state of each node ──Step──▶ Judgement of each node
//	     ▲                                       └──▶ the Looks that are due
//	     │                                                    │
//	     └──────── the caller probes, reads and asks ◀────────┘
//
// Judge decides from the Signs of one node that the state sums up; the guard against mass loss holds
// back what follows if too many nodes seem lost at once. Condition publishes a judgement.
//
// Everything else is derived from a judgement: ForReplicas for the placement of replicas, NoReport
// for the release of a volume, Published for processes that read the condition (the scheduler
// extender and the CSI Controller server), and AcquiresLease for a standby.
package nodehealth

import "time"

// State is whether a node can still be running, as one process sees it by its own clock. It is the
// only scale for the health of a node.
type State string

// The states of a node, from the best to the worst.
const (
	// Unknown: nothing has been published about it yet. Judge never returns it.
	Unknown State = "Unknown"
	// Healthy: its last heartbeat is fresh.
	Healthy State = "Healthy"
	// Suspect: its heartbeat is stale, and no second signal says that it is lost.
	Suspect State = "Suspect"
	// Lost: two independent signals say that it is lost.
	Lost State = "Lost"
	// Down: Azure says that the VM is stopped, deallocated or deleted.
	Down State = "Down"
)

// LostOrDown reports whether a node is lost by two signals or by what Azure says.
func (s State) LostOrDown() bool { return s == Lost || s == Down }

// Judgement is a node's health, with the evidence for it.
type Judgement struct {
	State State
	// Since is when the state began.
	Since time.Time
	// SilentFrom is when the process saw the last sign of life, or when it began to observe the
	// node, by its own clock.
	SilentFrom time.Time
	// Evidence explains the state to a user. It does not change while the state does not.
	Evidence string
	// HeldBack is the reason why a node that is Lost or Down must not be fenced; "" if it may be.
	HeldBack string
	// MassLoss says of a node that is Suspect or Lost that it is one of so many at once that the
	// fault may be elsewhere.
	MassLoss bool
	// Stopped says of a Down node that Azure says no more than that its VM is stopped: a guest that
	// hibernates by itself is stopped, too, and continues with its memory. See Off.
	Stopped bool
	// Paused says of a Suspect node that Azure has announced a pause of its VM, which excuses its
	// silence.
	Paused bool
}

// Fence reports whether a fence of the node may begin.
func (j Judgement) Fence() bool { return j.State.LostOrDown() && j.HeldBack == "" }

// Off reports whether nothing runs on the node any more and nothing there will continue, so that the
// pods of every driver may be ended. The driver detaches its own disks from a VM that is stopped
// before it hands them over; another driver's it cannot detach.
func (j Judgement) Off() bool { return j.State == Down && !j.Stopped }

// Guarded reports whether only the guard against mass false alarms keeps the node from being
// fenced.
func (j Judgement) Guarded() bool { return j.State == Lost && j.MassLoss && j.HeldBack != "" }
