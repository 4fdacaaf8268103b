package v1

// The types of the conditions. Each condition is there from the first visit: Unknown with the reason
// NotYetKnown if nothing is known. True is the healthy status of all but GuardsFencedNodes and Paused. The
// page docs/reference/conditions.md has the statuses and reasons of each; it is made from the table in
// internal/plan/cause.
//
// The conditions of an AzVolume and of an AzVolumeAttachment have the observedGeneration that the writer
// saw. Those of an AzDriverNode have none: they speak of the node, and not of the object's spec, whose
// generation changes with each request to the node. kubectl wait takes no condition for true whose
// observedGeneration is behind.

// Conditions of an AzDriverNode.
const (
	// NodeConditionReady summarises PluginReady, Reachable and VMKnown: it is False if one of them is, and
	// Unknown if another one is. Its reason is theirs, and NodeUsable if it is True. The controller writes it
	// with the condition that has changed.
	NodeConditionReady = "Ready"
	// NodeConditionPluginReady reports whether the node plug-in can stage volumes. Only the node plug-in
	// writes it, so it stays as it was when the node is lost.
	NodeConditionPluginReady = "PluginReady"
	// NodeConditionReachable reports whether the node is there at all, as the controller sees it from
	// outside. Only the controller writes it.
	NodeConditionReachable = "Reachable"
	// NodeConditionProbeable reports whether the controller's probes reach the node, so that a controller
	// that has just started knows what its predecessor had learnt. It is Unknown until a probe was
	// answered. Only the controller writes it. Node plug-ins rely on True with the reason AnswersProbes.
	NodeConditionProbeable = "Probeable"
	// NodeConditionVMKnown reports whether the controller believes which VM the node says to be. Only the
	// controller writes it.
	NodeConditionVMKnown = "VMKnown"
	// NodeConditionUndisturbed reports whether Azure leaves the node's VM alone. It is False from when
	// Azure announces maintenance for which the driver prepares (controller.maintenance) until the
	// maintenance has ended: the node gets no new replicas, and pods are not steered there. Only the
	// controller writes it.
	NodeConditionUndisturbed = "Undisturbed"
	// NodeConditionInService reports whether the Node is free of Kubernetes' out-of-service taint of the
	// controller. False is written before the taint, and True after its removal. Only the controller
	// writes it.
	NodeConditionInService = "InService"
	// NodeConditionFailoverEnabled is False while the Node has the annotation AnnotationFailover with another
	// value than FailoverEnabled: the driver fences the node from no volume by itself. Only the controller
	// writes it.
	NodeConditionFailoverEnabled = "FailoverEnabled"
	// NodeConditionGuards reports whether the node is registered with disks of volumes that it has not
	// staged, because other nodes are fenced from them. Both statuses are healthy. Only the node plug-in
	// writes it.
	NodeConditionGuards = "GuardsFencedNodes"
)

// Conditions of an AzVolume. Only the controller writes them. All are there once the disk exists.
const (
	// VolumeConditionReady reports whether the disk exists, and can be attached.
	VolumeConditionReady = "Ready"
	// VolumeConditionUpdated reports whether the disk is as spec.disk and spec.capacityBytes ask. It is
	// True again after a change that was refused has been reverted; status.refusedSettings and
	// status.refusedCapacity keep the record.
	VolumeConditionUpdated = "Updated"
	// VolumeConditionDiskAsRecorded reports whether the disk is as the driver has made or adopted it. It
	// is False after a read of the disk that found it changed outside the driver.
	VolumeConditionDiskAsRecorded = "DiskAsRecorded"
	// VolumeConditionWritesKept is False for a day after a node could not write all data to the disk.
	VolumeConditionWritesKept = "WritesKept"
	// VolumeConditionUsable is False while a node that has the volume, or is to have it, reports a problem:
	// the volume cannot be used there, or cannot leave the node. The reason is the problem's.
	VolumeConditionUsable = "Usable"
	// VolumeConditionReplicasAttached reports whether all wanted replicas are attached, which may be none.
	// Its message names the nodes that take no replica, and why.
	VolumeConditionReplicasAttached = "ReplicasAttached"
	// VolumeConditionPublished is False when a pod has waited for the volume for longer than 3 s, with the
	// cause as its reason, and True when no pod waits.
	VolumeConditionPublished = "Published"
	// VolumeConditionPaused is True while the AzVolume has the annotation AnnotationPaused with another value
	// than PausedFalse: the driver begins nothing new at Azure for the volume. Both statuses are healthy.
	VolumeConditionPaused = "Paused"
)

// AttachmentConditionAttached, of an AzVolumeAttachment, reports whether the disk is attached to the
// node. It is there from the first write of the status. Only the controller writes it.
const AttachmentConditionAttached = "Attached"
