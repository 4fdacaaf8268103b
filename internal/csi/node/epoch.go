package node

import (
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// epochOver returns why the epoch under which a node staged a volume has ended, or "" while it lasts. An ownership that
// is being released lasts until the proof is recorded: the controller waits for this node, and a pod that starts before
// that would otherwise wait for the controller. volume and attachment were read at the API server; attachment is nil if
// there is none.
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
	primary := volume.Status.Primary
	switch {
	case primary == nil || primary.State == apiv1.OwnershipReleased:
		return "the volume has no primary"
	case primary.NodeName != node:
		return fmt.Sprintf("node %s is the primary", primary.NodeName)
	case primary.Epoch != epoch:
		return fmt.Sprintf("the node now holds the ownership with epoch %d", primary.Epoch)
	}
	return ""
}

// stagingMount describes the mount at the staging path where a volume must be staged.
type stagingMount struct {
	mount provisioner.MountPoint
	// record describes what must be staged. before is the previous record; nil unless it was written in the same boot.
	record nodereport.Record
	before *nodereport.Record
	// fault is the error of a read of the mounted device; nil if the read succeeded.
	fault error
	// elsewhere is another target where the device is mounted.
	elsewhere string
}

// keep says whether the mount is the one that is wanted. If it is not, the caller must unmount it before it mounts the
// device; an error says why neither is possible. The mounts of pods always remain. A mount of a device that was removed
// never works again, because the kernel creates a new device for a new attachment.
func (m stagingMount) keep() (bool, error) {
	ours := m.before != nil && m.before.Device == m.mount.Source
	if m.mount.Source != m.record.Device {
		if m.fault != nil || ours && (m.before.Epoch != m.record.Epoch || m.before.LUN != m.record.LUN) {
			return false, nil
		}
		return false, refuse("refusing to stage volume %s at %s: %s is mounted there, and the volume's device is %s; unmount it first",
			m.record.VolumeName, m.mount.Target, m.mount.Source, m.record.Device)
	}
	if m.fault != nil {
		return false, provisioner.Errorf(provisioner.Unavailable, "cannot use the device of volume %s: it does not answer a read: %w", m.record.VolumeName, m.fault)
	}
	var why string
	switch {
	case m.mount.Sealed && !m.record.ReadOnly:
		why = "its filesystem is read-only"
	case m.record.ReadOnly && !m.mount.Sealed:
		why = "its filesystem is writable, and the volume is published read-only"
	case ours && m.before.Epoch > 0 && m.record.Epoch > m.before.Epoch+1:
		// Each time a node acquires ownership the epoch grows by one. If it has grown by one since the mount, this node
		// acquired it; if it has grown by more, other nodes may have.
		why = fmt.Sprintf("it was mounted under epoch %d, and other nodes may have written since", m.before.Epoch)
	default:
		return true, nil
	}
	if m.elsewhere != "" {
		return false, provisioner.Errorf(provisioner.Unavailable, "%s cannot stay mounted at %s, because %s, and it is still mounted at %s: "+
			"volume %s can be staged again after the pod that uses this mount has ended", m.mount.Source, m.mount.Target, why, m.elsewhere, m.record.VolumeName)
	}
	return false, nil
}
