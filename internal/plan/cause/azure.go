package cause

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

var ofAzure = group(groupAzure,
	Cause{ID: apiv1.ReasonThrottled, Outcome: Waits,
		Seen: []string{"TooManyRequests", "OperationThrottled"},
		Means: "Azure asks the driver to slow down. If this is frequent, other clients use up the limits of the " +
			"subscription.",
		Next: "nothing: the driver repeats the request"},
	Cause{ID: apiv1.ReasonAzureUnavailable, Outcome: Waits,
		Means: "Azure has failed, or could not be reached. If this lasts, look at Azure's status and the " +
			"controller's network.",
		Next: "nothing: the driver repeats the request"},
	Cause{ID: apiv1.ReasonQuotaExceeded, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonQuotaExceeded, "ResourceQuotaExceeded"},
		Means: "The quota of the subscription for disks is used up.",
		Next:  "ask Azure for a larger quota, or delete disks that are not needed"},
	Cause{ID: apiv1.ReasonSKUNotAvailable, Outcome: NeedsAction,
		Seen:  []string{"SkuNotAvailable"},
		Means: "Azure does not offer the SKU in this region or zone, or not to this subscription.",
		Next:  "use a StorageClass with another SKU, or another zone"},
	Cause{ID: apiv1.ReasonNoCapacityAtAzure, Outcome: NeedsAction,
		Seen:  []string{"AllocationFailed", "ZonalAllocationFailed"},
		Means: "Azure has no capacity for this in the zone at present.",
		Next:  "try again later, or use another zone or SKU. The driver repeats the request"},
	Cause{ID: apiv1.ReasonUnauthenticated, Outcome: NeedsAction,
		Seen:  []string{"InvalidAuthenticationToken", "ExpiredAuthenticationToken"},
		Means: "Azure does not accept the driver's credentials.",
		Next:  "renew the credentials of the driver"},
	Cause{ID: apiv1.ReasonPermissionMissing, Outcome: NeedsAction,
		Seen:  []string{"AuthorizationFailed", "LinkedAuthorizationFailed"},
		Means: "The driver's identity lacks a permission at Azure. Azure's text names the action and the scope.",
		Next:  "assign the role of the driver at that scope (azuredisk azure-role prints it)"},
	Cause{ID: apiv1.ReasonDenyAssignment, Outcome: NeedsAction,
		Seen: []string{"DenyAssignmentAuthorizationFailed"},
		Means: "A deny assignment forbids it, as AKS puts one on the node resource group with node resource group " +
			"lockdown.",
		Next: "turn the lockdown off (AKS Automatic always has it, and only AKS's own driver can attach disks " +
			"there); if Azure names the group of the disks, create disks in another one"},
	Cause{ID: apiv1.ReasonScopeLocked, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonScopeLocked},
		Means: "A lock at Azure forbids the change.",
		Next:  "remove the lock that Azure names"},
	Cause{ID: apiv1.ReasonPolicyRefused, Outcome: NeedsAction,
		Seen:  []string{"RequestDisallowedByPolicy"},
		Means: "A policy at Azure forbids it.",
		Next:  "change the StorageClass so that it follows the policy, or exempt the resource group"},
	Cause{ID: apiv1.ReasonRefusedByDriver, Outcome: NeedsAction,
		Seen: []string{apiv1.ReasonDiskAttachFailed, apiv1.ReasonDiskCreationFailed, apiv1.ReasonDiskUpdateFailed},
		Means: "The driver refuses the request itself, by a rule of Azure or because of what it found, as the message says. " +
			"Azure has refused nothing.",
		Next: "do what the message says"},
	Cause{ID: apiv1.ReasonNotFoundAtAzure, Outcome: NeedsAction,
		Seen:  []string{"ResourceNotFound", "ResourceGroupNotFound"},
		Means: "Something that the request names does not exist at Azure.",
		Next:  "look at what Azure names"},
)

var ofMounts = group(groupMount,
	Cause{ID: apiv1.ReasonFilesystemMismatch, Outcome: NeedsAction, On: []Object{OnPod},
		Seen: []string{apiv1.ReasonFailedMount},
		Means: "The disk does not hold the filesystem that is recorded for the volume, or another one than was " +
			"requested, and the driver neither mounts nor formats it.",
		Next: "find out what has written to the disk. The data may be another volume's"},
	Cause{ID: apiv1.ReasonReservedElsewhere, Outcome: NeedsAction, On: []Object{OnPod},
		Seen:  []string{apiv1.ReasonFailedMount},
		Means: "Another cluster or another program has reserved the disk.",
		Next:  "end what uses the disk there; only if nothing does, remove the reservation with sg_persist or nvme"},
	Cause{ID: apiv1.ReasonFailedMount, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonFailedMount, "FailedMapVolume"},
		Means: "The disk is attached, and the node cannot mount it. The event says why.",
		Next:  "do what the event says"},
	Cause{ID: apiv1.ReasonFilesystemDamaged, Outcome: NeedsAction, On: volumeAndUsers,
		Seen: []string{apiv1.ReasonFailedMount},
		Means: "The filesystem is damaged, and e2fsck does not repair it without questions, so the driver does not mount " +
			"it.",
		Next: "take a snapshot, leave the pod waiting, and repair the filesystem on that node, as the guide " +
			"repair-a-filesystem says. The kubelet mounts the volume within two minutes after that"},
	Cause{ID: apiv1.ReasonNodeDiskFull, Outcome: NeedsAction, On: volumeAndUsers,
		Seen: []string{apiv1.ReasonFailedMount},
		Means: "The node's own disk is full or read-only, so the node plug-in cannot keep its record of the volume. It " +
			"neither mounts nor releases a volume without one.",
		Next: "free space on the node's disk, below the kubelet's directory"},
	Cause{ID: apiv1.ReasonOtherVolumeNotMounted, Outcome: NeedsAction,
		Seen: []string{apiv1.ReasonFailedMount},
		Means: "A volume of the pod that is not the driver's, such as a ConfigMap, cannot be mounted, so the pod does not start. " +
			"The event says why. The disk is not the reason.",
		Next: "do what the event says"},
	Cause{ID: apiv1.ReasonMounting, Outcome: Waits, Usually: 2 * time.Minute,
		Means: "The disk is attached, and the node is about to mount it."},
)

// volumeAndUsers have the causes that nodes report: as a condition of the AzVolume, and in events on its claim and
// its pods.
var volumeAndUsers = []Object{OnVolume, OnPod}

var ofUses = group(groupUse,
	Cause{ID: apiv1.ReasonFilesystemTakesNoWrites, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "The kernel has made the filesystem read-only, or has shut it down, after an error of the disk. Each write " +
			"fails until it is mounted again.",
		Next: "delete the pod, so that the filesystem is checked and mounted again. If it happens again, look for the " +
			"disk's errors in the kernel's log of that node"},
	Cause{ID: apiv1.ReasonFilesystemFrozen, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "A program on the node, most often a backup, has frozen the filesystem and has not ended that. Each write " +
			"waits, and a process that waits so cannot be killed.",
		Next: "if no backup is running, run fsfreeze --unfreeze on that node, at the path that the message names"},
	Cause{ID: apiv1.ReasonDeviceGone, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "The device of the volume has disappeared from the node, or the pod still uses one that was replaced.",
		Next:  "delete the pod, so that the disk is attached and mounted again"},
	Cause{ID: apiv1.ReasonReadFailed, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "The device of the volume fails reads, or does not answer them within five seconds.",
		Next: "look at the disk and the VM at Azure. If it does not end, delete the pod, and keep it off that node " +
			"(kubectl cordon)"},
)

var ofDisks = group(groupDisk,
	Cause{ID: apiv1.ReasonDiskUpdating, Outcome: Waits, On: []Object{OnVolume}, Usually: 2 * time.Minute,
		Means: "The disk is being changed, or the change waits."},
	Cause{ID: apiv1.ReasonDiskConverting, Outcome: Waits, On: []Object{OnVolume},
		Means: "Azure converts the disk to another SKU in the background. It can be used while that lasts."},
	Cause{ID: apiv1.ReasonDiskUpdateFailed, Outcome: NeedsAction, On: []Object{OnVolume},
		Means: "Azure failed the change of the disk. The driver repeats it.",
		Next:  "remove what Azure names"},
	Cause{ID: apiv1.ReasonDiskUpdateRefused, Outcome: NeedsAction, On: []Object{OnVolume},
		Means: "Azure, or one of its rules that the driver knows, refused the change of the disk permanently.",
		Next:  "request a change that Azure allows, or the present state again"},
	Cause{ID: apiv1.ReasonDiskUpdatePending, Outcome: NeedsAction, On: []Object{OnVolume},
		Seen: []string{"VolumeResizeFailed", apiv1.ReasonVolumeModifyFailed},
		Means: "The claim asks for a change that Azure makes to a shared disk only while it is attached nowhere, and a node uses " +
			"the volume. The driver makes it when the volume is released next, before another node gets it. csi-resizer repeats the " +
			"request until then.",
		Next: "nothing, if it can wait until the pod moves. To have it now: kubectl azuredisk apply-pending claim NAME. Meanwhile the pod " +
			"is without its volume for as long as a detach and an attach take"},
	Cause{ID: apiv1.ReasonVolumeModifyFailed, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonVolumeModifyFailed},
		Means: "The driver or Azure refused the settings of the VolumeAttributesClass that the claim names. The event says why.",
		Next:  "correct what the event names, or give the claim its former VolumeAttributesClass again"},
	Cause{ID: apiv1.ReasonReplicaAttaching, Outcome: Waits, Usually: time.Minute,
		Seen:  []string{apiv1.ReasonReplicaPlaced, apiv1.ReasonReplicasMissing},
		Means: "The volume works, and a replica is being attached to another node."},
	Cause{ID: apiv1.ReasonReplicasMissing, Outcome: NeedsAction, On: []Object{OnVolume},
		Means: "Fewer replicas are attached than wanted, and the message says why for each node. The volume works; " +
			"a move or a failover is slower.",
		Next: "do what helps against the reasons that are named for each node"},
)

var ofSnapshots = group(groupSnapshot,
	Cause{ID: apiv1.ReasonSnapshotClassMissing, Outcome: NeedsAction,
		Means: "The snapshot names no VolumeSnapshotClass that exists, and so no driver takes it.",
		Next:  "create the VolumeSnapshotClass, or create the snapshot again with the name of another one"},
	Cause{ID: apiv1.ReasonSnapshotSourceMissing, Outcome: NeedsAction,
		Seen:  []string{"SnapshotPVCSourceMissing"},
		Means: "The claim that the snapshot is to be taken from does not exist.",
		Next:  "create the claim, or create the snapshot again with the name of another one"},
	Cause{ID: apiv1.ReasonSnapshotFailed, Outcome: NeedsAction,
		Seen:  []string{"SnapshotContentCreationFailed"},
		Means: "The driver or Azure refused to take the snapshot.",
		Next:  "remove what the message names"},
	Cause{ID: apiv1.ReasonSnapshotNotReady, Outcome: Waits,
		Seen:  []string{"CreatingSnapshot"},
		Means: "Azure copies the content of the snapshot. A volume can be created from it when that has ended."},
)
