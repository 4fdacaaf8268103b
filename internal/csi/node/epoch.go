package node

import (
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// epochOver returns why the epoch under which a node staged a volume has ended, or "" while it lasts. A claim that is being released
// lasts until the proof: the controller waits for this node, and a pod that comes meanwhile would wait for the controller. volume and
// attachment were read at the API server; attachment is nil if there is none.
func epochOver(node, vmID string, epoch int64, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) string {
	if attachment != nil {
		if ownership.AttachedToAnotherVM(attachment, vmID) {
			return fmt.Sprintf("the disk was attached to VM %s, and node %s is VM %s now", attachment.Status.VMID, node, vmID)
		}
		if proof := attachment.Status.Proof; proof != nil && proof.Epoch >= epoch {
			return fmt.Sprintf("node %s was proved to have released the volume under epoch %d (%s)", node, proof.Epoch, proof.Kind)
		}
	}
	if volume.Spec.Access == apiv1.AccessMultiNode {
		if attachment == nil {
			return fmt.Sprintf("the volume is not published to node %s", node)
		}
		return ""
	}
	claim := volume.Status.Primary
	switch {
	case claim == nil || claim.State == apiv1.OwnershipReleased:
		return "the volume has no primary"
	case claim.NodeName != node:
		return fmt.Sprintf("node %s is the primary", claim.NodeName)
	case claim.Epoch != epoch:
		return fmt.Sprintf("the claim is of epoch %d", claim.Epoch)
	}
	return ""
}

// stagingMount is what is mounted at a staging path at which a volume is to be staged.
type stagingMount struct {
	mount provisioner.MountPoint
	// record of what is to be staged, and the record before it, which is nil unless it is of the same boot.
	record nodereport.Record
	before *nodereport.Record
	// fault is what a read of the mounted device failed with.
	fault error
	// elsewhere is another target where the device is mounted.
	elsewhere string
}

// keep says whether the mount is the one that is wanted. If it is not, it must be taken away before the device is mounted; an error says
// why neither can be done. The mounts of pods stay in any case. Those of a device that is gone never come alive: the kernel gives a new
// attachment a new device.
func (m stagingMount) keep() (bool, error) {
	ours := m.before != nil && m.before.Device == m.mount.Source
	if m.mount.Source != m.record.Device {
		if m.fault != nil || ours && (m.before.Epoch != m.record.Epoch || m.before.LUN != m.record.LUN) {
			return false, nil
		}
		return false, refuse("%s is mounted at %s, and the volume's device is %s", m.mount.Source, m.mount.Target, m.record.Device)
	}
	if m.fault != nil {
		return false, provisioner.Errorf(provisioner.Unavailable, "the device of volume %s does not answer: %w", m.record.VolumeName, m.fault)
	}
	var why string
	switch {
	case m.mount.Sealed && !m.record.ReadOnly:
		why = "its filesystem takes no writes"
	case m.record.ReadOnly && !m.mount.Sealed:
		why = "its filesystem takes writes, and it is published for reading only"
	case ours && m.before.Epoch > 0 && m.record.Epoch > m.before.Epoch+1:
		// Each claim counts, so only a claim of this node followed directly on the one of the mount.
		why = fmt.Sprintf("it was mounted under epoch %d, and other nodes may have written since", m.before.Epoch)
	default:
		return true, nil
	}
	if m.elsewhere != "" {
		return false, provisioner.Errorf(provisioner.Unavailable, "%s cannot stay mounted at %s, because %s, and it is still mounted at %s: "+
			"volume %s is staged again when the pod there has ended", m.mount.Source, m.mount.Target, why, m.elsewhere, m.record.VolumeName)
	}
	return false, nil
}
