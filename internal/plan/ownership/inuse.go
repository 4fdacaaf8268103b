package ownership

import (
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// NoLongerUsed reports whether a node no longer uses a volume for which it is still primary: the
// node's report, written after a scan, does not name the volume, and no pod on the node is going to
// use it. pods are the pods that use the volume's PersistentVolumeClaim, on any node.
func NoLongerUsed(volume, node string, report *apiv1.AzDriverNode, pods []*corev1.Pod) bool {
	if proof, _ := UnstagedProof(report, volume, 0, report.CreationTimestamp.Time); proof == nil {
		return false
	}
	for _, p := range pods {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}
