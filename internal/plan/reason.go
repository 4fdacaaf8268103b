package plan

// Reasons of conditions and events, and the reasons in logs. Each is used for one thing.
const (
	// Attachments.
	ReasonAttaching        = "Attaching"
	ReasonAttached         = "Attached"
	ReasonAttachFailed     = "AttachFailed"
	ReasonDetaching        = "Detaching"
	ReasonDetached         = "Detached"
	ReasonDetachFailed     = "DetachFailed"
	ReasonVolumeNotReady   = "VolumeNotReady"
	ReasonNodeUnknown      = "NodeUnknown"
	ReasonWaitingForRoom   = "WaitingForRoom"
	ReasonNoRoom           = "NoRoom"
	ReasonPrimaryHeld      = "PrimaryHeld"
	ReasonWaitingForProof  = "WaitingForProof"
	ReasonFencing          = "Fencing"
	ReasonFenced           = "Fenced"
	ReasonReplicaGaveWay   = "ReplicaGaveWay"
	ReasonAttachmentLost   = "AttachmentLost"
	ReasonRoleRepaired     = "RoleRepaired"
	ReasonPrimaryRecreated = "PrimaryRecreated"
	// Volumes.
	ReasonCreating          = "Creating"
	ReasonCreated           = "Created"
	ReasonFilling           = "Filling"
	ReasonCreationFailed    = "CreationFailed"
	ReasonUpdating          = "Updating"
	ReasonUpdated           = "Updated"
	ReasonUpdateFailed      = "UpdateFailed"
	ReasonUpdateRefused     = "UpdateRefused"
	ReasonConverting        = "Converting"
	ReasonConverted         = "Converted"
	ReasonDeleting          = "Deleting"
	ReasonDeletionFailed    = "DeletionFailed"
	ReasonDeletionHeld      = "DeletionHeld"
	ReasonDiskKept          = "DiskKept"
	ReasonForeignDisk       = "ForeignDisk"
	ReasonReplicasAttached  = "ReplicasAttached"
	ReasonReplicasMissing   = "ReplicasMissing"
	ReasonReplicasNotWanted = "ReplicasNotWanted"
	ReasonReplicaPlaced     = "ReplicaPlaced"
	ReasonReplicaSurplus    = "ReplicaSurplus"
	ReasonReplicaNodeLost   = "ReplicaNodeLost"
	ReasonReplicaDrained    = "ReplicaDrained"
	ReasonReplicaMisplaced  = "ReplicaMisplaced"
	ReasonReplicaFailed     = "ReplicaFailed"
	ReasonReplicasExpired   = "ReplicasExpired"
	ReasonVolumeReleased    = "VolumeReleased"
	ReasonVolumeUpdates     = "VolumeUpdates"
	// Nodes.
	ReasonNodeGone = "NodeGone"
)

// Condition types of AzVolume and AzVolumeAttachment.
const (
	ConditionReady            = "Ready"
	ConditionReplicasAttached = "ReplicasAttached"
	ConditionUpdated          = "Updated"
	ConditionAttached         = "Attached"
)
