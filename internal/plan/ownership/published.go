package ownership

import (
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// PublishedTo returns the nodes to which a volume is published, sorted: a publish has succeeded
// there, and no unpublish since. Nodes with replicas are not among them. attachments are the
// volume's. back reports whether a node that was lost is Ready again.
//
// Kubernetes compares the list with its VolumeAttachments and publishes again where they differ, so
// the list follows Kubernetes' side of a hand-over, and not the disk's:
//
//	ownership                         published
//	Held, Azure has not accepted yet  to no node: the publish has not succeeded
//	Held                              to its node
//	Held, and the attach has failed   to no node: a publish returns the error to the pods that wait
//	Releasing                         to its node: the unpublish, or the fence, is not complete
//	Released after an unpublish       to no node
//	Released after a fence            to the lost node until it is Ready again or another node acquires the volume: else
//	                                  Kubernetes would publish it to that node again just before it unpublishes it there.
//	                                  Once the node is Ready again, a pod there that needs the volume has it published
func PublishedTo(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, back func(node string) bool) []string {
	var nodes []string
	if volume.Spec.Access == apiv1.AccessMultiNode {
		for _, a := range attachments {
			if publishedMultiNode(volume, a, back) {
				nodes = append(nodes, a.Spec.NodeName)
			}
		}
		slices.Sort(nodes)
		return nodes
	}
	primary := volume.Status.Primary
	if primary == nil {
		return nil
	}
	switch primary.State {
	case apiv1.OwnershipHeld:
		if slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.NodeName == primary.NodeName && a.Spec.Epoch == primary.Epoch && AttachAccepted(a)
		}) {
			nodes = append(nodes, primary.NodeName)
		}
	case apiv1.OwnershipReleasing:
		nodes = append(nodes, primary.NodeName)
	case apiv1.OwnershipReleased:
		last := volume.Status.LastRelease
		if last != nil && last.Cause == apiv1.CauseNodeLost && !back(last.NodeName) {
			nodes = append(nodes, last.NodeName)
		}
	}
	return nodes
}

// MayPromote reports whether a node can become primary by its attachment without a request to Azure: its disk is
// attached, or Azure has accepted that. a is nil if there is none.
func MayPromote(a *apiv1.AzVolumeAttachment) bool {
	return a != nil && a.DeletionTimestamp == nil && (a.Status.State == apiv1.AttachmentAttached || AttachAccepted(a)) &&
		!Preempted(a) && !Copied(a)
}

// publishedMultiNode is for a volume without an ownership: the attachment is the record.
func publishedMultiNode(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, back func(node string) bool) bool {
	switch {
	case a.Spec.Role != apiv1.RolePrimary:
		return false
	case MultiNodeFenceDecided(a):
		return !back(a.Spec.NodeName)
	case ProvedReleased(volume, a):
		return false
	default:
		return AttachAccepted(a) || a.DeletionTimestamp != nil
	}
}

// AttachAccepted reports whether a primary is attached or that Azure has accepted to attach it,
// which is when a publish succeeds.
func AttachAccepted(a *apiv1.AzVolumeAttachment) bool {
	switch a.Status.State {
	case apiv1.AttachmentAttached:
		return a.Spec.Role == apiv1.RolePrimary
	case apiv1.AttachmentAttaching:
		return a.Spec.Role == apiv1.RolePrimary && a.Status.Operation != nil
	case apiv1.AttachmentPending, apiv1.AttachmentFailed, apiv1.AttachmentDetaching, apiv1.AttachmentDetachFail:
	}
	return false
}
