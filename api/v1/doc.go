// Package v1 defines the three custom resources through which the parts of the
// driver talk to each other: AzVolume, AzVolumeAttachment and AzDriverNode.
//
// All three are namespaced and live in the namespace azure-disk-csi. After
// a restart everything else is rebuilt from them, from Kubernetes and from Azure.
//
// # Who writes what
//
// docs/explanation/architecture.md lists the functions that write each spec and each status field.
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
