package nodehealth

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// AskAfter is for how long a node has been lost when Azure is asked about it although the failover
// takes no volume from it.
const AskAfter = time.Minute

// askIdle is how often Azure is asked about a node from which the failover takes no volume, once it
// has answered.
const askIdle = 5 * time.Minute

// FailedOver reports whether a lost node cannot write to any volume: its failover began, which the
// taint of the Node records, and there is a proof for every volume that the node could use. The
// guard did not hold that failover back, and the proofs confirm it. It is false for a lost node that
// never used a volume, or whose volumes are not released.
func FailedOver(node *corev1.Node, attachments []*apiv1.AzVolumeAttachment) bool {
	return node != nil && HasTaint(node, apiv1.TaintNodeLost) &&
		!slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.Role == apiv1.RolePrimary && !ownership.HasProof(a)
		})
}

// LastWord is what is known about a silent node without the signals of this process.
type LastWord struct {
	// Off says that Azure has reported since the node's last heartbeat that the VM does not run. It
	// stays true while a VM that was started has not sent a heartbeat yet.
	Off bool
	// FailedOver is the result of FailedOver.
	FailedOver bool
}

// Said reports whether Azure or a failover has said the last word about a node that is in this
// state. The fault is then not with the observer. The guard does not hold such a node back, and
// counts it neither as lost nor among all nodes.
func (w LastWord) Said(state State) bool {
	return state == Down || (state == Suspect || state == Lost) && (w.Off || w.FailedOver)
}

// MassGuard reports whether so many nodes seem lost at once that the fault is more likely with the
// observer: at least two, and more than threshold percent of all. Both numbers leave out the nodes
// about which the LastWord is said.
func MassGuard(lost, total, threshold int) (held bool, why string) {
	if lost < 2 || lost*100 <= total*threshold {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d nodes seem lost at once, which is more than %d %%", lost, total, threshold)
}

// Question decides whether Azure is asked about the VM of a silent node.
type Question struct {
	// State of the node, and for how long this process has seen no sign of life.
	State  State
	Silent time.Duration
	// Primary says that a volume may have to be released from the node.
	Primary bool
	// Recalled says that an earlier process has published the node as lost or down, and that Azure
	// has not answered this process yet.
	Recalled bool
	// Doubted says that the guard holds fences back and counts the node.
	Doubted bool
	// Answered is how long ago Azure answered the last question since the last heartbeat; negative
	// if it has not.
	Answered time.Duration
}

// Due reports whether to ask. A node without a primary is asked about because of the others: a node
// that is switched off must not keep the guard closed.
func (q Question) Due() bool {
	switch {
	case q.Primary, q.Recalled, q.Doubted:
		return true
	case !q.State.LostOrDown() || q.Silent < AskAfter:
		return false
	default:
		return q.Answered < 0 || q.Answered >= askIdle
	}
}
