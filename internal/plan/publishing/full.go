package publishing

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slots is what Kubernetes and the driver know of the disks of one node.
type Slots struct {
	// Allocatable is the count in the node's CSINode, below which the scheduler places pods there;
	// nil if there is none.
	Allocatable *int32
	// Occupied is how many other disks of the driver take a slot of the VM.
	Occupied int
	// Shared counts the other nodes that use a share of the volume's disk.
	Shared int
}

// Rejected returns the pods that are to fail after a publish to their node found no capacity, so
// that their controllers make others: with VolumeAttachments the kubelet does so (KEP-4876). A pod
// without a controller would not be made again, so it waits. All wait until the CSINode says that
// the node is full; before that the scheduler could place the next pod there again. If it is the
// disk that has no free share, another node does not help.
func (in Input) Rejected(node string, slots Slots) []*corev1.Pod {
	if slots.Allocatable == nil || int(*slots.Allocatable) > slots.Occupied || in.Volume == nil ||
		slots.Shared >= int(max(1, in.Volume.Shares())) {
		return nil
	}
	var rejected []*corev1.Pod
	for _, p := range wanting(in.Pods) {
		if MayReject(p, node) {
			rejected = append(rejected, p)
		}
	}
	return rejected
}

// MayReject reports whether a pod on the node has a controller that replaces it, and has not
// started: no container can have run without the volume.
func MayReject(p *corev1.Pod, node string) bool {
	return p.Spec.NodeName == node && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending &&
		metav1.GetControllerOf(p) != nil
}
