package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// publishing is the input of the driver's decision where a volume is published.
func (f Facts) publishing(v *Volume) publishing.Input {
	return publishing.Input{
		Volume:         v.AzVolume,
		Attachments:    v.Attachments,
		Pods:           v.Pods,
		Report:         func(node string) *apiv1.AzDriverNode { return f.node(node).DriverNode },
		Identity:       f.identity,
		KubernetesLost: func(node string) bool { return nodehealth.KubernetesLost(f.node(node).Node) },
	}
}

// toNode explains why a pod on a node does not have a volume yet.
func (f Facts) toNode(v *Volume, node string) Finding {
	if finding, ok := f.wrong(v); ok {
		return finding
	}
	if finding, ok := f.notInstalled(); ok {
		return finding
	}
	a := attachmentTo(v, node)
	// An attachment of a primary is what csi-attacher has asked for before.
	if f.refusedByAttacher(v) && (a == nil || a.Spec.Role != apiv1.RolePrimary) {
		return f.notAttachable(v, "The pod on node "+node+" waits for the volume.").seen(f.azEvidence(v)...)
	}
	if finding, ok := f.held(v, node); ok {
		return finding
	}
	if finding, ok := f.cannotTake(node); ok {
		return finding
	}
	if finding, ok := f.misplaced(v, node); ok {
		return finding
	}
	if finding, ok := f.refusedMount(); ok {
		return finding
	}
	if v.AzVolume != nil && a != nil {
		decision := ownership.MayStage(node, f.identity(node).VMID, v.AzVolume, a)
		if decision.Outcome == ownership.StageAllowed {
			return f.mounting(v, node, a)
		}
	}
	if finding, ok := f.attachment(a); ok {
		return finding
	}
	return f.unpublished(v, node)
}

func attachmentTo(v *Volume, node string) *apiv1.AzVolumeAttachment {
	i := slices.IndexFunc(v.Attachments, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
	if i < 0 {
		return nil
	}
	return v.Attachments[i]
}

func (f Facts) identity(node string) identity.Identity {
	n := f.node(node)
	return identity.Identify(identity.Node{Node: n.Node, DriverNode: n.DriverNode}, nil)
}

// misplaced is about a volume that Azure never attaches to the VM of the node.
func (f Facts) misplaced(v *Volume, node string) (Finding, bool) {
	if v.AzVolume == nil || f.node(node).DriverNode == nil {
		return Finding{}, false
	}
	id, az := f.identity(node), v.AzVolume
	if !placement.Attachable(az, id.Location, id.Zone) {
		return find(apiv1.ReasonWrongZone, "The disk is in %s, and node %s is in %s.", place(az.Spec.Disk.Location,
			az.Spec.Disk.Zone),
			node,
			place(id.Location, id.Zone)).seen(f.azEvidence(v)...).seen(f.nodeEvidence(node)...), true
	}
	if sku := disk.SKU(az); !f.node(node).DriverNode.Capacity().Takes(sku) {
		return find(apiv1.ReasonSKUNotAttachable, "The disk is a %s disk, which VMs of the size %s of node %s cannot have.", sku,
			f.node(node).DriverNode.Spec.VMSize, node).seen(f.nodeEvidence(node)...), true
	}
	return Finding{}, false
}

func place(location, zone string) string {
	switch {
	case zone != "" && location != "":
		return "zone " + location + "-" + zone
	case zone != "":
		return "zone " + zone
	case location != "":
		return "region " + location + " without a zone"
	}
	return "no zone"
}

// attachment explains the attachment of a node from its condition; ok is false if there is none that
// says more.
func (f Facts) attachment(a *apiv1.AzVolumeAttachment) (Finding, bool) {
	if a == nil || a.Spec.Role != apiv1.RolePrimary {
		return Finding{}, false
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	if c == nil {
		return Finding{}, false
	}
	node := a.Spec.NodeName
	seen := []Evidence{attachmentEvidence(a, c)}
	switch c.Reason {
	case apiv1.ReasonWaitingForAzureQuota:
		return f.waits(apiv1.ReasonWaitingForAzureQuota, seen, "The driver waits until Azure allows the next update of the VM of node %s.", node).
			quoting(c.Message), true
	case apiv1.ReasonWaitingForDiskSlot:
		return f.waits(apiv1.ReasonWaitingForDiskSlot, seen, "Node %s or the disk has no free slot, and a replica is removed for it.", node).
			quoting(c.Message), true
	case apiv1.ReasonNoDiskSlot:
		return find(apiv1.ReasonNoDiskSlot, "There is no free slot for the disk on node %s.", node).quoting(c.Message).
			seen(seen...), true
	case apiv1.ReasonVolumeNotReady:
		return f.waits(apiv1.ReasonVolumeNotReady, seen, "The disk cannot be attached yet.").quoting(c.Message), true
	case apiv1.ReasonNodeUnknown:
		return find(apiv1.ReasonNodeUnknown, "The driver does not know the VM of node %s.", node).quoting(c.Message).
			seen(seen...), true
	case apiv1.ReasonDiskAttachFailed:
		if a.Status.Error != nil {
			return f.failed(a.Status.Error, apiv1.ReasonDiskAttachFailed, "attach the disk to node "+node, transition(c,
				a.CreationTimestamp.Time)).
				seen(seen...), true
		}
	case apiv1.ReasonDiskAttaching:
		if finding, ok := f.driver(""); ok {
			return finding, true
		}
		attaching := find(apiv1.ReasonDiskAttaching, "Azure attaches the disk to node %s.", node).quoting(c.Message).seen(seen...)
		return f.call(attaching, a.Status.Operation, transition(c, a.CreationTimestamp.Time)), true
	case apiv1.ReasonUsedOutsideCluster:
		return find(apiv1.ReasonUsedOutsideCluster, "A VM that is no node of this cluster has the disk.").quoting(c.Message).
			seen(seen...), true
	case apiv1.ReasonYieldsToAnotherCluster, apiv1.ReasonCustodyUnknown, apiv1.ReasonDiskStillDetaching,
		apiv1.ReasonDiskDetachedOutside, apiv1.ReasonVMUnrecorded, apiv1.ReasonStatusRestored:
		return f.waits(apiv1.ReasonDiskAttaching, seen, "The disk is not attached to node %s yet. %s", node,
			cause.Of(c.Reason).Means).quoting(c.Message), true
	case apiv1.ReasonDiskDetaching, apiv1.ReasonVolumeFencing, apiv1.ReasonVolumeFenced:
		return f.call(find(apiv1.ReasonDiskDetaching, "Azure detaches the disk from node %s, and attaches it again if a pod there needs it.", node).
			seen(seen...), a.Status.Operation, transition(c, a.CreationTimestamp.Time)), true
	case apiv1.ReasonDiskDetachFailed:
		if a.Status.Error != nil {
			return f.failed(a.Status.Error, apiv1.ReasonDiskDetachFailed, "detach the disk from node "+node, transition(c,
				a.CreationTimestamp.Time)).
				seen(seen...), true
		}
	}
	return Finding{}, false
}

// waits is a finding of something that the controller of the driver ends.
func (f Facts) waits(id string, seen []Evidence, format string, args ...any) Finding {
	if finding, ok := f.driver(""); ok {
		return finding
	}
	return find(id, format, args...).seen(seen...)
}

func attachmentEvidence(a *apiv1.AzVolumeAttachment, c *metav1.Condition) Evidence {
	e := Evidence{Object: "AzVolumeAttachment " + a.Name, Says: fmt.Sprintf("%s, %s", a.Spec.Role, a.Status.State)}
	if c != nil {
		e.Says += " (" + c.Reason + ")"
		e.Since = moment(c.LastTransitionTime)
	}
	return e
}

// unpublished is for a pod on a node for which the driver has not begun.
func (f Facts) unpublished(v *Volume, node string) Finding {
	if va := v.VolumeAttachment; va != nil && va.Status.AttachError != nil {
		return find(apiv1.ReasonDiskAttachFailed, "The volume of %s cannot be attached to node %s.", v.claim(), node).
			quoting(va.Status.AttachError.Message).
			seen(Evidence{Object: "VolumeAttachment " + va.Name, Says: "attachError", Since: moment(va.Status.AttachError.Time)})
	}
	sidecar := ""
	if f.attachRequired() {
		sidecar = sidecarAttacher
	}
	if finding, ok := f.driver(sidecar); ok {
		return finding
	}
	if e := f.podEvent(eventFailedAttach); e != nil {
		return find(apiv1.ReasonDiskAttachFailed, "The volume of %s cannot be attached to node %s.", v.claim(), node).
			quoting(e.Message).
			seen(f.said(e))
	}
	if finding, ok := f.failedMount(v); ok {
		return finding
	}
	return f.soon(find(apiv1.ReasonPublishing, "The pod is on node %s, and the driver is about to attach the disk there.", node).
		seen(f.azEvidence(v)...), f.placed())
}

// placed is when the pod was placed on its node.
func (f Facts) placed() time.Time {
	if f.Pod == nil {
		return f.Now
	}
	for _, c := range f.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return f.Pod.CreationTimestamp.Time
}

// mounting is for a node that may stage the volume.
func (f Facts) mounting(v *Volume, node string, a *apiv1.AzVolumeAttachment) Finding {
	if finding, ok := f.failedMount(v); ok {
		return finding
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	seen := []Evidence{attachmentEvidence(a, c)}
	if d := f.node(node).DriverNode; d != nil {
		for _, s := range d.Status.StagedVolumes {
			if s.VolumeName == v.AzVolume.Name && s.Epoch == a.Spec.Epoch && s.Phase == apiv1.PhaseStaged {
				return f.degraded(v, find(apiv1.ReasonVolumesReady, "The volume of %s is mounted on node %s.", v.claim(), node)).
					seen(seen...)
			}
		}
	}
	began := f.placed()
	if at := transition(c, began); at.After(began) {
		began = at
	}
	return f.soon(find(apiv1.ReasonMounting, "The disk is attached to node %s, which is about to mount it.", node).seen(seen...),
		began)
}
