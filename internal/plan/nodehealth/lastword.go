package nodehealth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

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
