package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// held explains a volume that another node has; ok is false if none has.
func (f Facts) held(v *Volume, node string) (Finding, bool) {
	in := f.publishing(v)
	wait := publishing.WaitOf(in, node)
	if wait.Key == "" {
		return Finding{}, false
	}
	seen := f.azEvidence(v)
	holder := holderOf(v)
	switch p := v.AzVolume.Status.Primary; {
	case wait.Cause == apiv1.ReasonVolumePaused:
		return f.paused(v, "The pod waits for an attach, and the driver")
	case wait.Cause == apiv1.ReasonDiskDeleting:
		return f.deletion(v), true
	case wait.Cause == apiv1.ReasonHeldByPods:
		return find(wait.Cause, "The volume can be used on one node at a time, and node %s has it: %s there.", holder,
			usedBy(v, holder)).seen(seen...), true
	case p.State == apiv1.OwnershipReleased:
		return f.leftOver(v, node, wait), true
	}
	if finding, ok := f.lost(holder, v, nil); ok {
		return finding, true
	}
	if wait.Fence {
		return f.fencing(v, holder), true
	}
	return f.unstaging(v, holder), true
}

// usedBy says which pods on a node use a volume.
func usedBy(v *Volume, node string) string {
	var names []string
	for _, p := range v.Pods {
		if p.Spec.NodeName == node {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return "a pod runs"
	case 1:
		return "pod " + names[0] + " uses it"
	}
	return "pods " + strings.Join(names, ", ") + " use it"
}

// flushes reports whether a node reports that it is releasing a volume.
func flushes(d *apiv1.AzDriverNode, volume string) bool {
	return slices.ContainsFunc(d.Status.StagedVolumes, func(s apiv1.StagedVolume) bool {
		return s.VolumeName == volume && s.Phase == apiv1.PhaseUnstaging
	})
}

// unstaging is for a holder that is not lost, and from which the volume is to be released.
func (f Facts) unstaging(v *Volume, holder string) Finding {
	n, seen := f.node(holder), f.azEvidence(v)
	seen = append(seen, f.nodeEvidence(holder)...)
	var ends time.Time // of the pods there
	var user string
	for _, p := range v.Pods {
		if p.Spec.NodeName == holder && p.DeletionTimestamp != nil {
			user = p.Name
			if p.DeletionTimestamp.After(ends) {
				ends = p.DeletionTimestamp.Time
			}
		}
	}
	since := f.Now
	if p := v.AzVolume.Status.Primary; p.LastTransitionTime != nil && p.State == apiv1.OwnershipReleasing {
		since = p.LastTransitionTime.Time
	}
	health := nodehealth.Unknown
	if n.DriverNode != nil {
		health, _ = nodehealth.Published(n.DriverNode)
	}
	if finding, ok := f.leftBehind(v, holder); ok {
		return finding.seen(seen...)
	}
	switch {
	case n.Node != nil && !nodehealth.KubeletReady(n.Node) && user != "":
		return find(apiv1.ReasonKubeletDown, "Node %s has the volume, and its kubelet does not run, so pod %s there does not end.", holder, user).
			seen(seen...)
	case n.Node != nil && !nodehealth.KubeletReady(n.Node) && health == nodehealth.Healthy &&
		flushes(n.DriverNode, v.AzVolume.Name):
		return f.endsBy(find(apiv1.ReasonStillMounted, "Node %s has the volume, and is unmounting and flushing it.", holder).
			seen(seen...),
			since.Add(attaching.FlushPatience))
	case n.Node != nil && !nodehealth.KubeletReady(n.Node):
		at := nodehealth.NotReadySince(n.Node)
		if since.After(at) {
			at = since
		}
		deserted := find(apiv1.ReasonKubeletDown, "Node %s has the volume, and its kubelet does not run. No pod there uses the volume, so "+
			"the driver detaches the disk by force.", holder).seen(seen...)
		deserted.Outcome = cause.Waits
		return f.endsBy(deserted, at.Add(attaching.DesertedGrace+usually(apiv1.ReasonDiskDetaching)))
	case health == nodehealth.Suspect:
		return find(apiv1.ReasonNodePluginDown, "Node %s has the volume, and the driver's node plug-in there does not report that it has released it.",
			holder).then("%s", f.lookAtPlugin(holder)).seen(seen...)
	case user != "" && f.Now.After(ends.Add(usually(apiv1.ReasonPodEnding))):
		return f.late(holder, find(apiv1.ReasonPodEndsLate,
			"Node %s has the volume until pod %s there has ended, which should have been at %s.",
			holder, user, f.clock(ends)).seen(seen...))
	case user != "":
		return f.until(find(apiv1.ReasonStillMounted, "Node %s has the volume until pod %s there has ended.", holder, user).
			seen(seen...),
			ends)
	}
	if finding, ok := f.driver(""); ok {
		return finding
	}
	if last := lastPlaced(v, holder); last.After(since) {
		since = last
	}
	return f.soon(find(apiv1.ReasonStillMounted, "Node %s has the volume and is about to unmount it.", holder).seen(seen...),
		since)
}

// leftBehind is for a node where a process that outlived its pod may use a volume.
func (f Facts) leftBehind(v *Volume, node string) (Finding, bool) {
	if v.AzVolume == nil || v.AzVolume.Spec.Access == apiv1.AccessMultiNode || v.ClaimName == "" || f.unread(Pods) {
		return Finding{}, false
	}
	used := slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
	if !ownership.LeftBehind(f.node(node).DriverNode, v.Name, used) {
		return Finding{}, false
	}
	return find(apiv1.ReasonProcessLeftBehind, "On node %s a process may still write to the volume, although its pod is gone: the pod was "+
		"deleted by force, and the container runtime there has not ended it.", node).
		then("restart node %s, or let its container runtime go on; until then no other pod gets the volume", node), true
}

// lastPlaced returns when the last pod that uses the volume was placed on another node than the
// holder.
func lastPlaced(v *Volume, holder string) time.Time {
	var last time.Time
	for _, p := range v.Pods {
		for _, c := range p.Status.Conditions {
			if p.Spec.NodeName != holder && c.Type == corev1.PodScheduled && c.LastTransitionTime.After(last) {
				last = c.LastTransitionTime.Time
			}
		}
	}
	return last
}

// leftOver explains an unshared disk that is being detached from the last node.
func (f Facts) leftOver(v *Volume, node string, wait publishing.Wait) Finding {
	if finding, ok := f.paused(v, "The disk is to be detached from the node that had it before, and the driver"); ok {
		return finding
	}
	for _, a := range v.Attachments {
		if a.Spec.NodeName == node || a.DeletionTimestamp == nil {
			continue
		}
		c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
		seen := attachmentEvidence(a, c)
		if e := a.Status.Error; e != nil {
			return f.failed(e, apiv1.ReasonDiskDetachFailed, "detach the disk from node "+a.Spec.NodeName, transition(c,
				e.FailureTime.Time)).
				seen(seen)
		}
		if c != nil && c.Reason == apiv1.ReasonWaitingForAzureQuota {
			return f.waits(apiv1.ReasonWaitingForAzureQuota, []Evidence{seen}, "The driver waits until Azure allows the next update of the VM of node %s.",
				a.Spec.NodeName).quoting(c.Message)
		}
		if finding, ok := f.driver(""); ok {
			return finding
		}
		return f.call(find(apiv1.ReasonDiskDetaching, "Azure detaches the disk from node %s, which had it before.",
			a.Spec.NodeName).seen(seen), a.Status.Operation, a.DeletionTimestamp.Time)
	}
	return find(apiv1.ReasonDiskDetaching, "%s.", upper(wait.Message))
}

// fencing explains a volume from which its lost holder is being fenced.
func (f Facts) fencing(v *Volume, holder string) Finding {
	a, seen := attachmentTo(v, holder), f.azEvidence(v)
	began := f.Now
	if p := v.AzVolume.Status.Primary; p.LastTransitionTime != nil {
		began = p.LastTransitionTime.Time
	}
	if a == nil {
		return f.soon(find(apiv1.ReasonVolumeFencing, "Node %s was lost, and the driver takes the volume from it.", holder).
			seen(seen...),
			began)
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	seen = append(seen, attachmentEvidence(a, c))
	if e := f.event(KindNode, ofAny, apiv1.ReasonWriteRefused); e != nil {
		return find(apiv1.ReasonWriteRefused, "Node %s was lost, and the cluster refuses a write of the driver.", holder).quoting(e.Message).
			seen(f.said(e))
	}
	switch {
	case ownership.HasProof(a) && a.Status.Proof.Type != apiv1.ProofUnstaged:
		proof := a.Status.Proof
		seen = append(seen, Evidence{
			Object: "AzVolumeAttachment " + a.Name,
			Says:   fmt.Sprintf("proof %s that the node cannot write", proof.Type),
			Since:  moment(proof.ProvenTime),
		})
		return f.soon(find(apiv1.ReasonFailoverProven, "Node %s was lost and cannot write any more. The volume is being released.", holder).
			seen(seen...), proof.ProvenTime.Time)
	case a.Status.Error != nil:
		v := f.failed(a.Status.Error, apiv1.ReasonDiskDetachFailed, "detach the disk from the lost node "+holder, transition(c,
			a.Status.Error.FailureTime.Time))
		return v.seen(seen...)
	case c != nil && c.Reason == apiv1.ReasonGuardsFencedNode:
		return find(apiv1.ReasonGuardsFencedNode, "The disk stays attached to node %s until Azure has detached it from another lost node.", holder).
			quoting(c.Message).seen(seen...)
	}
	if finding, ok := f.driver(""); ok {
		return finding
	}
	return f.call(find(apiv1.ReasonVolumeFencing, "Node %s was lost, and Azure detaches the disk from it by force.", holder).seen(seen...),
		a.Status.Operation, began)
}
