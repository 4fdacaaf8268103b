package attaching

// Reasons of the conditions, events and logs of an attachment. Each is used for one thing.
const (
	ReasonAttaching        = "Attaching"
	ReasonAttached         = "Attached"
	ReasonDetaching        = "Detaching"
	reasonDetached         = "Detached"
	ReasonDetachFailed     = "DetachFailed"
	ReasonVolumeNotReady   = "VolumeNotReady"
	ReasonVMUnrecorded     = "VMUnrecorded"
	ReasonStatusRestored   = "StatusRestored"
	ReasonWaitingForSlot   = "WaitingForSlot"
	ReasonWaitingForQuota  = "WaitingForQuota"
	ReasonNoSlot           = "NoSlot"
	ReasonPrimaryHeld      = "PrimaryHeld"
	ReasonWaitingForProof  = "WaitingForProof"
	ReasonFencing          = "Fencing"
	ReasonFenced           = "Fenced"
	ReasonReplicaGaveWay   = "ReplicaGaveWay"
	ReasonAttachmentLost   = "AttachmentLost"
	ReasonRoleRepaired     = "RoleRepaired"
	ReasonPrimaryRecreated = "PrimaryRecreated"
)
