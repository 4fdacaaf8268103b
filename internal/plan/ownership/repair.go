package ownership

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// RecreateAs decides the role and the epoch with which an attachment is created again that Azure
// has and that has no object. A primary is detached only with a proof, a replica without one; why
// says why it is neither. report is the node's, read from the API server after the volume; nil if
// there is none. That the VM is down is no reason to make a replica: it may be started with its
// mounts (ADR 0033).
//
//	the node owns the volume                                         primary of that epoch
//	the volume has an ownership, which is not the node's             replica: every earlier one ended with a proof. But not if the report names a later one
//	the report proves that the node does not use the volume          replica; but not where the V1 driver may have published the volume
//	a multi-node volume that the report names                        primary: no ownership says which nodes use it
//	else                                                             neither: the disk stays attached until one of these is the case
//
// A multi-node volume has no owner, so that only its unpublish deletes a primary, and that has been
// answered by now where the volume is not in use: an attachment restored as a primary could stay
// for ever. So a report that proves nothing is waited for, and what the V1 driver may have
// published gets its attachment from its unpublish. Law 2 holds without a primary. A node writes
// the volume into its report before it reads its attachment, and the caller has found no attachment
// before it read the report. A node that the report does not name has therefore found its
// attachment missing, or finds a replica; it uses the volume under neither. The next publish makes
// the replica a primary.
func RecreateAs(volume *apiv1.AzVolume, node string, report *apiv1.AzDriverNode, now time.Time) (role apiv1.Role, epoch int64,
	why string) {
	proof, why := UnstagedProof(report, volume.Name, 0, now)
	multiNode := volume.Spec.Access == apiv1.AccessMultiNode
	switch {
	case !multiNode && OwnedBy(volume, node):
		return apiv1.RolePrimary, volume.Status.Primary.Epoch, ""
	case !multiNode && volume.Status.Primary != nil && ReportedUse(volume, report) == "", proof != nil && !Unrecorded(volume):
		return apiv1.RoleReplica, 0, ""
	case multiNode && Reports(report, volume.Name):
		return apiv1.RolePrimary, MultiNodeEpoch, ""
	case Unrecorded(volume):
		return "", 0, "the volume was adopted and not published since, so the node to which the disk is attached may be using it"
	default:
		return "", 0, why
	}
}

// Reports reports whether a node's report names a volume.
func Reports(report *apiv1.AzDriverNode, volume string) bool {
	return report != nil && slices.ContainsFunc(report.Status.StagedVolumes,
		func(s apiv1.StagedVolume) bool { return s.VolumeName == volume })
}

// repairAfter is how long the CSI controller server is given to finish a release
// or an acquisition that it has begun, before the reconciler does it.
const repairAfter = 5 * time.Second

// Repair is what a half-finished hand-over leaves to be done.
type Repair struct {
	// Demote and Remove are attachments whose role Primary has ended.
	Demote, Remove []*apiv1.AzVolumeAttachment
	// Primary is the node whose attachment is missing although the node holds the ownership.
	Primary string
	// Promote is the attachment of the node that holds the ownership, if its role was edited: a
	// replica never has the epoch of an ownership that is Held.
	Promote *apiv1.AzVolumeAttachment
	// In is when to look again.
	In time.Duration
}

// Repairs decides how to complete a hand-over whose process was killed.
func Repairs(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, now time.Time) Repair {
	primary := volume.Status.Primary
	if primary == nil || volume.Spec.Access == apiv1.AccessMultiNode || volume.Leaving() {
		return Repair{}
	}
	var r Repair
	due := func(since *metav1.Time) bool {
		if since == nil {
			return true
		}
		left := since.Add(repairAfter).Sub(now)
		if left > 0 {
			r.In = min(cmp.Or(r.In, left), left)
		}
		return left <= 0
	}
	found := false
	for _, a := range attachments {
		if primary.State == apiv1.OwnershipHeld && a.Spec.NodeName == primary.NodeName {
			found = true
			if a.Spec.Role == apiv1.RoleReplica && a.Spec.Epoch == primary.Epoch && a.DeletionTimestamp == nil && !HasProof(a) &&
				due(primary.LastTransitionTime) {
				r.Promote = a
			}
		}
		if a.Spec.Role != apiv1.RolePrimary || a.DeletionTimestamp != nil || !ProvedReleased(volume, a) {
			continue
		}
		if OwnedBy(volume, a.Spec.NodeName) {
			continue // it carries the proof that the release of the ownership needs
		}
		switch {
		case !due(ended(primary, a)):
		case Demotion(volume, a, attachments) == Demote:
			r.Demote = append(r.Demote, a)
		default:
			r.Remove = append(r.Remove, a)
		}
	}
	if primary.State == apiv1.OwnershipHeld && !found && due(primary.LastTransitionTime) {
		r.Primary = primary.NodeName
	}
	return r
}

// ended is when the role of a former primary ended, or nil for long ago. The time of a later
// ownership does not count: if the volume were acquired and released again and again, the repair
// would be delayed forever.
func ended(primary *apiv1.Ownership, a *apiv1.AzVolumeAttachment) *metav1.Time {
	switch p := a.Status.Proof; {
	case a.Spec.Epoch >= primary.Epoch:
		return primary.LastTransitionTime
	case p != nil && p.Epoch >= a.Spec.Epoch:
		return &p.ProvenTime
	default:
		return nil
	}
}
