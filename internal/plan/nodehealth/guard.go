package nodehealth

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// FailedOver reports whether a lost node cannot write to any volume: its failover began, which the
// taint of the Node records, and there is a proof for every volume that the node could use. The
// guard did not hold that failover back, and the proofs confirm it. The guard therefore counts such
// a node neither as lost nor among the others. It does count a lost node that never used a volume,
// or whose volumes are not released.
func FailedOver(node *corev1.Node, attachments []*apiv1.AzVolumeAttachment) bool {
	return node != nil && HasTaint(node, apiv1.TaintNodeLost) &&
		!slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.Role == apiv1.RolePrimary && !ownership.HasProof(a)
		})
}

// MassGuard reports whether so many nodes seem lost at once that the fault is more likely with the
// observer: at least two, and more than threshold percent of all. Neither number includes the nodes
// that are FailedOver.
func MassGuard(lost, total, threshold int) (held bool, why string) {
	if lost < 2 || lost*100 <= total*threshold {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d nodes seem lost at once, which is more than %d %%", lost, total, threshold)
}
