package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
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
	if finding, ok := f.problem(v); ok {
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
		return asked.ready(asked.toNode(v, p.Spec.NodeName), p.Spec.NodeName)
	}
	if holder := holderOf(v); holder != "" {
		if finding, ok := f.lost(holder, v, nil); ok {
			return finding
		}
	}
	for _, p := range v.Pods {
		if p.Spec.NodeName == "" || p.DeletionTimestamp == nil {
			continue
		}
		asked := f
		asked.Pod, asked.Subject = p, Subject{Kind: KindPod, Namespace: p.Namespace, Name: p.Name}
		if ending := asked.ending(f.node(p.Spec.NodeName), p.Spec.NodeName); ending.Outcome == cause.NeedsAction {
			ending.Sentence = "About pod " + p.Name + ": " + ending.Sentence
			return ending.seen(f.azEvidence(v)...)
		}
	}
	finding := f.volume(v)
	for _, node := range primaries(v) {
		finding = f.ready(finding, node)
	}
	return finding
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
	if e := f.claimEvent(v, apiv1.ReasonFailoverHeldBack); e != nil {
		return find(apiv1.ReasonFailoverHeldBack, "The driver leaves the volume of %s on a lost node.", v.claim()).
			quoting(e.Message).
			seen(f.said(e))
	}
	if e := f.claimEvent(v, apiv1.ReasonDiskUpdatePending); e != nil && claimstatus.AsksForChange(v.Claim) {
		return changesAtRestart(v).quoting(e.Message).seen(f.said(e))
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

// primaries returns the nodes that use a volume. A raw block volume can have several.
func primaries(v *Volume) []string {
	if holder := holderOf(v); holder != "" {
		return []string{holder}
	}
	var nodes []string
	for _, a := range v.Attachments {
		if a.Spec.Role == apiv1.RolePrimary && a.DeletionTimestamp == nil && a.Status.State == apiv1.AttachmentAttached {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return nodes
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
	if pv := v.PersistentVolume; pv != nil && pv.DeletionTimestamp != nil && !bound(pv) || az != nil && az.Leaving() {
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

// bound reports whether a claim is bound to the PersistentVolume. Kubernetes keeps such a volume.
func bound(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeBound }

// kept explains a volume that works, and whose PersistentVolume is on its way out; ok is false for all others.
func (f Facts) kept(v *Volume, healthy Finding) (Finding, bool) {
	pv := v.PersistentVolume
	if pv == nil || v.AzVolume == nil {
		return Finding{}, false
	}
	deletes := pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	inUse := ownership.HasPrimary(v.AzVolume, v.Attachments)
	switch {
	case pv.DeletionTimestamp != nil && bound(pv) && (f.attachRequired() || f.unread(CSIDrivers)):
		return f.notAttachable(v, healthy.Sentence+" Pods that use it go on."), true
	case pv.DeletionTimestamp != nil && bound(pv):
		goes := "The disk stays at Azure then (policy Retain)."
		if deletes {
			goes = "Then its disk is deleted too."
		}
		kept := find(apiv1.ReasonPersistentVolumeTerminating, "%s PersistentVolume %s was deleted, and Kubernetes keeps it until the claim "+
			"is deleted. %s", healthy.Sentence, pv.Name, goes)
		if !deletes {
			return kept.then("nothing"), true
		}
		return kept.then("%s", strings.ReplaceAll(kept.Next, "NAME", pv.Name)), true
	case inUse && deletes && (pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed):
		released := find(apiv1.ReasonVolumeReleasedInUse, "%s Its claim is gone and its reclaim policy is Delete: the disk is deleted when "+
			"the pods end.", healthy.Sentence)
		return released.then("%s", strings.ReplaceAll(released.Next, "NAME", pv.Name)), true
	}
	return Finding{}, false
}

// refusedByAttacher reports whether csi-attacher attaches the volume to no node, because its PersistentVolume was
// deleted while a claim is bound to it.
func (f Facts) refusedByAttacher(v *Volume) bool {
	pv := v.PersistentVolume
	return f.attachRequired() && pv != nil && pv.DeletionTimestamp != nil && bound(pv)
}

// notAttachable explains a volume that csi-attacher attaches to no node; begins is how the answer begins. Without
// the CSIDriver it is not known whether Kubernetes asks csi-attacher.
func (f Facts) notAttachable(v *Volume, begins string) Finding {
	pv := v.PersistentVolume
	finding := find(apiv1.ReasonPersistentVolumeNotAttachable,
		"%s PersistentVolume %s was deleted while %s is bound to it, and Kubernetes attaches it to no node any more.", begins,
		pv.Name, v.claim())
	if f.unread(CSIDrivers) {
		finding.Outcome = cause.CannotTell
		finding.Sentence += " It still does if the CSIDriver says attachRequired: false, which is not readable with these rights."
	}
	return finding.seen(Evidence{Object: "PersistentVolume " + pv.Name, Says: "is being deleted",
		Since: moment(*pv.DeletionTimestamp)})
}

// deletion explains a volume that is being deleted.
func (f Facts) deletion(v *Volume) Finding {
	if finding, ok := f.paused(v, "The volume is being deleted, and the driver"); ok {
		return finding
	}
	az := v.AzVolume
	if az == nil {
		since := v.PersistentVolume.DeletionTimestamp.Time
		return f.soon(find(apiv1.ReasonDiskDeleting, "PersistentVolume %s is being deleted.", v.PersistentVolume.Name).
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
	return f.call(deleting.seen(f.azEvidence(v)...), az.Status.Operation, since)
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
	kept, ok := f.kept(v, healthy)
	if ok && kept.Outcome == cause.NeedsAction {
		return kept.seen(f.azEvidence(v)...)
	}
	c := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionReplicasAttached)
	if c != nil && c.Reason == apiv1.ReasonReplicasMissing {
		ready, wanted := int32(0), az.WantedReplicas()
		if r := az.Status.Replicas; r != nil {
			ready, wanted = r.Ready, r.Wanted
		}
		if a := comesFree(v); a != nil {
			return f.call(find(apiv1.ReasonReplicaAttaching, "%s A replica follows when the disk is detached from node %s.", healthy.Sentence,
				a.Spec.NodeName).seen(f.azEvidence(v)...), a.Status.Operation, a.DeletionTimestamp.Time)
		}
		if c.Message == "" { // places were found
			return f.replicaAttaching(v, healthy, transition(c, f.Now))
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
	if ok && healthy.ID != apiv1.ReasonDiskFlushFailed {
		healthy = kept
	}
	return healthy.seen(f.azEvidence(v)...)
}

func changesAtRestart(v *Volume) Finding {
	return find(apiv1.ReasonDiskUpdatePending, "The disk of %s is changed when its pod restarts.", v.claim())
}

// ChangeWaits reports whether a change of the disk of the claim that was asked about waits for the next restart
// of its pods, whatever else there is to say about the claim.
func (f Facts) ChangeWaits() bool {
	return slices.ContainsFunc(f.Volumes, func(v *Volume) bool {
		if v.AzVolume != nil {
			_, pending := disk.Pending(v.AzVolume)
			return pending
		}
		return v.Claim != nil && claimstatus.AsksForChange(v.Claim) && f.claimEvent(v, apiv1.ReasonDiskUpdatePending) != nil
	})
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

// comesFree returns an attachment that is being detached, and whose share of the disk is the only one that a
// replica can get; nil if there is none.
func comesFree(v *Volume) *apiv1.AzVolumeAttachment {
	var leaves *apiv1.AzVolumeAttachment
	taken := 0
	for _, a := range v.Attachments {
		if a.Status.State != apiv1.AttachmentFailed {
			taken++
		}
		if a.DeletionTimestamp != nil && a.Status.Error == nil {
			leaves = a
		}
	}
	if taken < int(v.AzVolume.Shares()) {
		return nil
	}
	return leaves
}

// notMade explains a change that the claim asks for and that is not made: it was refused, or csi-resizer does
// not pass it to the driver.
func (f Facts) notMade(v *Volume) (Finding, bool) {
	refusal, failed := refused(v), f.claimEvent(v, eventResizeFailed, apiv1.ReasonVolumeModifyFailed)
	quoting := func(finding Finding) Finding {
		switch {
		case failed != nil:
			finding = finding.quoting(failed.Message).seen(f.said(failed))
		case refusal != nil:
			finding = finding.quoting(refusal.Message)
		}
		return finding.seen(f.azEvidence(v)...)
	}
	growth := asksForGrowth(v)
	if refusal != nil {
		return find(apiv1.ReasonDiskUpdateRefused, "The change of the disk of %s is refused.", v.claim()).
			quoting(refusal.Message).
			seen(f.azEvidence(v)...), true
	}
	switch {
	case asksForClass(v) && v.AttributesClassMissing:
		return f.noAttributesClass(v), true
	case asksForClass(v) && (modifyFailed(v) || failed != nil && failed.Reason == apiv1.ReasonVolumeModifyFailed):
		return quoting(find(apiv1.ReasonVolumeModifyFailed, "The settings of VolumeAttributesClass %s are refused for %s.",
			*v.Claim.Spec.VolumeAttributesClassName, v.claim())), true
	case growth || asksForClass(v):
		if finding, ok := f.driver(sidecarResizer); ok {
			return finding, true
		}
		return quoting(find(apiv1.ReasonDiskUpdating, "%s asks for a change, which csi-resizer has not brought to the driver yet.",
			upper(v.claim())).then("nothing: csi-resizer repeats the request")), true
	}
	return Finding{}, false
}

// asksForClass reports whether the claim asks for another VolumeAttributesClass than it has.
func asksForClass(v *Volume) bool {
	return v.Claim != nil && ptr.Deref(v.Claim.Spec.VolumeAttributesClassName, "") != "" &&
		*v.Claim.Spec.VolumeAttributesClassName != ptr.Deref(v.Claim.Status.CurrentVolumeAttributesClassName, "")
}

// modifyFailed reports whether csi-resizer has recorded that the class cannot be applied.
func modifyFailed(v *Volume) bool {
	s := v.Claim.Status.ModifyVolumeStatus
	return s != nil && s.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible
}

// AsksForChange reports whether the volume's claim asks for what the volume does not have, so that its
// events matter.
func (v *Volume) AsksForChange() bool {
	return asksForClass(v) || v.AzVolume != nil && asksForGrowth(v)
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

// replicaAttaching explains a volume whose replica has a place since a time, with the attachment's own reason.
func (f Facts) replicaAttaching(v *Volume, healthy Finding, since time.Time) Finding {
	for _, a := range v.Attachments {
		if a.Spec.Role != apiv1.RoleReplica || a.DeletionTimestamp != nil || a.Status.State == apiv1.AttachmentAttached ||
			a.Status.State == apiv1.AttachmentFailed {
			continue
		}
		c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
		finding := find(apiv1.ReasonReplicaAttaching, "%s A replica is being attached to node %s.", healthy.Sentence,
			a.Spec.NodeName).seen(f.azEvidence(v)...).seen(attachmentEvidence(a, c))
		if c != nil {
			finding = finding.quoting(c.Message)
		}
		return f.call(finding, a.Status.Operation, since)
	}
	attaching := find(apiv1.ReasonReplicaAttaching, "%s A replica is being attached.", healthy.Sentence)
	return f.soon(attaching.seen(f.azEvidence(v)...), since)
}

// update explains a change of the disk that is not complete.
func (f Facts) update(v *Volume, c *metav1.Condition) (Finding, bool) {
	az := v.AzVolume
	switch c.Reason {
	case apiv1.ReasonDiskUpdateRefused:
		return find(apiv1.ReasonDiskUpdateRefused, "The change of the disk of %s is refused.", v.claim()).quoting(c.Message).
			seen(f.azEvidence(v)...), true
	case apiv1.ReasonDiskUpdatePending:
		return changesAtRestart(v).quoting(c.Message).seen(f.azEvidence(v)...), true
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
