package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// The fields that are indexed.
const (
	// AttachmentVolume and AttachmentNode index AzVolumeAttachments.
	AttachmentVolume = "spec.volumeName"
	AttachmentNode   = "spec.nodeName"
	// PersistentVolumeVolume indexes PersistentVolumes of the driver by the name of their AzVolume.
	PersistentVolumeVolume = "azVolume"
	// PersistentVolumeClaim indexes PersistentVolumes by the PersistentVolumeClaim that they are
	// bound to, as "namespace/name".
	PersistentVolumeClaim = "spec.claimRef"
	// PodClaim indexes Pods by the PersistentVolumeClaims that they use, as "namespace/name".
	PodClaim = "persistentVolumeClaim"
	// PodDisk indexes Pods by the names of the AzVolumes of the disks that they name without a
	// claim.
	PodDisk = "azureDisk"
	// PodNode indexes Pods by the node that they are on.
	PodNode = "spec.nodeName"
	// PodRules indexes Pods that have rules about other pods, all by podRulesKey.
	PodRules    = "rules"
	podRulesKey = "has"
	// VolumePrimary indexes AzVolumes by the node that holds the ownership, also while it is being
	// released.
	VolumePrimary = "status.primary.nodeName"
	// VolumeReplicas indexes the AzVolumes that lack replicas, all by VolumeReplicasMissing.
	VolumeReplicas        = "replicas"
	VolumeReplicasMissing = "missing"
	// AttachmentSlot indexes the AzVolumeAttachments of primaries that wait for a slot, all by
	// AttachmentSlotAwaited.
	AttachmentSlot        = "slot"
	AttachmentSlotAwaited = "awaited"
	// NodeVolume indexes AzDriverNodes by the volumes that they report.
	NodeVolume = "status.stagedVolumes"
	// NodeFence indexes AzDriverNodes by the attachments of lost nodes about which they are asked
	// to fence.
	NodeFence = "spec.requests.fences"
)

// fieldIndex is an index of the objects of a kind by the values of a field.
type fieldIndex struct {
	object client.Object
	field  string
	values client.IndexerFunc
}

func fieldIndexes(driverName string) []fieldIndex {
	return []fieldIndex{
		{&apiv1.AzVolumeAttachment{}, AttachmentVolume, AttachmentVolumeKeys},
		{&apiv1.AzVolumeAttachment{}, AttachmentNode, AttachmentNodeKeys},
		{&corev1.PersistentVolume{}, PersistentVolumeVolume, PersistentVolumeKeys(driverName)},
		{&corev1.PersistentVolume{}, PersistentVolumeClaim, PersistentVolumeClaimKeys},
		{&corev1.Pod{}, PodClaim, PodClaimKeys},
		{&corev1.Pod{}, PodDisk, PodDiskKeys(driverName)},
		{&corev1.Pod{}, PodRules, PodRulesKeys},
		{&corev1.Pod{}, PodNode, PodNodeKeys},
		{&apiv1.AzVolumeAttachment{}, AttachmentSlot, attachmentSlotKeys},
		{&apiv1.AzVolume{}, VolumePrimary, VolumePrimaryKeys},
		{&apiv1.AzVolume{}, VolumeReplicas, VolumeReplicasKeys},
		{&apiv1.AzDriverNode{}, NodeVolume, NodeVolumeKeys},
		{&apiv1.AzDriverNode{}, NodeFence, nodeFenceKeys},
		{&apiv1.AzDriverNode{}, NodeVM, NodeVMKeys},
		{&corev1.Node{}, NodeVM, NodeVMKeys},
	}
}

// AddIndexes adds the indexes of this package. driverName is the CSI driver's.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer, driverName string) error {
	for _, index := range fieldIndexes(driverName) {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// AttachmentVolumeKeys are the keys of the index AttachmentVolume.
func AttachmentVolumeKeys(o client.Object) []string {
	if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
		return []string{a.Spec.VolumeName}
	}
	return nil
}

// AttachmentNodeKeys are the keys of the index AttachmentNode.
func AttachmentNodeKeys(o client.Object) []string {
	if a, ok := o.(*apiv1.AzVolumeAttachment); ok {
		return []string{a.Spec.NodeName}
	}
	return nil
}

// PersistentVolumeKeys are the keys of the index PersistentVolumeVolume.
func PersistentVolumeKeys(driverName string) client.IndexerFunc {
	return func(o client.Object) []string {
		if name := VolumeOf(o, driverName); name != "" {
			return []string{name}
		}
		return nil
	}
}

// PersistentVolumeClaimKeys are the keys of the index PersistentVolumeClaim.
func PersistentVolumeClaimKeys(o client.Object) []string {
	if pv, ok := o.(*corev1.PersistentVolume); ok && pv.Spec.ClaimRef != nil {
		return []string{pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name}
	}
	return nil
}

// VolumeOf returns the name of the AzVolume of a PersistentVolume, or "" for one of another driver.
func VolumeOf(o client.Object, driverName string) string {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok || pv.Spec.CSI == nil || !strings.EqualFold(pv.Spec.CSI.Driver, driverName) {
		return ""
	}
	handle, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle)
	if err != nil { // another driver's kind of handle under this driver's name, which this driver must not touch
		return ""
	}
	return handle.VolumeName()
}

// DiskNamedBy returns the volume handle of a PersistentVolume of the driver, "" for another's. One of
// the in-tree plug-in, which the cache does not have, is the driver's if it has the usual name:
// Kubernetes translates it.
func DiskNamedBy(pv *corev1.PersistentVolume, driverName string) string {
	switch {
	case pv.Spec.CSI != nil && strings.EqualFold(pv.Spec.CSI.Driver, driverName):
		return pv.Spec.CSI.VolumeHandle
	case pv.Spec.AzureDisk != nil && driverName == apiv1.GroupName:
		return pv.Spec.AzureDisk.DataDiskURI
	}
	return ""
}

// PodNodeKeys are the keys of the index PodNode.
func PodNodeKeys(o client.Object) []string {
	if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}
	}
	return nil
}

// VolumePrimaryKeys are the keys of the index VolumePrimary.
func VolumePrimaryKeys(o client.Object) []string {
	if v, ok := o.(*apiv1.AzVolume); ok && v.Status.Primary != nil && v.Status.Primary.NodeName != "" {
		return []string{v.Status.Primary.NodeName}
	}
	return nil
}

// VolumeReplicasKeys are the keys of the index VolumeReplicas.
func VolumeReplicasKeys(o client.Object) []string {
	if v, ok := o.(*apiv1.AzVolume); ok {
		if c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReplicasAttached); c != nil &&
			c.Reason == apiv1.ReasonReplicasMissing {
			return []string{VolumeReplicasMissing}
		}
	}
	return nil
}

// attachmentSlotKeys are the keys of the index AttachmentSlot.
func attachmentSlotKeys(o client.Object) []string {
	if a, ok := o.(*apiv1.AzVolumeAttachment); ok && attaching.WaitsForSlot(a) {
		return []string{AttachmentSlotAwaited}
	}
	return nil
}

// nodeFenceKeys are the keys of the index NodeFence.
func nodeFenceKeys(o client.Object) []string {
	d, ok := o.(*apiv1.AzDriverNode)
	if !ok {
		return nil
	}
	var keys []string
	for _, request := range d.FenceRequests() {
		keys = append(keys, apiv1.AttachmentName(request.VolumeName, request.NodeName))
	}
	return keys
}

// NodeVolumeKeys are the keys of the index NodeVolume.
func NodeVolumeKeys(o client.Object) []string {
	var keys []string
	if d, ok := o.(*apiv1.AzDriverNode); ok {
		for i := range d.Status.StagedVolumes {
			keys = append(keys, d.Status.StagedVolumes[i].VolumeName)
		}
	}
	return keys
}

// PodRulesKeys are the keys of the index PodRules.
func PodRulesKeys(o client.Object) []string {
	if p, ok := o.(*corev1.Pod); ok && placement.HasRules(p) {
		return []string{podRulesKey}
	}
	return nil
}

// PodClaimKeys are the keys of the index PodClaim.
func PodClaimKeys(o client.Object) []string {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var keys []string
	for _, v := range p.Spec.Volumes {
		if claim := ClaimOf(p, v); claim != "" {
			keys = append(keys, p.Namespace+"/"+claim)
		}
	}
	return keys
}

// PodDiskKeys are the keys of the index PodDisk.
func PodDiskKeys(driverName string) client.IndexerFunc {
	return func(o client.Object) []string {
		p, ok := o.(*corev1.Pod)
		if !ok || !strings.EqualFold(driverName, inTreeDriver) {
			return nil
		}
		var keys []string
		for i := range p.Spec.Volumes {
			if disk, ok := DiskOf(&p.Spec.Volumes[i]); ok && !slices.Contains(keys, disk.VolumeName()) {
				keys = append(keys, disk.VolumeName())
			}
		}
		return keys
	}
}

// DiskOf returns the handle of the managed disk that a volume of a pod names without a claim. ok is
// false if it names none.
func DiskOf(v *corev1.Volume) (handle volumehandle.Handle, ok bool) {
	if v.AzureDisk == nil {
		return volumehandle.Handle{}, false
	}
	handle, err := volumehandle.Parse(v.AzureDisk.DataDiskURI) // that of a blob is an address
	return handle, err == nil
}
