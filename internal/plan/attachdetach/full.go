package attachdetach

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
)

// Slots is what Kubernetes and the driver know of the disks of one node.
type Slots struct {
	// Allocatable is the count in the node's CSINode, below which the scheduler places pods there; nil if there is none.
	Allocatable *int32
	// Occupied is how many disks of the driver take a slot of the VM.
	Occupied int
}

// FullNodes returns the nodes with pods that want the volume whose VM has no slot for its disk.
func (in Input) FullNodes() []string {
	var full []string
	for _, node := range wantedBy(in.Pods) {
		if a := in.attachment(node); a != nil && a.Spec.Role == apiv1.RolePrimary && a.DeletionTimestamp == nil && attachment.LacksSlot(a) {
			full = append(full, node)
		}
	}
	return full
}

// Rejected returns the pods on a full node that are to fail, so that their controllers make others: with VolumeAttachments the
// kubelet does so (KEP-4876). A pod without a controller would not be made again, so it waits. All wait until the CSINode says that the
// node is full; before that the scheduler could place the next pod there again.
func (in Input) Rejected(node string, slots Slots) []*corev1.Pod {
	if slots.Allocatable == nil || int(*slots.Allocatable) > slots.Occupied {
		return nil
	}
	var rejected []*corev1.Pod
	for _, p := range wanting(in.Pods) {
		if p.Spec.NodeName == node && MayReject(p, node) {
			rejected = append(rejected, p)
		}
	}
	return rejected
}

// MayReject says whether a pod on the node has a controller that replaces it, and has not started: no container can have run without
// the volume.
func MayReject(p *corev1.Pod, node string) bool {
	return p.Spec.NodeName == node && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending && metav1.GetControllerOf(p) != nil
}

// RejectedReason is the reason of a pod that was rejected; the kubelet gives the same one.
const RejectedReason = "VolumeAttachmentLimitExceeded"

// RejectedMessage says why the pods that Rejected returns are rejected.
func (in Input) RejectedMessage(volume, node string) string {
	message := fmt.Sprintf("volume %s cannot be attached to node %s", volume, node)
	if a := in.attachment(node); a != nil && a.Status.Error != nil {
		message += ": " + a.Status.Error.Message
	}
	return message
}
