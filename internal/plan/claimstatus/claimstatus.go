// Package claimstatus decides what the driver says in events on a PersistentVolumeClaim about its
// volume. The users of a namespace may read neither the AzVolume nor its attachments.
//
// It reads what the driver has recorded in conditions. What a volume waits for has the name that
// package explain and the page on troubleshooting have for it.
package claimstatus

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Input is the input of WaitOf. The objects are only read.
type Input struct {
	Volume      *apiv1.AzVolume
	Attachments []*apiv1.AzVolumeAttachment
	// Claim is bound to the volume.
	Claim *corev1.PersistentVolumeClaim
	// Users are the names of the pods that use the claim. They matter only if it is being deleted.
	Users []string
	// Holder is the AzDriverNode of the node that has the volume; nil if there is none.
	Holder *apiv1.AzDriverNode
}

// attachment returns the attachment to look at for the node that has the volume: of several nodes, the
// first one to which the disk is not attached. It is nil if there is none.
func (in Input) attachment() *apiv1.AzVolumeAttachment {
	all := slices.SortedFunc(slices.Values(in.Attachments), func(a, b *apiv1.AzVolumeAttachment) int {
		return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
	})
	for _, a := range all {
		switch p := in.Volume.Status.Primary; {
		case a.Spec.Role != apiv1.RolePrimary:
		case in.Volume.Spec.Access == apiv1.AccessMultiNode:
			if a.DeletionTimestamp == nil && a.Status.State != apiv1.AttachmentAttached {
				return a
			}
		case p != nil && p.State != apiv1.OwnershipReleased && p.NodeName == a.Spec.NodeName:
			return a
		}
	}
	return nil
}
