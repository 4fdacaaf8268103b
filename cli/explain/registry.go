package explain

import (
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

// ID names a finding. Where the driver has a condition or an event for it, it is that reason.
type ID string

// Cause is an entry of the registry: what a finding means, whatever the object.
type Cause struct {
	ID      ID
	Group   string
	Outcome Outcome
	// Seen is what users see of it elsewhere: reasons of events and conditions, and fixed texts.
	Seen []string
	// Means says what it is, in one sentence.
	Means string
	// Next is what the reader does. A finding may say it with names and times.
	Next string
}

// The groups of the registry, in the order of the page.
const (
	groupFine     = "Nothing is wrong with the volumes"
	groupClaim    = "A claim is Pending or Terminating"
	groupPlace    = "A pod has no node"
	groupHolder   = "Another node has the volume"
	groupFailover = "A node is lost"
	groupNode     = "A node cannot take volumes"
	groupAttach   = "The disk is not attached"
	groupAzure    = "Azure refuses"
	groupMount    = "The volume is not mounted"
	groupDisk     = "The disk differs from what was requested"
	groupSnapshot = "A snapshot is not ready"
	groupDriver   = "The driver does not run"
	groupUnknown  = "The cause is not known"
)

// Groups returns the groups in the order of the page.
func Groups() []string {
	return []string{groupClaim, groupPlace, groupHolder, groupFailover, groupNode, groupAttach, groupAzure, groupMount,
		groupDisk, groupSnapshot, groupDriver, groupUnknown, groupFine}
}

// Registry returns all causes.
func Registry() []Cause { return slices.Clone(registry) }

// CauseOf returns a cause by its ID.
func CauseOf(id ID) Cause {
	i := slices.IndexFunc(registry, func(c Cause) bool { return c.ID == id })
	if i < 0 {
		return Cause{ID: id, Outcome: CannotTell}
	}
	return registry[i]
}

const nothing = "nothing: it ends by itself"

// group gives causes their group.
func group(name string, causes ...Cause) []Cause {
	for i := range causes {
		causes[i].Group = name
	}
	return causes
}

var registry = slices.Concat(
	group(groupClaim,
		Cause{"ClaimNotFound", "", NeedsAction, []string{`persistentvolumeclaim "NAME" not found`},
			"The pod names a claim that does not exist in its namespace.",
			"create the claim, or correct its name in the pod"},
		Cause{"ClaimWithoutClass", "", NeedsAction, []string{"FailedBinding"},
			"The claim names no StorageClass, and the cluster has no default one, so no driver creates a volume for it.",
			"create the claim again with spec.storageClassName"},
		Cause{"ClassNotFound", "", NeedsAction, []string{"ProvisioningFailed"},
			"The claim names a StorageClass that does not exist.",
			"create the StorageClass, or create the claim again with the name of another one"},
		Cause{"WaitForFirstConsumer", "", Waits, []string{"WaitForFirstConsumer"},
			"The volume is created when a pod that uses the claim is placed on a node, so that the disk is in the node's zone.",
			"nothing, if a pod is going to use the claim"},
		Cause{"Creating", "", Waits, []string{"Provisioning"},
			"Azure creates the disk.", nothing},
		Cause{"Filling", "", Waits, []string{"Filling"},
			"Azure copies the source into the new disk.", nothing},
		Cause{"ProvisioningFailed", "", NeedsAction, []string{"ProvisioningFailed"},
			"The driver refused to create the volume. The event says why.",
			"correct what the event names, in the StorageClass or the claim; both have to be created again"},
		Cause{"ForeignDisk", "", NeedsAction, []string{"CreationFailed"},
			"Azure has a disk of this name that was not created for this volume, and the driver does not touch it.",
			"delete or rename that disk if nothing uses it, or create the claim again"},
		Cause{"ClaimLost", "", NeedsAction, []string{"ClaimLost"},
			"The claim was bound to a PersistentVolume that does not exist any more.",
			"restore the PersistentVolume from a backup, or create both again for the disk"},
		Cause{"ClaimInUse", "", NeedsAction, []string{"finalizer kubernetes.io/pvc-protection"},
			"The claim is deleted as soon as no pod uses it.",
			"delete the pods that use it, or leave them: the claim stays until they end"},
		Cause{"FinalizerWaits", "", CannotTell, nil,
			"The object is being deleted, and a finalizer of another program keeps it.",
			"find out which program sets the finalizer, and why it does not remove it"},
		Cause{"Deleting", "", Waits, []string{"Deleting"},
			"The volume is being deleted, with its disk at Azure.", nothing},
		Cause{"DeletionFailed", "", NeedsAction, []string{"DeletionFailed"},
			"Azure refuses to delete the disk. The driver repeats it.",
			"remove what Azure names"},
	),
	group(groupPlace,
		Cause{"WrongZone", "", NeedsAction, []string{"FailedScheduling", "FailedAttachVolume"},
			"The disk is in a zone in which the pod has no node: a disk can be attached only to VMs of its own zone.",
			"add a node in the zone of the disk, or move the data to a new volume, with a zone-redundant SKU such as Premium_ZRS"},
		Cause{"SelectorExcludesZone", "", NeedsAction, []string{"FailedScheduling"},
			"There are nodes in the zone of the disk, and the node selector or the affinity of the pod excludes all of them.",
			"change the pod's selector, or label a node in that zone"},
		Cause{"Unschedulable", "", NeedsAction, []string{"FailedScheduling"},
			"The scheduler finds no node for the pod. Volumes are not known to be the reason.",
			"look at what the scheduler says"},
		Cause{"NoNodeWithSlot", "", NeedsAction, []string{"FailedScheduling", slotsUsedUp, attaching.NoRoom},
			"Nodes that the pod could run on have no free disk slot for its volumes.",
			"add a node, use a VM size with more data disks, or move a pod with a volume away"},
		Cause{"SchedulerError", "", NeedsAction, []string{"SchedulerError", "FailedScheduling"},
			"The scheduler has failed on the pod, as when an extender that it must ask does not answer.",
			"do what the scheduler says; if it names the extender, look at the pods of azuredisk-scheduler"},
		Cause{"SchedulingGated", "", NeedsAction, []string{"SchedulingGated"},
			"The pod has a scheduling gate, which another program removes.",
			"find out which program sets the gate"},
		Cause{"Scheduling", "", Waits, nil, "The scheduler has not looked at the pod yet.", nothing},
		Cause{"VolumeAttachmentLimitExceeded", "", Waits, []string{"VolumeAttachmentLimitExceeded"},
			"The pod was placed on a node without a free disk slot and has failed, so that its controller creates another one.",
			"nothing: its controller creates another pod. Delete this one if it has none"},
	),
	group(groupHolder,
		Cause{"HeldByPods", "", NeedsAction, []string{"FailedAttachVolume"},
			"The volume can be used on one node at a time, and pods on another node use it.",
			"delete or move those pods, or use one volume for each pod"},
		Cause{"StillMounted", "", Waits, []string{"WaitingForVolume"},
			"The node that had the volume before has not unmounted it yet.", nothing},
		Cause{"ProcessLeftBehind", "", NeedsAction, []string{"WaitingForVolume", "FailedScheduling"},
			"A pod was deleted by force, and its process on the node that has the volume still runs and may write.",
			"restart that node, or let its container runtime go on; until then no other pod gets the volume"},
		Cause{"KubeletDown", "", NeedsAction, []string{"WaitingForVolume", "FailedAttachVolume"},
			"The node that has the volume runs, and its kubelet does not, so nothing ends the pods there or unmounts the volume.",
			"start the kubelet there again, or delete the pods there by force if the node is gone for ever"},
		Cause{"PodEndsLate", "", NeedsAction, []string{"Killing"},
			"The pod should have ended, and its kubelet runs: a process of it cannot be killed, or a volume cannot be unmounted.",
			"look on that node for a process of the pod in state D. One that waits for a filesystem which a backup has frozen ends " +
				"after fsfreeze --unfreeze at its mount. What the kubelet waits for is in its log"},
		Cause{"NodePluginDown", "", NeedsAction, []string{"HeartbeatStale"},
			"Kubernetes sees the node that has the volume, and the driver's node plug-in there does not report.",
			"look at the node plug-in's pod on that node"},
		Cause{"Detaching", "", Waits, []string{"Detaching", "WaitingForVolume"},
			"Azure detaches the disk from the node that had it before.", nothing},
		Cause{"DetachFailed", "", NeedsAction, []string{"DetachFailed", "FailedAttachVolume"},
			"Azure refuses to detach the disk from the node that had it before. The driver repeats it.",
			"remove what Azure names"},
		Cause{"GuardsFencedNode", "", Waits, []string{"GuardsFencedNode"},
			"The disk stays attached to the node until Azure has detached it from a lost node: only this node's reservation keeps " +
				"the lost one from writing.", nothing},
		Cause{"WaitingForVolume", "", Waits, []string{"WaitingForVolume"},
			"Another node has the volume, or Azure has not accepted to attach it yet. More is not readable with these rights.",
			"nothing: the event says what it waits for"},
		Cause{"FailedAttachVolume", "", NeedsAction, []string{"FailedAttachVolume"},
			"The volume cannot be attached, as the event says. More is not readable with these rights.",
			"do what the event says, or ask an administrator of the cluster"},
	),
	group(groupFailover,
		Cause{"Fencing", "", Waits, []string{"FailoverStarted", "Fencing"},
			"The node that has the volume is lost, and the driver makes sure that it cannot write any more.", nothing},
		Cause{"FailoverProven", "", Waits, []string{"FailoverProven", "FailoverUnblocked"},
			"The lost node cannot write any more, and the volume moves to another node.", nothing},
		Cause{"NodeLost", "", Waits, []string{"NodeLost"},
			"The node does not answer by two independent signals.",
			"nothing: the driver moves the volumes. Find out what happened to the node"},
		Cause{"VMDown", "", Waits, []string{"VMDown"},
			"Azure says that the VM of the node is deallocated or deleted.",
			"nothing: the driver moves the volumes. Start the VM if it is needed"},
		Cause{"VMStopped", "", Waits, []string{"VMStopped"},
			"Azure says that the VM of the node is stopped, and not deallocated. A guest that hibernates by itself looks the same, " +
				"and continues with its memory, so pods that also write to volumes of other drivers are left alone.",
			"nothing: the driver moves its volumes. If the other pods are to move too, deallocate the VM, or start it again"},
		Cause{"HeartbeatStale", "", Waits, []string{"HeartbeatStale"},
			"The node does not report, and nothing confirms yet that it is lost.",
			"nothing: the driver decides when a second signal is missing. If this lasts for minutes, look at the node"},
		Cause{"Maintenance", "", Waits, []string{"Maintenance"},
			"Azure pauses the VM of the node, as it had announced.", nothing},
		Cause{"FencingHeldBack", "", NeedsAction, []string{"FencingHeldBack", "FailoverHeldBack"},
			"So many nodes seem lost at once that the fault may be in the network of the controller, so no volume is taken from any node.",
			"repair the network. For a node that is really gone, stop its VM (az vm stop), and the driver goes on with it"},
		Cause{"FailoverDisabled", "", NeedsAction, []string{"NodeLost"},
			"The node is lost, and failover is switched off (controller.failover.enabled: false).",
			"start the node again, or delete the pods there by force"},
		Cause{"OptedOut", "", NeedsAction, []string{"FailoverHeldBack"},
			"The pod or its claim has the annotation disk.csi.azure.com/failover: disabled, so its volumes stay with the lost node.",
			"wait for the node, or delete the pod by force (kubectl delete pod --force)"},
		Cause{"NoOwner", "", NeedsAction, []string{"FailoverHeldBack"},
			"No controller would create the pod on the lost node again, so its volumes stay with that node.",
			"delete the pod by force, and create it elsewhere"},
		Cause{"DaemonSet", "", NeedsAction, []string{"FailoverHeldBack"},
			"The DaemonSet of the pod would create it on the lost node again, so its volumes stay with that node.",
			"start the node again, or delete the Node"},
		Cause{"ForeignVolume", "", NeedsAction, []string{"FailoverHeldBack"},
			"The pod may also write to a volume that this driver cannot fence, so all its volumes stay with the lost node.",
			"make sure that the node is down, then delete the pod by force"},
		Cause{"UnknownVolume", "", NeedsAction, []string{"FailoverHeldBack"},
			"A claim or a PersistentVolume of the pod does not exist, so nothing says what the pod writes to.",
			"make sure that the node is down, then delete the pod by force"},
		Cause{"SharedVolume", "", NeedsAction, []string{"FailoverHeldBack"},
			"The pod shares a volume with another pod on the lost node that is not moved.",
			"release the other pod first"},
		Cause{"FailoverHeldBack", "", NeedsAction, []string{"FailoverHeldBack"},
			"The volumes of the pod stay with the lost node, as the event says. More is not readable with these rights.",
			"do what the event says"},
		Cause{"WriteRefused", "", NeedsAction, []string{"WriteRefused", "ProvisioningFailed", "FailedAttachVolume"},
			"The cluster refuses a write of the driver, by its access rules or an admission policy, so the driver does not go on.",
			"allow the write that the event names"},
	),
	group(groupNode,
		Cause{"NodeUnknown", "", NeedsAction, []string{"NodeUnknown"},
			"The driver's node plug-in has not reported from the node, so no disk is attached there.",
			"look at the node plug-in's pod on that node, or whether it has one"},
		Cause{"NotInCSINode", "", Waits, []string{"NotInCSINode"},
			"The kubelet has lost the registration of the node plug-in, which registers again.", nothing},
		Cause{"RegistrationFailed", "", NeedsAction, []string{"RegistrationFailed"},
			"The kubelet refuses the registration of the node plug-in.",
			"do what the message says; another program may use the driver's name on that node"},
		Cause{"Starting", "", Waits, []string{"Starting"}, "The node plug-in is starting.", nothing},
		Cause{"Stopped", "", NeedsAction, []string{"Stopped"}, "The node plug-in has stopped.",
			"look at the node plug-in's pod on that node"},
		Cause{"VMContradictsProviderID", "", NeedsAction, []string{"VMContradictsProviderID"},
			"The Node's providerID names another VM than the node plug-in, so no disk is attached there.",
			"if the VM was replaced, delete the Node so that it registers again"},
		Cause{"VMIDInvalid", "", NeedsAction, []string{"VMIDInvalid"},
			"What the node plug-in names is not the resource ID of a VM, so no disk is attached there.",
			"correct the node's metadata or the chart's values"},
		Cause{"VMNamedTwice", "", NeedsAction, []string{"VMNamedTwice"},
			"Two nodes name the same VM, so no disk is attached to either.",
			"delete the Node that does not exist any more"},
		Cause{"MaintenanceAnnounced", "", Waits, []string{"MaintenanceAnnounced"},
			"Azure has announced maintenance of the VM, and the driver prepares for it.", nothing},
		Cause{"PodsMove", "", Waits, []string{"PodsMove"},
			"Azure has announced maintenance of the VM, and the driver moves the pods with replicated volumes away.", nothing},
		Cause{"NodeNotReady", "", NeedsAction, nil,
			"The pod is on a node that Kubernetes does not see as Ready, so nothing starts there.",
			"repair the node, or delete the pod so that it is created elsewhere"},
		Cause{"NodeGone", "", NeedsAction, []string{"NodeGone"}, "The Node does not exist.",
			"delete the pods that are still bound to it, if there are any"},
	),
	group(groupAttach,
		Cause{"Attaching", "", Waits, []string{"Attaching", "WaitingForVolume"}, "Azure attaches the disk.", nothing},
		Cause{"WaitingForQuota", "", Waits, []string{"WaitingForQuota", "WaitingForVolume"},
			"Azure allows a limited number of updates of a VM, and the driver waits until the next one is allowed.", nothing},
		Cause{"WaitingForSlot", "", Waits, []string{"WaitingForSlot"},
			"The VM or the disk has no free slot or share, and a replica is removed for it.", nothing},
		Cause{"NoSlot", "", NeedsAction, []string{"NoSlot"},
			"The VM has as many disks as its size allows, or the disk as many VMs as its maxShares allow, and none can be removed.",
			"move a pod with a volume away from the node, or use nodes with more data disks"},
		Cause{"SKUNotAttachable", "", NeedsAction, []string{"AttachFailed", "FailedAttachVolume"},
			"VMs of the node's size cannot have disks of this SKU.",
			"place the pod on nodes whose VM size supports the SKU, or use another SKU"},
		Cause{"VolumeNotReady", "", Waits, []string{"VolumeNotReady"},
			"The disk is not created yet, or is being changed.", nothing},
		Cause{"DiskGone", "", NeedsAction, []string{"CreationFailed"},
			"The disk of the volume does not exist at Azure any more.",
			"restore the disk from a snapshot under the same name, or create the claim again from a backup"},
		Cause{"AttachFailed", "", NeedsAction, []string{"AttachFailed", "FailedAttachVolume"},
			"Azure refuses to attach the disk. The driver repeats it.", "remove what Azure names"},
		Cause{"UsedOutsideCluster", "", NeedsAction, []string{"UsedOutsideCluster"},
			"A VM that is no node of this cluster has the disk attached, and may be using it.",
			"when nothing on that VM uses the disk any more, detach it there (az vm disk detach)"},
		Cause{"Publishing", "", Waits, nil, "The pod has just been placed, and the driver is about to attach the disk.", nothing},
	),
	group(groupAzure,
		Cause{"Throttled", "", Waits, []string{"TooManyRequests", "OperationThrottled"},
			"Azure asks the driver to slow down. If this is frequent, other clients use up the limits of the subscription.",
			"nothing: the driver repeats the request"},
		Cause{"AzureUnavailable", "", Waits, nil,
			"Azure has failed, or could not be reached. If this lasts, look at Azure's status and the controller's network.",
			"nothing: the driver repeats the request"},
		Cause{"QuotaExceeded", "", NeedsAction, []string{"QuotaExceeded", "ResourceQuotaExceeded"},
			"The quota of the subscription for disks is used up.",
			"ask Azure for a larger quota, or delete disks that are not needed"},
		Cause{"SKUNotAvailable", "", NeedsAction, []string{"SkuNotAvailable"},
			"Azure does not offer the SKU in this region or zone, or not to this subscription.",
			"use a StorageClass with another SKU, or another zone"},
		Cause{"NoCapacityAtAzure", "", NeedsAction, []string{"AllocationFailed", "ZonalAllocationFailed"},
			"Azure has no capacity for this in the zone at present.",
			"try again later, or use another zone or SKU. The driver repeats the request"},
		Cause{"Unauthenticated", "", NeedsAction, []string{"InvalidAuthenticationToken", "ExpiredAuthenticationToken"},
			"Azure does not accept the driver's credentials.",
			"renew the credentials of the driver"},
		Cause{"PermissionMissing", "", NeedsAction, []string{"AuthorizationFailed", "LinkedAuthorizationFailed"},
			"The driver's identity lacks a permission at Azure. Azure's text names the action and the scope.",
			"assign the role of the driver at that scope (azuredisk azure-role prints it)"},
		Cause{"DenyAssignment", "", NeedsAction, []string{"DenyAssignmentAuthorizationFailed"},
			"A deny assignment forbids it, as AKS puts one on the node resource group with node resource group lockdown.",
			"turn the lockdown off (AKS Automatic always has it, and only AKS's own driver can attach disks there); " +
				"if Azure names the group of the disks, create disks in another one"},
		Cause{"ScopeLocked", "", NeedsAction, []string{"ScopeLocked"}, "A lock at Azure forbids the change.",
			"remove the lock that Azure names"},
		Cause{"PolicyRefused", "", NeedsAction, []string{"RequestDisallowedByPolicy"}, "A policy at Azure forbids it.",
			"change the StorageClass so that it follows the policy, or exempt the resource group"},
		Cause{"NotFoundAtAzure", "", NeedsAction, []string{"ResourceNotFound", "ResourceGroupNotFound"},
			"Something that the request names does not exist at Azure.", "look at what Azure names"},
	),
	group(groupMount,
		Cause{"FilesystemMismatch", "", NeedsAction, []string{"FailedMount", "FilesystemMismatch"},
			"The disk does not hold the filesystem that is recorded for the volume, or another one than was requested, " +
				"and the driver neither mounts nor formats it.",
			"find out what has written to the disk. The data may be another volume's"},
		Cause{"ReservedElsewhere", "", NeedsAction, []string{"FailedMount", "ReservedElsewhere"},
			"Another cluster or another program has reserved the disk.",
			"end what uses the disk there; only if nothing does, remove the reservation with sg_persist or nvme"},
		Cause{"FailedMount", "", NeedsAction, []string{"FailedMount", "FailedMapVolume"},
			"The disk is attached, and the node cannot mount it. The event says why.",
			"do what the event says"},
		Cause{"Mounting", "", Waits, nil, "The disk is attached, and the node is about to mount it.", nothing},
	),
	group(groupDisk,
		Cause{"Updating", "", Waits, []string{"Updating"}, "The disk is being changed.", nothing},
		Cause{"Converting", "", Waits, []string{"Converting"},
			"Azure converts the disk to another SKU in the background. It can be used while that lasts.", nothing},
		Cause{"UpdateFailed", "", NeedsAction, []string{"UpdateFailed"},
			"Azure failed the change of the disk. The driver repeats it.", "remove what Azure names"},
		Cause{"UpdateRefused", "", NeedsAction, []string{"UpdateRefused"},
			"Azure refused the change of the disk permanently.",
			"request a change that Azure allows. A shared disk is resized only while no node has it: end its pods first"},
		Cause{"ReplicaAttaching", "", Waits, []string{"ReplicaPlaced", "ReplicasMissing"},
			"The volume works, and a replica is being attached to another node.", nothing},
		Cause{"ReplicasMissing", "", NeedsAction, []string{"ReplicasMissing"},
			"Fewer replicas are attached than wanted. The volume works; a move or a failover is slower.",
			"do what helps against the reasons that are named for each node"},
	),
	group(groupSnapshot,
		Cause{"SnapshotClassMissing", "", NeedsAction, nil,
			"The snapshot names no VolumeSnapshotClass that exists, and so no driver takes it.",
			"create the VolumeSnapshotClass, or create the snapshot again with the name of another one"},
		Cause{"SnapshotSourceMissing", "", NeedsAction, []string{"SnapshotPVCSourceMissing"},
			"The claim that the snapshot is to be taken from does not exist.", "correct the name of the claim"},
		Cause{"SnapshotFailed", "", NeedsAction, []string{"SnapshotContentCreationFailed"},
			"The driver or Azure refused to take the snapshot.", "remove what the message names"},
		Cause{"SnapshotNotReady", "", Waits, []string{"CreatingSnapshot"},
			"Azure copies the content of the snapshot. A volume can be created from it when that has ended.", nothing},
	),
	group(groupDriver,
		Cause{"CSIDriverMissing", "", NeedsAction, nil,
			"The cluster has no CSIDriver of this name: the driver is not installed, or has another name.",
			"if the driver is installed, upgrade the release: helm creates the CSIDriver again. If the driver has another name, say it with --driver-name"},
		Cause{"AttachRequiredDiffers", "", NeedsAction, nil,
			"The controller is set to another mode than the CSIDriver, whose attachRequired cannot be changed, and does not start.",
			"set csiDriver.attachRequired of the chart to the value of the CSIDriver, or delete the CSIDriver and upgrade"},
		Cause{"ControllerNotLeading", "", NeedsAction, nil,
			"No controller of the driver leads, so nothing is attached, moved or created.",
			"look at the pods of the controller"},
		Cause{"SidecarNotLeading", "", NeedsAction, nil,
			"The sidecar that passes the request to the driver does not run or does not lead.",
			"look at the sidecars in the pods of the controller"},
	),
	group(groupUnknown,
		Cause{"OtherDriver", "", CannotTell, nil,
			"The volume is another driver's, about which nothing is known here.", "ask that driver"},
		Cause{"NotReadable", "", CannotTell, nil,
			"What decides it is not readable with the reader's rights, and no event says it.",
			"ask an administrator of the cluster to run the same command"},
	),
	group(groupFine,
		Cause{"Healthy", "", Healthy, nil, "Nothing is wrong.", "nothing"},
		Cause{"NotUsed", "", Healthy, nil, "The volume is there, and no pod uses it.", "nothing"},
		Cause{"VolumesReady", "", Healthy, nil,
			"The volumes are mounted. If the pod does not run, the reason is another one.", "nothing about its volumes"},
		Cause{"DeletionHeld", "", Healthy, []string{"DeletionHeld"},
			"The AzVolume was deleted while a PersistentVolume or a node needs it. The driver keeps it, and the volume works as before.",
			"leave the AzVolume as it is, and find out who deletes AzVolumes; it is removed when neither a PersistentVolume nor a node needs it"},
		Cause{"FlushFailed", "", Healthy, []string{"FlushFailed", "WritesLost"},
			"The device of the volume did not take all data when a pod ended, as the message says. The volume works. " +
				"What an application had synced before is on the disk.",
			"check the application's data, and find out why the device failed: most often the disk was detached from the node"},
		Cause{"NoVolumes", "", Healthy, nil, "The pod uses no volume of this driver.", "nothing about volumes"},
		Cause{"PodEnding", "", Waits, []string{"Killing"}, "The pod is being deleted, and its volumes are unmounted after it has ended.",
			nothing},
		Cause{"PodEnded", "", Healthy, nil, "The pod has ended and needs its volumes no more.", "nothing"},
	),
)
