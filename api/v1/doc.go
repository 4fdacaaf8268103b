// Package v1 defines the three custom resources through which the parts of the
// driver talk to each other: AzVolume, AzVolumeAttachment and AzDriverNode.
//
// All three are namespaced and live in the namespace azure-disk-csi. They are
// the only state that the driver keeps; everything else is rebuilt from them,
// from Kubernetes and from Azure after a restart.
//
// # Who writes what
//
// The CSI controller server writes the specs of AzVolumes and of primaries' AzVolumeAttachments, and
// the volume reconciler the specs of replicas and what Azure refused of an AzVolume's. Reconcilers
// re-create lost objects. Nearly every status field has one writer; docs/explanation/architecture.md
// lists them. If two write a field, both use compare-and-swap.
//
// # The epoch
//
// AzVolume.status.primary.epoch grows by one each time a node acquires the ownership. A node may
// mount a volume only while the AzVolumeAttachment of that node carries the role Primary and the
// same epoch as the AzVolume.
//
// +kubebuilder:object:generate=true
// +groupName=disk.csi.azure.com
package v1
