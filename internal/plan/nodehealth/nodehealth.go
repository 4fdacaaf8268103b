// Package nodehealth judges whether a node is healthy, silent, lost or down, and whether a standby may take the
// lease of a leader on a lost node.
package nodehealth

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// State is whether a node can still be running, as one process sees it by its own clock.
type State string

// The judgements of a node. (Lost without a prefix is a Health.)
const (
	// Alive: it was heard of lately.
	Healthy State = "Alive"
	// Silent: its heartbeat is stale, and nothing else speaks against it.
	Suspect State = "Silent"
	// NodeLost: two independent signals speak against it.
	Lost State = "Lost"
	// Down: Azure says that the VM is stopped, deallocated or gone.
	Down State = "Down"
)

const (
	// missedHalves is how many half intervals may pass without a heartbeat before a node counts as silent: two
	// heartbeats are missing then, and the third is on its way if there is one. Silence alone does nothing, so it may be short.
	missedHalves = 5
	// FailedProbes is how many probes in a row must fail before they count.
	FailedProbes = 3
	// ReplicaGrace is how long a node may be lost before its replicas are replaced: a reboot shall cost no writes at Azure.
	ReplicaGrace = time.Minute
	// UnreadyGrace is how long the kubelet of a node that is there may be not ready before the replicas are replaced: a kubelet that does
	// not come back after an update must not cost a cluster its replicas at once.
	UnreadyGrace = 5 * time.Minute
)

// LongestPromise is the longest interval between heartbeats that a node is believed to promise. A node that promises more is judged, and judged by, as if it
// promised this: else one node could keep itself from ever being late, and an observer that is cut off from finding out by all nodes being late at once.
const LongestPromise = 5 * time.Minute

// Promise returns the interval between heartbeats that a node is believed to promise; 0 for none.
func Promise(seconds int32) time.Duration {
	return min(time.Duration(max(seconds, 0))*time.Second, LongestPromise)
}

// Judgement is what is held of a node.
type Judgement struct {
	State State
	// Since is when the state began.
	Since time.Time
	// SilentFrom is when the last sign of life was seen, or when the process began to look, by its own clock.
	SilentFrom time.Time
	// Evidence says why, for people. It does not change while nothing happens.
	Evidence string
	// HeldBack says why the node must not be fenced although it is Lost or Down; "" if it may be.
	HeldBack string
	// MassLoss says of a node that is Silent or Lost that it is one of so many at once that the fault may be elsewhere.
	MassLoss bool
}

// Fence says whether a fence may be begun on this verdict.
func (v Judgement) Fence() bool { return (v.State == Lost || v.State == Down) && v.HeldBack == "" }

// Guarded says that only the guard against mass false alarms keeps a node from being fenced.
func (v Judgement) Guarded() bool { return v.State == Lost && v.MassLoss && v.HeldBack != "" }

// Signs are the signs of life of one node.
type Signs struct {
	// SilentFrom is when the last sign of life was seen, or the clock was started again.
	SilentFrom time.Time
	// Silence is for how long after that the API server answered without a new heartbeat.
	Silence time.Duration
	// Patience is the age at which the heartbeat is stale; see Patience.
	Patience time.Duration
	// WasSilent says that the node was not judged Alive before, and was not heard of since.
	WasSilent bool
	// Contact says that the API server answers this process at present.
	Contact bool
	// Confirmed says that the API server itself, and not a cache, still showed the old heartbeat when it was stale.
	Confirmed bool
	// ProbeWorks says that probes have reached this node before. ProbeFailures counts those in a row that failed since the last heartbeat.
	ProbeWorks    bool
	ProbeFailures int
	// LeaseDuration of the kubelet's lease, and for how long it was not renewed; 0 if that is not known.
	LeaseDuration, LeaseAge time.Duration
	// Power and VMGone are Azure's word, asked for since the last heartbeat; Power is "" if there is none.
	Power  provisioner.PowerState
	VMGone bool
}

// Judge decides whether a node is alive. Two independent signals are needed to call it lost: a stale heartbeat, and failed
// probes or, where probes never reached it, the kubelet's lease. Azure's word needs no second signal.
func Judge(s Signs) (state State, evidence string) {
	down := s.VMGone || s.Power == provisioner.PowerStopped || s.Power == provisioner.PowerDeallocated
	if !down && !s.WasSilent && s.Silence <= s.Patience {
		return Healthy, "the heartbeat is fresh"
	}
	since := "no heartbeat since " + s.SilentFrom.UTC().Format(time.RFC3339)
	switch {
	case s.VMGone:
		return Down, since + "; Azure knows no such VM"
	case down:
		return Down, since + "; Azure says that the VM is " + string(s.Power)
	case !s.Contact:
		return Suspect, since + "; the API server does not answer this controller"
	case s.Silence <= s.Patience:
		return Suspect, since + "; the API server was out of reach in the meantime"
	}
	second, why := secondSignal(s)
	switch {
	case !second:
		return Suspect, since + "; " + why
	case !s.Confirmed:
		return Suspect, since + "; " + why + "; not yet confirmed by the API server"
	}
	return Lost, since + "; " + why
}

// secondSignal says whether a stale heartbeat is borne out by another sign, and why.
func secondSignal(s Signs) (second bool, why string) {
	switch {
	case s.ProbeWorks && s.ProbeFailures >= FailedProbes:
		return true, fmt.Sprintf("%d probes in a row failed", FailedProbes)
	case s.ProbeWorks && s.ProbeFailures > 0:
		return false, "a probe failed"
	case s.ProbeWorks:
		return false, "the node answers probes"
	case s.LeaseDuration > 0 && s.LeaseAge > s.LeaseDuration:
		return true, fmt.Sprintf("the kubelet has not renewed its lease for %s", s.LeaseDuration)
	case s.LeaseDuration > 0:
		return false, "probes never reached the node, and the kubelet's lease has not run out"
	default:
		return false, "probes never reached the node, and nothing is known of the kubelet's lease"
	}
}

// Patience is the age at which a heartbeat is stale.
func Patience(staleAfter time.Duration, promisedSeconds int32) time.Duration {
	return max(staleAfter, missedHalves*Promise(promisedSeconds)/2)
}

// Lateness is the age at which a heartbeat is half an interval late, and other signs of life are looked for.
func Lateness(staleAfter time.Duration, promisedSeconds int32) time.Duration {
	if promisedSeconds <= 0 {
		return staleAfter / 2
	}
	return 3 * Promise(promisedSeconds) / 2
}

// FailedOver says of a lost node that nothing there is at stake any more: its failover began, which the taint of the Node records, and of every volume that the node
// could use there is the proof that it cannot write. The guard has let such a node pass, and Azure has confirmed the outcome, so that it neither counts as one of many that seem lost
// at once nor among those that are left. A lost node that never used a volume, or whose volumes are left alone, counts.
func FailedOver(node *corev1.Node, attachments []apiv1.AzVolumeAttachment) bool {
	return node != nil && HasTaint(node, apiv1.TaintNodeLost) && !slices.ContainsFunc(attachments, func(a apiv1.AzVolumeAttachment) bool {
		return a.Spec.Role == apiv1.RolePrimary && !ownership.HasProof(&a)
	})
}

// MassGuard says whether so many nodes seem lost at once that the fault is more likely with the observer: at least two, and more than threshold percent of
// all. Neither number has the nodes that are FailedOver.
func MassGuard(lost, total, threshold int) (held bool, why string) {
	if lost < 2 || lost*100 <= total*threshold {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d nodes seem lost at once, which is more than %d %%", lost, total, threshold)
}

// HasTaint says whether a Node has a taint of the key, with any effect.
func HasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// KubeletReady says whether Kubernetes holds a Node Ready.
func KubeletReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// NotReadySince returns since when a Node is not Ready; the zero time if it is Ready, or if there is no Node.
func NotReadySince(n *corev1.Node) time.Time {
	if n == nil || KubeletReady(n) {
		return time.Time{}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return n.CreationTimestamp.Time
}
