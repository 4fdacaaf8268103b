// Package ownership holds the rules of the hand-over: which node may use a volume, and since when (laws 1 to
// 3). The CSI controller acquires and releases the ownership of a volume with Acquire, StartRelease and
// CompleteRelease; the node plug-in asks MayStage before it touches a device. Both halves of the protocol stand
// here so that they are read together; docs/adr/0001-hand-over-protocol.md shows why they never let two nodes
// write.
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

// Acquire decides what a node's claim to be primary makes of the current claim. It returns the claim to write with
// a compare-and-swap; changed is false if the node holds it already. A claim that
// another node has not released is a FailedPrecondition (law 1). The epoch grows beyond that of the current claim, and beyond last; see LastEpoch.
func Acquire(current *apiv1.Ownership, node string, last int64, now time.Time) (claim apiv1.Ownership, changed bool, err error) {
	epoch := int64(0)
	if current != nil {
		epoch = current.Epoch
		if current.State != apiv1.OwnershipReleased && current.NodeName != node {
			return *current, false, provisioner.Errorf(provisioner.FailedPrecondition,
				"node %s is primary (epoch %d, %s) and has not let go of the volume", current.NodeName, current.Epoch, current.State)
		}
		switch {
		case current.State == apiv1.OwnershipHeld:
			return *current, false, nil
		case current.State == apiv1.OwnershipReleasing && current.Cause == apiv1.CauseNodeLost:
			// The disk is being cut off this very node; a new claim would not keep it.
			return *current, false, provisioner.Errorf(provisioner.FailedPrecondition,
				"node %s was lost and is being fenced (epoch %d); it can claim the volume again when that is done", node, current.Epoch)
		}
	}
	return apiv1.Ownership{NodeName: node, Epoch: max(epoch, last) + 1, State: apiv1.OwnershipHeld, Since: moment(now)}, true, nil
}

// StartRelease decides how a node's claim starts to be taken back. holder is false
// if the node does not hold the claim, and there is nothing to take back; changed
// is false if it is being taken back already. The cause NodeLost takes the place of Unpublished, and never the other way round.
func StartRelease(current *apiv1.Ownership, node string, cause apiv1.ReleaseCause, now time.Time) (claim apiv1.Ownership, holder, changed bool) {
	if current == nil || current.State == apiv1.OwnershipReleased || current.NodeName != node {
		return apiv1.Ownership{}, false, false
	}
	since := moment(now)
	if current.State == apiv1.OwnershipReleasing {
		if cause != apiv1.CauseNodeLost || current.Cause == apiv1.CauseNodeLost {
			return *current, true, false
		}
		since = current.Since
	}
	return apiv1.Ownership{NodeName: node, Epoch: current.Epoch, State: apiv1.OwnershipReleasing, Cause: cause, Since: since}, true, true
}

// CompleteRelease returns the claim that follows one that was being released, after the proof.
func CompleteRelease(current apiv1.Ownership, now time.Time) apiv1.Ownership {
	return apiv1.Ownership{Epoch: current.Epoch, State: apiv1.OwnershipReleased, Since: moment(now)}
}

// UnstagedProof returns the proof that a node's report gives of having let go of a
// volume (law 3a), or nil and why it gives none. The report must have been read from the API server after the
// claim was written as Releasing; report is nil if the node has none.
func UnstagedProof(report *apiv1.AzDriverNode, volume string, epoch int64, now time.Time) (proof *apiv1.ReleaseProof, why string) {
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
		Kind: apiv1.ProofUnstaged, Epoch: epoch, Time: metav1.NewTime(now),
		Message: "absent from the report of node " + report.Name,
	}, ""
}

// Releasable says that the attachment of the node that holds a claim can get the proof of the claim's release: it is the primary of the claim. One that is being
// deleted, or that is of a later epoch, is not changed.
func Releasable(claim *apiv1.Ownership, a *apiv1.AzVolumeAttachment) bool {
	return a != nil && (a.DeletionTimestamp != nil || a.Spec.Epoch > claim.Epoch || a.Spec.Epoch == claim.Epoch && a.Spec.Role == apiv1.RolePrimary)
}

// ReportProvesAbsence says whether what a node's report does not name is not in use there: the node plug-in has compared the report with the node's
// mounts, and nothing else has changed it since the node wrote it. Node plug-ins of earlier versions write no digest.
func ReportProvesAbsence(report *apiv1.AzDriverNode) bool {
	written := report.Status.ReportDigest
	return report.Status.MountsScannedTime != nil && (written == "" || written == ReportDigest(report))
}

// ReportDigest is a digest of what a node's report proves: of which object it is the report, and which volumes it names. The node writes it with the
// report. An edit of the entries, or an object that was made again with an older status, does not agree with it.
func ReportDigest(report *apiv1.AzDriverNode) string {
	names := make([]string, 0, len(report.Status.StagedVolumes))
	for _, staged := range report.Status.StagedVolumes {
		names = append(names, staged.VolumeName)
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(string(report.UID) + "\n" + strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:16])
}

// AttachedToAnotherVM says that an attachment is to another VM than the one that a node is now, vmID. Neither may the node use the disk then, nor does its
// report speak for that VM, which may still run. Azure's IDs are not case sensitive.
func AttachedToAnotherVM(attachment *apiv1.AzVolumeAttachment, vmID string) bool {
	return attachment.Status.VMID != "" && !strings.EqualFold(attachment.Status.VMID, vmID)
}

// HasProof says that a proof of release covers an attachment's epoch.
func HasProof(attachment *apiv1.AzVolumeAttachment) bool {
	p := attachment.Status.Proof
	return p != nil && p.Epoch >= attachment.Spec.Epoch
}

// FenceDecided says that the failover has decided to take a multi-node volume from the attachment's node, and that Kubernetes does not know all of it yet.
func FenceDecided(attachment *apiv1.AzVolumeAttachment) bool {
	return slices.Contains(attachment.Finalizers, apiv1.FinalizerFenced)
}

// ProvedReleased says whether an attachment's node can no longer write to the volume under any epoch up to the attachment's.
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
	// A claim is released, and so passes on to another node, only after a proof for
	// its epoch and all before it.
	if last := volume.Status.LastRelease; last != nil && last.Proof.Epoch >= epoch {
		return true
	}
	claim := volume.Status.Primary
	switch {
	case claim.State == apiv1.OwnershipReleased:
		return claim.Epoch >= epoch
	case claim.NodeName != attachment.Spec.NodeName:
		return claim.Epoch > epoch
	default:
		return false
	}
}

// replicaInDoubt says of an attachment that is being deleted and was never a primary by its own record that the AzVolume does not confirm this. An attachment that was
// restored from before a publish says so as well, and its node may write to the volume. An AzVolume that knows of an ownership confirms it, unless that ownership is
// the node's own: then the replica is older than the publish.
func replicaInDoubt(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) bool {
	switch {
	case attachment.DeletionTimestamp == nil:
		return false
	case volume == nil:
		return true
	default:
		return volume.Spec.Access != apiv1.AccessMultiNode && (volume.Status.Primary == nil || OwnedBy(volume, attachment.Spec.NodeName))
	}
}

// OwnedBy says whether the node of an attachment holds the claim, or is letting go of it.
func OwnedBy(volume *apiv1.AzVolume, node string) bool {
	if volume == nil || volume.Status.Primary == nil {
		return false
	}
	claim := volume.Status.Primary
	return claim.State != apiv1.OwnershipReleased && claim.NodeName == node
}

// HasPrimary says whether any node holds the claim or is letting go of it, or, for a multi-node volume, whether any
// attachment is a primary.
func HasPrimary(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) bool {
	if volume.Spec.Access == apiv1.AccessMultiNode {
		return slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.Role == apiv1.RolePrimary && a.DeletionTimestamp == nil
		})
	}
	claim := volume.Status.Primary
	return claim != nil && claim.State != apiv1.OwnershipReleased
}

// AfterRelease is what becomes of the attachment of a node that let go.
type AfterRelease string

// What can become of it.
const (
	// Demote: it stays as a replica, ready for the next move.
	Demote AfterRelease = "Demote"
	// Remove: the disk is detached.
	Remove AfterRelease = "Remove"
)

// Demotion decides what becomes of a released attachment. It stays as a replica if the node is
// known to be well, because it gave the proof itself and was not being fenced meanwhile, and the number of replicas, of which the next primary
// will be one, does not pass what is wanted plus one.
func Demotion(volume *apiv1.AzVolume, released *apiv1.AzVolumeAttachment, all []*apiv1.AzVolumeAttachment) AfterRelease {
	wanted := volume.Spec.MaxMountReplicaCount
	proof := released.Status.Proof
	if wanted == 0 || volume.DeletionTimestamp != nil || released.DeletionTimestamp != nil || volume.Spec.Access == apiv1.AccessMultiNode {
		return Remove
	}
	if proof == nil || proof.Kind != apiv1.ProofUnstaged || released.Status.State == apiv1.AttachmentDetaching {
		return Remove // also where the report came while a fence was cutting the disk off
	}
	if last := volume.Status.LastRelease; last != nil && last.Cause == apiv1.CauseNodeLost &&
		last.NodeName == released.Spec.NodeName && last.Proof.Epoch >= released.Spec.Epoch {
		return Remove // the node spoke after all, but the disk may have been cut off
	}
	others := int32(0)
	for _, a := range all {
		if a.Name != released.Name && a.DeletionTimestamp == nil {
			others++
		}
	}
	if others > wanted {
		return Remove
	}
	return Demote
}

// BeingFenced says whether the volume is being taken from the node because the node was lost.
func BeingFenced(volume *apiv1.AzVolume, node string) bool {
	return OwnedBy(volume, node) && volume.Status.Primary.State == apiv1.OwnershipReleasing && volume.Status.Primary.Cause == apiv1.CauseNodeLost
}

func moment(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// NeverPublished says of a volume that a node does not hold by this driver's records, nil if there is no AzVolume, whether the node may use it all the same: the V1
// driver may have published it, and this driver has published it to nobody since. An AzVolume alone says nothing against that: an expansion
// makes one. A volume that this driver has made was never anybody else's.
func NeverPublished(volume *apiv1.AzVolume) bool {
	if volume == nil {
		return true
	}
	// A multi-node volume has no claim; each node's attachment is its record.
	return volume.Spec.Origin == apiv1.OriginAdopted && (volume.Spec.Access == apiv1.AccessMultiNode || volume.Status.Primary == nil)
}
