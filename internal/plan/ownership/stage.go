package ownership

import (
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// StageOutcome is what a node may do with a volume.
type StageOutcome string

// The outcomes.
const (
	// StageAllowed: the node may use the device.
	StageAllowed StageOutcome = "Stage"
	// StageMustWait: the node may use the device once the disk is attached.
	StageMustWait StageOutcome = "Wait"
	// StageRefused: the node is not the one that may use the volume.
	StageRefused StageOutcome = "Refuse"
)

// StageDecision is an outcome with what follows from it.
type StageDecision struct {
	Outcome StageOutcome
	// Epoch of the ownership; set unless the outcome is Refuse.
	Epoch int64
	// LUN of the disk; set if the outcome is Stage.
	LUN int32
	// ReadOnly says that the volume was published to the node for reading only; set if the outcome
	// is Stage.
	ReadOnly bool
	// Exclusive says that Azure listed the disk at no VM outside of this cluster after the attach that
	// is in force; set if the outcome is Stage.
	Exclusive bool
	// Reason for the user, unless the outcome is Stage.
	Reason string
}

// MayStage decides whether a node may use a volume (law 2). It holds only for objects that were read
// at the API server after the node had announced in its report that it will use the volume.
// attachment is nil if there is none.
func MayStage(node, vmID string, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) StageDecision {
	if reason := refusal(node, vmID, volume, attachment); reason != "" {
		return StageDecision{Outcome: StageRefused, Reason: reason}
	}
	epoch := attachment.Spec.Epoch
	switch state := attachment.Status.State; {
	case state == apiv1.AttachmentDetaching || state == apiv1.AttachmentDetachFail:
		return StageDecision{Outcome: StageRefused, Reason: "the disk is being detached from the node"}
	case state == apiv1.AttachmentAttached && attachment.Status.LUN != nil:
		return StageDecision{
			Outcome:   StageAllowed,
			Epoch:     epoch,
			LUN:       *attachment.Status.LUN,
			ReadOnly:  attachment.Spec.ReadOnly,
			Exclusive: attachment.Status.Exclusive,
		}
	case attachment.Status.Error != nil:
		return StageDecision{
			Outcome: StageMustWait,
			Epoch:   epoch,
			Reason:  fmt.Sprintf("the attachment is %s: %s", state, attachment.Status.Error.Message),
		}
	default:
		return StageDecision{
			Outcome: StageMustWait,
			Epoch:   epoch,
			Reason:  fmt.Sprintf("the attachment is %q", state),
		}
	}
}

func refusal(node, vmID string, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) string {
	switch {
	case attachment == nil:
		return fmt.Sprintf("volume %s is not published to node %s", volume.Name, node)
	case attachment.Spec.VolumeName != volume.Name || attachment.Spec.NodeName != node:
		return fmt.Sprintf("attachment %s does not belong to volume %s and node %s", attachment.Name, volume.Name, node)
	case attachment.DeletionTimestamp != nil:
		return fmt.Sprintf("the attachment of volume %s to node %s is being deleted", volume.Name, node)
	case attachment.Spec.Role != apiv1.RolePrimary:
		return fmt.Sprintf("node %s holds a replica of volume %s and is not its primary", node, volume.Name)
	case AttachedToAnotherVM(attachment, vmID):
		return fmt.Sprintf("the disk of volume %s was attached to VM %s, and node %s is VM %s now", volume.Name,
			attachment.Status.VMID, node, vmID)
	}
	if proof := attachment.Status.Proof; HasProof(attachment) {
		return fmt.Sprintf("node %s was proved to have released volume %s under epoch %d (%s)", node, volume.Name, proof.Epoch,
			proof.Type)
	}
	if volume.Spec.Access == apiv1.AccessMultiNode {
		return ""
	}
	primary := volume.Status.Primary
	switch {
	case primary == nil || primary.State == apiv1.OwnershipReleased:
		return fmt.Sprintf("volume %s has no primary", volume.Name)
	case primary.NodeName != node:
		return fmt.Sprintf("node %s is the primary of volume %s", primary.NodeName, volume.Name)
	case primary.State != apiv1.OwnershipHeld:
		return fmt.Sprintf("node %s no longer holds volume %s: its ownership is %s", node, volume.Name, primary.State)
	case attachment.Spec.Epoch != primary.Epoch:
		return fmt.Sprintf("the attachment has epoch %d, and the ownership of volume %s has epoch %d", attachment.Spec.Epoch,
			volume.Name, primary.Epoch)
	}
	return ""
}

// EpochOver returns why the epoch under which a node staged a volume has ended, or "" while it
// lasts. An ownership that is being released lasts until the proof is recorded: the controller
// waits for this node, and a pod that starts before that would otherwise wait for the controller.
// volume and attachment were read at the API server; attachment is nil if there is none.
func EpochOver(node, vmID string, epoch int64, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) string {
	if attachment != nil {
		if AttachedToAnotherVM(attachment, vmID) {
			return fmt.Sprintf("the disk was attached to VM %s, and node %s is VM %s now", attachment.Status.VMID, node, vmID)
		}
		if proof := attachment.Status.Proof; proof != nil && proof.Epoch >= epoch {
			return fmt.Sprintf("node %s was proved to have released the volume under epoch %d (%s)", node, proof.Epoch,
				proof.Type)
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
