package explain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// transition is when a condition last changed, or else otherwise.
func transition(c *metav1.Condition, otherwise time.Time) time.Time {
	if c == nil || c.LastTransitionTime.IsZero() {
		return otherwise
	}
	return c.LastTransitionTime.Time
}

// gone reports whether Azure has said that the disk of a volume that had one does not exist.
func gone(az *apiv1.AzVolume) bool {
	e := az.Status.Error
	return az.Status.State == apiv1.VolumeCreationFailed && e != nil && e.Reason == string(provisioner.NotFound) &&
		(az.Status.DiskID != "" || az.Spec.Origin == apiv1.OriginAdopted || az.Status.PersistentVolume != "")
}

// volumeSubject explains a claim or a PersistentVolume.
func (f Facts) volumeSubject(v *Volume) Finding {
	if finding, ok := f.unbound(v, nil); ok {
		return finding
	}
	if !f.wide() {
		return f.narrowClaim(v)
	}
	if p := v.Waiting(); p != nil {
		if finding, ok := f.lost(p.Spec.NodeName, v, p); ok {
			return finding
		}
		asked := f
		asked.Pod = p
		return asked.toNode(v, p.Spec.NodeName)
	}
	if holder := holderOf(v); holder != "" {
		if finding, ok := f.lost(holder, v, nil); ok {
			return finding
		}
	}
	return f.volume(v)
}

// Waiting returns a pod that is on a node and waits for the volume, nil if none does.
func (v *Volume) Waiting() *corev1.Pod {
	for _, p := range v.Pods {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !started(p) {
			return p
		}
	}
	return nil
}

// narrowClaim explains a bound claim from its own events.
func (f Facts) narrowClaim(v *Volume) Finding {
	if finding, ok := f.notInstalled(); ok {
		return finding
	}
	if e := f.event(KindClaim, apiv1.ReasonFailoverHeldBack); e != nil {
		return find(apiv1.ReasonFailoverHeldBack, "The driver leaves the volume of %s on a lost node.", v.claim()).
			quoting(e.Message).
			seen(f.said(e))
	}
	return find(apiv1.ReasonNotReadable, "The claim is bound, and what happens to its disk is not readable with these rights.").
		seen(v.claimEvidence())
}

// holderOf returns the node that holds a single-node volume; "" if none does.
func holderOf(v *Volume) string {
	if v.AzVolume == nil || v.AzVolume.Status.Primary == nil || v.AzVolume.Status.Primary.State == apiv1.OwnershipReleased {
		return ""
	}
	return v.AzVolume.Status.Primary.NodeName
}

// volume explains a volume by itself, whatever its pods wait for.
func (f Facts) volume(v *Volume) Finding {
	if finding, ok := f.wrong(v); ok {
		return finding
	}
	holder := holderOf(v)
	if finding, ok := f.leftBehind(v, holder); ok {
		return finding.seen(f.azEvidence(v)...)
	}
	healthy := find(apiv1.ReasonNotUsed, "The volume of %s is ready, and no node uses it.", v.claim())
	if holder != "" || ownership.HasPrimary(orEmpty(v.AzVolume), v.Attachments) {
		healthy = find(apiv1.ReasonHealthy, "The volume of %s is in use%s.", v.claim(), onNode(holder))
	}
	return f.degraded(v, healthy)
}

func orEmpty(az *apiv1.AzVolume) *apiv1.AzVolume {
	if az == nil {
		return &apiv1.AzVolume{}
	}
	return az
}

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// wrong is about what is wrong with the disk itself, so that no node can have it.
func (f Facts) wrong(v *Volume) (Finding, bool) {
	az := v.AzVolume
	if pv := v.PersistentVolume; pv != nil && pv.DeletionTimestamp != nil || az != nil && az.Leaving() {
		return f.deletion(v), true
	}
	if az == nil {
		return Finding{}, false
	}
	switch az.Status.State {
	case apiv1.VolumePending, apiv1.VolumeCreating, apiv1.VolumeCreationFailed, "":
		return f.creation(v), true
	case apiv1.VolumeCreated, apiv1.VolumeUpdating, apiv1.VolumeUpdateFailed, apiv1.VolumeDeleting, apiv1.VolumeDeletionFailed:
	}
	return Finding{}, false
}

// deletion explains a volume that is being deleted.
func (f Facts) deletion(v *Volume) Finding {
	if finding, ok := f.paused(v, "The volume is being deleted, and the driver"); ok {
		return finding
	}
	az := v.AzVolume
	if az == nil {
		since := v.PersistentVolume.DeletionTimestamp.Time
		return f.until(find(apiv1.ReasonDiskDeleting, "PersistentVolume %s is being deleted.", v.PersistentVolume.Name).
			seen(Evidence{Object: "PersistentVolume " + v.PersistentVolume.Name, Says: "is being deleted", Since: &since}),
			since)
	}
	if e := az.Status.Error; e != nil && az.Status.State == apiv1.VolumeDeletionFailed {
		c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionReady)
		return f.failed(e, apiv1.ReasonDiskDeletionFailed, "delete disk "+az.Spec.Disk.Name, transition(c, e.FailureTime.Time)).
			seen(f.azEvidence(v)...)
	}
	since := f.Now
	switch {
	case az.DeletionTimestamp != nil:
		since = az.DeletionTimestamp.Time
	case v.PersistentVolume != nil && v.PersistentVolume.DeletionTimestamp != nil:
		since = v.PersistentVolume.DeletionTimestamp.Time
	}
	deleting := find(apiv1.ReasonDiskDeleting, "The volume of %s is being deleted, with its disk.", v.claim())
	if az.DeletionTimestamp != nil && !az.DeletesDisk() && az.Status.DiskID != "" {
		deleting = find(apiv1.ReasonDiskDeleting, "AzVolume %s of %s is being deleted; the disk stays at Azure.",
			az.Name, v.claim())
	}
	return f.until(deleting.seen(f.azEvidence(v)...), since)
}

// degraded returns the finding about a volume that can be used, but is not as requested; otherwise
// healthy.
func (f Facts) degraded(v *Volume, healthy Finding) Finding {
	az := v.AzVolume
	if az == nil {
		return healthy
	}
	if c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionUpdated); c != nil {
		if finding, ok := f.update(v, c); ok {
			return finding
		}
	}
	if finding, ok := f.notMade(v); ok {
		return finding
	}
	c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionReplicasAttached)
	if c != nil && c.Reason == apiv1.ReasonReplicasMissing {
		ready, wanted := int32(0), az.WantedReplicas()
		if r := az.Status.Replicas; r != nil {
			ready, wanted = r.Ready, r.Wanted
		}
		if c.Message == "" { // places were found
			return f.until(find(apiv1.ReasonReplicaAttaching, "%s A replica is being attached%s.", healthy.Sentence,
				replicaOn(v)).
				seen(f.azEvidence(v)...), transition(c, f.Now))
		}
		missing := find(apiv1.ReasonReplicasMissing, "%s It has %d of %d replicas, so its next move is slower.",
			healthy.Sentence, ready, wanted)
		return missing.quoting(c.Message).seen(f.azEvidence(v)...)
	}
	if c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionReady); az.DeletionTimestamp != nil && c != nil &&
		c.Reason == apiv1.ReasonVolumeDeletionHeld {
		healthy = find(apiv1.ReasonVolumeDeletionHeld, "%s AzVolume %s was deleted; the driver keeps it, and the volume works as before.",
			healthy.Sentence, az.Name).quoting(c.Message)
	}
	if c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionWritesKept); c != nil &&
		c.Status == metav1.ConditionFalse {
		healthy = find(apiv1.ReasonDiskFlushFailed, "%s The last data that a pod wrote to it on a former node may be lost.", healthy.Sentence).
			quoting(c.Message)
	}
	return healthy.seen(f.azEvidence(v)...)
}

// asksForGrowth reports whether the claim asks for more than the volume has, and csi-resizer has not
// passed that to the driver.
func asksForGrowth(v *Volume) bool {
	if v.Claim == nil {
		return false
	}
	wanted := v.Claim.Spec.Resources.Requests.Storage()
	return wanted.Cmp(*v.Claim.Status.Capacity.Storage()) > 0 && v.AzVolume.Spec.CapacityBytes < wanted.Value()
}

// notMade explains a change that the claim asks for and that is not made: it was refused, or csi-resizer does
// not pass it to the driver.
func (f Facts) notMade(v *Volume) (Finding, bool) {
	if refusal := refused(v); refusal != nil {
		return find(apiv1.ReasonDiskUpdateRefused, "Azure refuses the change of the disk of %s.", v.claim()).
			quoting(refusal.Message).
			seen(f.azEvidence(v)...), true
	}
	if asksForGrowth(v) {
		return f.driver(sidecarResizer)
	}
	return Finding{}, false
}

// refused returns the refusal of what the claim still asks for; nil if nothing was refused, or the claim asks
// for something else by now. Without the claim the last refusal counts.
func refused(v *Volume) *apiv1.Refusal {
	status, claim := v.AzVolume.Status, v.Claim
	if status.RefusedCapacity != nil && (claim == nil || asksForGrowth(v)) {
		return status.RefusedCapacity
	}
	if status.RefusedSettings != nil && (claim == nil ||
		ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")) {
		return status.RefusedSettings
	}
	return nil
}

// replicaOn names a node to which a replica is being attached.
func replicaOn(v *Volume) string {
	for _, a := range v.Attachments {
		if a.Spec.Role == apiv1.RoleReplica && a.Status.State != apiv1.AttachmentAttached && a.DeletionTimestamp == nil {
			return " to node " + a.Spec.NodeName
		}
	}
	return ""
}

// update explains a change of the disk that is not complete.
func (f Facts) update(v *Volume, c *metav1.Condition) (Finding, bool) {
	az := v.AzVolume
	switch c.Reason {
	case apiv1.ReasonDiskUpdateRefused:
		return find(apiv1.ReasonDiskUpdateRefused, "Azure refuses the change of the disk of %s.", v.claim()).quoting(c.Message).
			seen(f.azEvidence(v)...), true
	case apiv1.ReasonDiskUpdateFailed:
		if e := az.Status.Error; e != nil {
			return f.failed(e, apiv1.ReasonDiskUpdateFailed, "change disk "+az.Spec.Disk.Name, transition(c, e.FailureTime.Time)).
				seen(f.azEvidence(v)...), true
		}
		return find(apiv1.ReasonDiskUpdateFailed, "Azure failed the change of the disk of %s.", v.claim()).quoting(c.Message).
			seen(f.azEvidence(v)...), true
	case apiv1.ReasonDiskUpdating:
		updating := find(apiv1.ReasonDiskUpdating, "The disk of %s is being changed.", v.claim()).quoting(c.Message).
			seen(f.azEvidence(v)...)
		if op := az.Status.Operation; op != nil {
			updating = f.until(updating, op.StartTime.Time)
		}
		return updating, true
	case apiv1.ReasonDiskConverting:
		return find(apiv1.ReasonDiskConverting, "Azure converts the disk of %s in the background. It can be used while that lasts.", v.claim()).
			quoting(c.Message).seen(f.azEvidence(v)...), true
	}
	return Finding{}, false
}

// azEvidence is what the AzVolume says.
func (f Facts) azEvidence(v *Volume) []Evidence {
	az := v.AzVolume
	if az == nil {
		return nil
	}
	all := []Evidence{{Object: "AzVolume " + az.Name, Says: fmt.Sprintf("state %s", az.Status.State)}}
	if p := az.Status.Primary; p != nil {
		says := fmt.Sprintf("ownership %s, epoch %d", p.State, p.Epoch)
		if p.NodeName != "" {
			says = fmt.Sprintf("ownership %s by node %s, epoch %d", p.State, p.NodeName, p.Epoch)
		}
		e := Evidence{Object: "AzVolume " + az.Name, Says: says}
		if p.LastTransitionTime != nil {
			e.Since = &p.LastTransitionTime.Time
		}
		all = append(all, e)
	}
	return all
}
