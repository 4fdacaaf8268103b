// Package v1 defines the three custom resources through which the parts of the
// driver talk to each other: AzVolume, AzVolumeAttachment and AzDriverNode.
//
// All three are namespaced and live in the namespace azure-disk-csi. They are
// the only state that the driver keeps; everything else is rebuilt from them,
// from Kubernetes and from Azure after a restart.
//
// # Who writes what
//
// Nearly every field has one writer. Where several are named, each of them writes by
// compare-and-swap:
//
//	AzVolume.spec                     CSI controller server: at creation and adoption, to expand and modify, and the
//	                                  caching mode at publish; volume reconciler (leader): reverts what Azure refused
//	AzVolume.status.primary           CSI controller server: acquire and release; failover (leader): Releasing, for a lost node
//	AzVolume.status.lastRelease,
//	    status.lastReleasedTime       CSI controller server (release)
//	AzVolume.status (the rest)        volume reconciler (leader)
//	AzVolumeAttachment.spec           the CSI controller server when a node acquires or releases the ownership, the volume
//	                                  reconciler for replicas; failover and the node reconciler (leader) re-create what was lost
//	AzVolumeAttachment.status.proof   the CSI controller server, from the node's report; the attachment reconciler, from Azure
//	AzVolumeAttachment.status         attachment reconciler (leader); node reconciler (leader): Pending, where Azure says otherwise
//	AzDriverNode.spec, .status        the node plug-in on that node
//	AzDriverNode.status.heartbeatRequestedTime
//	                                  every replica of the controller, when a probe of the node failed
//	AzDriverNode.status.capacity      node reconciler (leader)
//	AzDriverNode.status.conditions    Ready: the node plug-in; Reachable, Probeable: the controller's judgement of
//	                                  nodes (leader); OutOfService: failover (leader)
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
