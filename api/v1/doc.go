// Package v1 defines the three custom resources through which the parts of the
// driver talk to each other: AzVolume, AzVolumeAttachment and AzDriverNode.
//
// All three are namespaced and live in the namespace azure-disk-csi. They are
// the only state that the driver keeps; everything else is rebuilt from them,
// from Kubernetes and from Azure after a restart.
//
// # Who writes what
//
// Every field has one writer:
//
//	AzVolume.spec                     CSI controller server, at creation or adoption
//	AzVolume.status.primary,
//	    status.lastReleasedTime       CSI controller server (claim and release)
//	AzVolume.status (the rest)        volume reconciler (leader)
//	AzVolumeAttachment.spec           whoever moves the role: the CSI controller server
//	                                  for claims and releases, the volume reconciler for replicas
//	AzVolumeAttachment.status.proof   whoever establishes the proof of release, together with the role change
//	AzVolumeAttachment.status         attachment reconciler (leader)
//	AzDriverNode.spec, .status        the node plug-in on that node
//	AzDriverNode.status.capacity      node reconciler (leader)
//
// # The epoch
//
// AzVolume.status.primary.epoch grows by one at every claim. A node may mount a
// volume only while the AzVolumeAttachment of that node carries the role Primary
// and the same epoch as the AzVolume.
//
// +kubebuilder:object:generate=true
// +groupName=disk.csi.azure.com
package v1
