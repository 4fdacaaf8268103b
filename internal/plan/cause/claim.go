package cause

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

var ofClaims = group(groupClaim,
	Cause{ID: apiv1.ReasonClaimNotFound, Outcome: NeedsAction,
		Seen:  []string{`persistentvolumeclaim "NAME" not found`},
		Means: "The pod names a claim that does not exist in its namespace.",
		Next:  "create the claim, or correct its name in the pod"},
	Cause{ID: apiv1.ReasonClaimWithoutClass, Outcome: NeedsAction,
		Seen: []string{"FailedBinding"},
		Means: "The claim names no StorageClass and the cluster has no default one, or the claim sets " +
			"storageClassName to an empty text. No driver creates a volume for it.",
		Next: "create the claim again with spec.storageClassName"},
	Cause{ID: apiv1.ReasonClassNotFound, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonProvisioningFailed},
		Means: "The claim names a StorageClass that does not exist.",
		Next:  "create the StorageClass, or create the claim again with the name of another one"},
	Cause{ID: apiv1.ReasonWaitForFirstConsumer, Outcome: Waits,
		Seen: []string{apiv1.ReasonWaitForFirstConsumer},
		Means: "The volume is created when a pod that uses the claim is placed on a node, so that the disk is in " +
			"the node's zone.",
		Next: "nothing, if a pod is going to use the claim"},
	Cause{ID: apiv1.ReasonDiskCreating, Outcome: Waits, On: []Object{OnVolume}, Usually: time.Minute,
		Seen:  []string{"Provisioning"},
		Means: "Azure creates the disk."},
	Cause{ID: apiv1.ReasonDiskFilling, Outcome: Waits, On: []Object{OnVolume},
		Means: "Azure copies the source into the new disk. The message has the progress."},
	Cause{ID: apiv1.ReasonDataSourceNotFound, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonProvisioningFailed},
		Means: "The claim is to be made from a claim or a snapshot that does not exist in its namespace.",
		Next:  "create the source, or create the claim again with the name of another one"},
	Cause{ID: apiv1.ReasonAttributesClassNotFound, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonProvisioningFailed},
		Means: "The claim names a VolumeAttributesClass that does not exist, so its settings are not applied.",
		Next:  "create the VolumeAttributesClass, or give the claim the name of another one"},
	Cause{ID: apiv1.ReasonProvisioningFailed, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonProvisioningFailed},
		Means: "The volume was not created: the driver, or csi-provisioner before it, refused the request. The event says why.",
		Next:  "correct what the event names, in the StorageClass or the claim; both have to be created again"},
	Cause{ID: apiv1.ReasonForeignDisk, Outcome: NeedsAction, On: []Object{OnVolume},
		Seen:  []string{apiv1.ReasonDiskCreationFailed},
		Means: "Azure has a disk of this name that was not created for this volume, and the driver does not touch it.",
		Next:  "delete or rename that disk if nothing uses it, or create the claim again"},
	Cause{ID: apiv1.ReasonClaimLost, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonClaimLost},
		Means: "The claim was bound to a PersistentVolume that does not exist any more.",
		Next:  "restore the PersistentVolume from a backup, or create both again for the disk"},
	Cause{ID: apiv1.ReasonClaimInUse, Outcome: NeedsAction,
		Seen:  []string{"finalizer kubernetes.io/pvc-protection"},
		Means: "The claim is deleted as soon as no pod uses it.",
		Next:  "delete the pods that use it, or leave them: the claim stays until they end"},
	Cause{ID: apiv1.ReasonFinalizerWaits, Outcome: CannotTell,
		Seen:  []string{"finalizer snapshot.storage.kubernetes.io/pvc-as-source-protection"},
		Means: "The object is being deleted, and a finalizer of another program keeps it.",
		Next:  "find out which program sets the finalizer, and why it does not remove it"},
	Cause{ID: apiv1.ReasonDiskDeleting, Outcome: Waits, On: []Object{OnVolume}, Usually: 2 * time.Minute,
		Means: "The volume is being deleted, with its disk at Azure."},
	Cause{ID: apiv1.ReasonVolumeReleasedInUse, Outcome: NeedsAction,
		Seen: []string{"VolumeFailedDelete"},
		Means: "The claim is gone, and a node still uses the volume. The reclaim policy is Delete: the disk is deleted when " +
			"no node uses it any more.",
		Next: "to keep the disk, set the reclaim policy to Retain before the pods end: kubectl patch pv NAME -p " +
			"'{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'; otherwise end the pods"},
	Cause{ID: apiv1.ReasonDiskDeletionFailed, Outcome: NeedsAction, On: []Object{OnVolume},
		Means: "Azure refuses to delete the disk, or fails to. The driver repeats it.",
		Next:  "remove what Azure names"},
)

var ofPlaces = group(groupPlace,
	Cause{ID: apiv1.ReasonWrongZone, Outcome: NeedsAction,
		Seen:  []string{"FailedScheduling", apiv1.ReasonFailedAttachVolume, "volume node affinity conflict"},
		Means: "The disk is in a zone in which the pod has no node: a disk can be attached only to VMs of its own zone.",
		Next: "add a node in the zone of the disk, or move the data to a new volume, with a zone-redundant SKU " +
			"such as Premium_ZRS"},
	Cause{ID: apiv1.ReasonSelectorExcludesZone, Outcome: NeedsAction,
		Seen: []string{"FailedScheduling"},
		Means: "There are nodes in the zone of the disk, and the node selector or the affinity of the pod excludes " +
			"all of them.",
		Next: "change the pod's selector, or label a node in that zone"},
	Cause{ID: apiv1.ReasonUnschedulable, Outcome: NeedsAction,
		Seen:  []string{"FailedScheduling"},
		Means: "The scheduler finds no node for the pod. Volumes are not known to be the reason.",
		Next:  "look at what the scheduler says"},
	Cause{ID: apiv1.ReasonNoNodeWithSlot, Outcome: NeedsAction,
		Seen:  []string{"FailedScheduling", SlotsUsedUp, attaching.NoRoom},
		Means: "Nodes that the pod could run on have no free disk slot for its volumes.",
		Next:  "add a node, use a VM size with more data disks, or move a pod with a volume away"},
	Cause{ID: apiv1.ReasonSchedulerError, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonSchedulerError, "FailedScheduling"},
		Means: "The scheduler has failed on the pod, as when an extender that it must ask does not answer.",
		Next:  "do what the scheduler says; if it names the extender, look at the pods of azuredisk-scheduler"},
	Cause{ID: apiv1.ReasonSchedulingGated, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonSchedulingGated},
		Means: "The pod has a scheduling gate, which another program removes.",
		Next:  "find out which program sets the gate"},
	Cause{ID: apiv1.ReasonScheduling, Outcome: Waits, Means: "The scheduler has not looked at the pod yet."},
	Cause{ID: apiv1.ReasonVolumeAttachmentLimitExceeded, Outcome: Waits, On: []Object{OnPod},
		Means: "The pod was placed on a node without a free disk slot and has failed, so that its controller " +
			"creates another one. Only with attachRequired: false; the kubelet uses the same reason.",
		Next: "nothing: its controller creates another pod. Delete this one if it has none"},
)

// SlotsUsedUp is the text by which kube-scheduler counts the nodes without a free slot, where the
// driver's extender did not say so before.
const SlotsUsedUp = "node(s) exceed max volume count"
