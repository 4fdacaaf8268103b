// Package ownership has the rules of the hand-over: which node may use a volume, and since when
// (laws 1 to 3). The CSI controller acquires and releases the ownership of a volume with Acquire,
// StartRelease and CompleteRelease; the node plug-in asks MayStage before it uses a device. Both
// halves of the protocol are here so that they are read together;
// docs/adr/0001-hand-over-protocol.md shows why they never let two nodes write.
package ownership

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// MultiNodeEpoch is the epoch of every attachment of a multi-node volume.
const MultiNodeEpoch = 1

// Acquire decides about a node's request to be primary. It returns the ownership to write with a
// compare-and-swap; changed is false if the node holds it already. If another node holds an
// ownership that is not released, the error is a FailedPrecondition (law 1). The new epoch is above
// the current ownership's, and above last; see LastEpoch.
func Acquire(current *apiv1.Ownership, node string, last int64, now time.Time) (primary apiv1.Ownership, changed bool,
	err error) {
	epoch := int64(0)
	if current != nil {
		epoch = current.Epoch
		if current.State != apiv1.OwnershipReleased && current.NodeName != node {
			return *current, false, provisioner.Errorf(provisioner.FailedPrecondition,
				"node %s is primary (epoch %d, %s) and has not released the volume", current.NodeName, current.Epoch,
				current.State)
		}
		switch {
		case current.State == apiv1.OwnershipHeld:
			return *current, false, nil
		case current.State == apiv1.OwnershipReleasing && current.Cause == apiv1.CauseNodeLost:
			// The disk is being detached from this node by force; a new epoch would not stop that.
			return *current, false, provisioner.Errorf(provisioner.FailedPrecondition,
				"node %s was lost and is being fenced (epoch %d); it can acquire the volume again when the fence is complete",
				node, current.Epoch)
		}
	}
	return apiv1.Ownership{
		NodeName:           node,
		Epoch:              max(epoch, last) + 1,
		State:              apiv1.OwnershipHeld,
		LastTransitionTime: moment(now),
	}, true, nil
}

// StartRelease decides how the release of a node's ownership starts. holder is false if the node
// does not hold the ownership, so that there is nothing to release; changed is false if the release
// has started already. The cause NodeLost replaces Unpublished, and never the reverse.
func StartRelease(current *apiv1.Ownership, node string, cause apiv1.ReleaseCause, now time.Time) (primary apiv1.Ownership,
	holder, changed bool) {
	if current == nil || current.State == apiv1.OwnershipReleased || current.NodeName != node {
		return apiv1.Ownership{}, false, false
	}
	since := moment(now)
	if current.State == apiv1.OwnershipReleasing {
		if cause != apiv1.CauseNodeLost || current.Cause == apiv1.CauseNodeLost {
			return *current, true, false
		}
		since = current.LastTransitionTime
	}
	return apiv1.Ownership{
		NodeName:           node,
		Epoch:              current.Epoch,
		State:              apiv1.OwnershipReleasing,
		Cause:              cause,
		LastTransitionTime: since,
	}, true, true
}

// CompleteRelease returns the ownership that follows one that was being released, after the proof.
func CompleteRelease(current apiv1.Ownership, now time.Time) apiv1.Ownership {
	return apiv1.Ownership{
		Epoch:              current.Epoch,
		State:              apiv1.OwnershipReleased,
		LastTransitionTime: moment(now),
	}
}

// UnstagedProof returns the proof that a node's report gives of having released a volume (law 3a),
// or nil and why it gives none. The report must have been read from the API server after the
// ownership was written as Releasing; report is nil if the node has none.
func UnstagedProof(report *apiv1.AzDriverNode, volume string, epoch int64, now time.Time) (proof *apiv1.ReleaseProof,
	why string) {
	switch {
	case report == nil:
		return nil, "the node has no AzDriverNode, and so no report"
	case report.Status.MountsScannedTime == nil:
		return nil, "the node plug-in has not yet compared its report with the node's mounts"
	case !ReportProvesAbsence(report):
		return nil, "the report is not as the node wrote it: its status was edited or restored, and the node has not written it since"
	}
	i := slices.IndexFunc(report.Status.StagedVolumes, func(s apiv1.StagedVolume) bool { return s.VolumeName == volume })
	if i >= 0 {
		return nil, "the node reports the volume as " + string(report.Status.StagedVolumes[i].Phase)
	}
	return &apiv1.ReleaseProof{
		Type:       apiv1.ProofUnstaged,
		Epoch:      epoch,
		ProvenTime: metav1.NewTime(now),
		Message:    "absent from the report of node " + report.Name,
	}, ""
}

// Intact reports whether the attachment of the node that holds an ownership is the primary with the
// ownership's epoch, so that the proof of the release can be recorded there. An attachment that is
// being deleted, or that has a later epoch, counts as intact: it is not changed.
func Intact(primary *apiv1.Ownership, a *apiv1.AzVolumeAttachment) bool {
	return a != nil && (a.DeletionTimestamp != nil || a.Spec.Epoch > primary.Epoch || a.Spec.Epoch == primary.Epoch &&
		a.Spec.Role == apiv1.RolePrimary)
}

// ReportProvesAbsence reports whether a volume that a node's report does not name is not in use on
// that node: the node plug-in has compared the report with the node's mounts, and nothing else has
// changed the report since the node wrote it. Node plug-ins of earlier versions write no digest.
func ReportProvesAbsence(report *apiv1.AzDriverNode) bool {
	written := report.Status.ReportDigest
	return report.Status.MountsScannedTime != nil && (written == "" || written == ReportDigest(report))
}

// ReportDigest is a digest of what a node's report proves: which object it belongs to, and which
// volumes it names. The node writes it with the report. It does not match after the entries were
// edited, or after the object was re-created with an older status.
func ReportDigest(report *apiv1.AzDriverNode) string {
	names := make([]string, 0, len(report.Status.StagedVolumes))
	for _, staged := range report.Status.StagedVolumes {
		names = append(names, staged.VolumeName)
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(string(report.UID) + "\n" + strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:16])
}

// AttachedToAnotherVM reports whether an attachment is to another VM than vmID, the VM that the
// node is now. If so, the node may not use the disk, and its report says nothing about the other
// VM, which may still run. Azure's IDs are not case sensitive.
func AttachedToAnotherVM(attachment *apiv1.AzVolumeAttachment, vmID string) bool {
	return attachment.Status.VMID != "" && !strings.EqualFold(attachment.Status.VMID, vmID)
}

// HasProof reports whether a proof of release covers an attachment's epoch.
func HasProof(attachment *apiv1.AzVolumeAttachment) bool {
	p := attachment.Status.Proof
	return p != nil && p.Epoch >= attachment.Spec.Epoch
}

// Preempted reports whether an attachment's node was fenced by taking its reservation, and the disk
// may still be attached to it. The object must not be used again: the disk is being detached by
// force.
func Preempted(attachment *apiv1.AzVolumeAttachment) bool {
	return HasProof(attachment) && attachment.Status.Proof.Type == apiv1.ProofPreempted
}

// MultiNodeFenceDecided reports whether the failover has decided to fence the attachment's node
// from a multi-node volume and has not yet reported all of it to Kubernetes.
func MultiNodeFenceDecided(attachment *apiv1.AzVolumeAttachment) bool {
	return slices.Contains(attachment.Finalizers, apiv1.FinalizerFenced)
}

// ProvedReleased reports whether an attachment's node can no longer write to the volume under any
// epoch up to the attachment's.
func ProvedReleased(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) bool {
	epoch := attachment.Spec.Epoch
	if HasProof(attachment) {
		return true
	}
	if epoch == 0 { // never primary: the node was never allowed to touch it
		return !replicaInDoubt(volume, attachment)
	}
	if volume == nil || volume.Status.Primary == nil || volume.Spec.Access == apiv1.AccessMultiNode {
		return false
	}
	// An ownership is released, so that another node can acquire the volume, only after a proof for
	// its epoch and all epochs before it.
	if last := volume.Status.LastRelease; last != nil && last.Proof.Epoch >= epoch {
		return true
	}
	primary := volume.Status.Primary
	switch {
	case primary.State == apiv1.OwnershipReleased:
		return primary.Epoch >= epoch
	case primary.NodeName != attachment.Spec.NodeName:
		return primary.Epoch > epoch
	default:
		return false
	}
}

// replicaInDoubt says of an attachment that is being deleted and was never a primary by its own
// record that the AzVolume does not confirm this. An attachment that was restored from before a
// publish says so as well, and its node may write to the volume. An AzVolume that knows of an
// ownership confirms it, unless that ownership is the node's own: then the replica is older than
// the publish.
func replicaInDoubt(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) bool {
	switch {
	case attachment.DeletionTimestamp == nil:
		return false
	case volume == nil:
		return true
	default:
		return volume.Spec.Access != apiv1.AccessMultiNode &&
			(volume.Status.Primary == nil || OwnedBy(volume, attachment.Spec.NodeName))
	}
}

// OwnedBy reports whether the node of an attachment holds the ownership, also while it is being
// released.
func OwnedBy(volume *apiv1.AzVolume, node string) bool {
	if volume == nil || volume.Status.Primary == nil {
		return false
	}
	primary := volume.Status.Primary
	return primary.State != apiv1.OwnershipReleased && primary.NodeName == node
}

// HasPrimary reports whether any node holds the ownership or is releasing it, or, for a multi-node
// volume, whether any attachment is a primary.
func HasPrimary(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) bool {
	if volume.Spec.Access == apiv1.AccessMultiNode {
		return slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.Role == apiv1.RolePrimary && a.DeletionTimestamp == nil
		})
	}
	primary := volume.Status.Primary
	return primary != nil && primary.State != apiv1.OwnershipReleased
}

// AfterRelease is what happens to the attachment of a node that has released the volume.
type AfterRelease string

// The outcomes.
const (
	// Demote: the attachment remains as a replica, ready for the next move.
	Demote AfterRelease = "Demote"
	// Remove: the disk is detached.
	Remove AfterRelease = "Remove"
)

// Demotion decides what happens to a released attachment. It remains as a replica if the node is
// known to be healthy, because the node gave the proof itself and was not being fenced at that
// time, and if the number of replicas, with the next primary, is at most the wanted number plus
// one. A node that guards against a fenced one remains whatever their number is.
func Demotion(volume *apiv1.AzVolume, released *apiv1.AzVolumeAttachment, all []*apiv1.AzVolumeAttachment) AfterRelease {
	wanted := volume.WantedReplicas()
	proof := released.Status.Proof
	if wanted == 0 || volume.Leaving() || released.DeletionTimestamp != nil ||
		volume.Spec.Access == apiv1.AccessMultiNode {
		return Remove
	}
	if proof == nil || proof.Type != apiv1.ProofUnstaged || released.Status.State == apiv1.AttachmentDetaching {
		return Remove // also if the report came while a fence was detaching the disk
	}
	if last := volume.Status.LastRelease; last != nil && last.Cause == apiv1.CauseNodeLost &&
		last.NodeName == released.Spec.NodeName && last.Proof.Epoch >= released.Spec.Epoch {
		return Remove // the node reported after all, but the disk may have been detached by force
	}
	others := int32(0)
	for _, a := range all {
		if a.Name != released.Name && a.DeletionTimestamp == nil {
			others++
		}
	}
	if others > wanted && GuardsAgainst(volume, released, all) == "" {
		return Remove
	}
	return Demote
}

// FenceDecided reports whether the failover has decided to fence the node, which was lost, from the
// volume, and the release is not complete. A multi-node volume has no ownership that could say so;
// see MultiNodeFenceDecided.
func FenceDecided(volume *apiv1.AzVolume, node string) bool {
	return OwnedBy(volume, node) && volume.Status.Primary.State == apiv1.OwnershipReleasing &&
		volume.Status.Primary.Cause == apiv1.CauseNodeLost
}

func moment(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// Unrecorded reports whether this driver has never published a volume that the V1 driver may
// have published, so that a node may use it although this driver has no record of it. volume is nil
// if there is no AzVolume. An AzVolume alone does not contradict that, because an expansion creates
// one. The V1 driver never published a volume that this driver has created.
func Unrecorded(volume *apiv1.AzVolume) bool {
	if volume == nil {
		return true
	}
	// A multi-node volume has no ownership; each node's attachment is its record.
	return volume.Spec.Origin == apiv1.OriginAdopted &&
		(volume.Spec.Access == apiv1.AccessMultiNode || volume.Status.Primary == nil)
}
