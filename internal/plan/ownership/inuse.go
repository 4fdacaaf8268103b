package ownership

import (
	"slices"

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

// LeftBehindText is the text about a node, and the volume, for which LeftBehind is true.
const LeftBehindText = "on node %s a process that outlived its pod may still use volume %s: restart the node, or let its " +
	"container runtime end the process"

// LeftBehind reports whether a process may use a volume on a node although the node has no pod with
// the volume any more: the pod was deleted by force, and the container runtime has not ended its
// containers. Kubernetes lets several pods of a node use one volume, so another pod must not start
// there. used says that the API server has a pod on the node with the volume, also one that has
// ended. It must have been read before report: the node reports the end of the last mount before
// the kubelet removes the pod, and so the restart of a pod is never taken for this. report is nil
// if there is none.
//
// The volume of a pod that has ended regularly stays staged for some time, which says nothing.
func LeftBehind(report *apiv1.AzDriverNode, volume string, used bool) bool {
	return !used && report != nil && slices.ContainsFunc(report.Status.StagedVolumes,
		func(s apiv1.StagedVolume) bool { return s.VolumeName == volume && s.Published })
}
