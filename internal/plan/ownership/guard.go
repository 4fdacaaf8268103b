package ownership

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// GuardsAgainst returns the node that may be kept from writing to a volume only by the reservation of
// attachment a's node; "" if there is none. As long as there is one, the disk stays attached to a's
// node: Azure does not document that a reservation survives the detach of the disk from the node
// that holds it. all are the attachments of the volume, and a may be among them. volume is nil if
// there is no AzVolume.
//
// A node that was fenced by a pre-emption never has to keep the disk, because another node has its
// reservation. So no two attachments wait for each other.
func GuardsAgainst(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, all []*apiv1.AzVolumeAttachment) string {
	if Preempted(a) {
		return ""
	}
	first := ""
	for _, fenced := range all {
		node := fenced.Spec.NodeName
		if Preempted(fenced) && mayGuard(volume, a, fenced) && (first == "" || node < first) {
			first = node
		}
	}
	return first
}

// mayGuard reports whether the node of an attachment may hold the reservation that keeps a fenced
// node from writing: it took the reservation from that node, or it owned the volume later. If a
// later owner was lost, any node may have been asked to take the reservation from it, and may have
// done so although another proof was recorded. If the volume has had several owners since, nothing
// records which node holds the reservation.
func mayGuard(volume *apiv1.AzVolume, a, fenced *apiv1.AzVolumeAttachment) bool {
	by := fenced.Status.Proof.Preemption
	switch {
	case volume == nil, volume.Status.Primary == nil, by == nil:
		return true
	case by.NodeName == a.Spec.NodeName, a.Spec.Epoch > fenced.Spec.Epoch:
		return true
	}
	// A node that unstages keeps the reservation while a fenced node has the disk, and its
	// attachment may become a replica.
	primary, last := volume.Status.Primary, volume.Status.LastRelease
	return primary.Epoch > fenced.Spec.Epoch+1 ||
		last != nil && last.NodeName == a.Spec.NodeName && last.Proof.Epoch > fenced.Spec.Epoch ||
		primary.Epoch > fenced.Spec.Epoch && FenceDecided(volume, primary.NodeName) ||
		last != nil && last.Cause == apiv1.CauseNodeLost && last.Proof.Epoch > fenced.Spec.Epoch
}
