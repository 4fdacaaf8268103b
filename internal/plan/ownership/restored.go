package ownership

import (
	"fmt"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// An AzVolume that was lost and adopted again, or restored from a backup without its status or with
// an old one, does not know the earlier ownerships. The attachments and the node reports still do.
// No node acquires the volume against what they say (laws 1 and 3).

// LastEpoch returns the last epoch that the attachments of a volume know of.
func LastEpoch(attachments []*apiv1.AzVolumeAttachment) int64 {
	last := int64(0)
	for _, a := range attachments {
		last = max(last, a.Spec.Epoch)
		if p := a.Status.Proof; p != nil {
			last = max(last, p.Epoch)
		}
	}
	return last
}

// OlderThan reports whether an AzVolume is from before an attachment: its ownership is written
// before the attachment gets the epoch. It is an old copy, or was restored.
func OlderThan(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) bool {
	return volume.Spec.Access != apiv1.AccessMultiNode &&
		(volume.Status.Primary == nil || volume.Status.Primary.Epoch < a.Spec.Epoch) && a.Spec.Epoch > 0
}

// UnreleasedElsewhere returns the attachments of other nodes under which a volume may be in use,
// although the AzVolume would let a node acquire it: the AzVolume does not know of their release.
// Each needs a proof before the ownership is written.
func UnreleasedElsewhere(volume *apiv1.AzVolume, node string,
	attachments []*apiv1.AzVolumeAttachment) []*apiv1.AzVolumeAttachment {
	return slices.DeleteFunc(slices.Clone(attachments), func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.NodeName == node || ProvedReleased(volume, a)
	})
}

// ReportCounts reports whether the report of an attachment's node, read now, can prove that the
// node released the volume (law 3a): the attachment is being deleted, the release is not proved,
// and the node does not own the volume under this attachment. The node has not been allowed to
// stage the volume since the deletion.
func ReportCounts(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) bool {
	return a.DeletionTimestamp != nil && !ProvedReleased(volume, a) && (a.Spec.Epoch == 0 || !OwnedBy(volume, a.Spec.NodeName)) &&
		(volume == nil || volume.Spec.Access != apiv1.AccessMultiNode)
}

// ReportedUse says why a node may be using a volume although its AzVolume does not know it, by the
// node's report alone; "" if it does not. d is nil for a node without a report. The report is
// believed only of a node to whose VM the disk is attached: else any node could prevent others from
// acquiring a volume.
func ReportedUse(volume *apiv1.AzVolume, d *apiv1.AzDriverNode) string {
	primary := volume.Status.Primary
	if d != nil {
		for i := range d.Status.StagedVolumes {
			s := &d.Status.StagedVolumes[i]
			if s.VolumeName == volume.Name && (primary == nil || s.Epoch > primary.Epoch) {
				return fmt.Sprintf("it reports the volume as %s under epoch %d", s.Phase, s.Epoch)
			}
		}
	}
	switch {
	case primary != nil:
		return ""
	case d == nil:
		return "it has no AzDriverNode, and so no report"
	case d.Status.MountsScannedTime == nil:
		return "its node plug-in has not yet compared its report with the node's mounts"
	}
	return ""
}
