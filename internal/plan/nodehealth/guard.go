package nodehealth

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

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
