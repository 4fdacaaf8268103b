package cause

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

var ofDriver = group(groupDriver,
	Cause{ID: apiv1.ReasonCSIDriverMissing, Outcome: NeedsAction,
		Means: "The cluster has no CSIDriver of this name: the driver is not installed, or has another name.",
		Next: "if the driver is installed, upgrade the release: helm creates the CSIDriver again. If the driver " +
			"has another name, say it with --driver-name"},
	Cause{ID: apiv1.ReasonAttachRequiredDiffers, Outcome: NeedsAction,
		Means: "The controller is set to another mode than the CSIDriver, whose attachRequired cannot be changed, " +
			"and does not start.",
		Next: "set csiDriver.attachRequired of the chart to the value of the CSIDriver, or delete the CSIDriver " +
			"and upgrade"},
	Cause{ID: apiv1.ReasonControllerNotLeading, Outcome: NeedsAction,
		Means: "No controller of the driver leads, so nothing is attached, moved or created.",
		Next:  "look at the pods of the controller"},
	Cause{ID: apiv1.ReasonSidecarNotLeading, Outcome: NeedsAction,
		Means: "The sidecar that passes the request to the driver does not run or does not lead.",
		Next:  "look at the sidecars in the pods of the controller"},
	Cause{ID: apiv1.ReasonAnnotationInvalid, Outcome: NeedsAction, On: []Object{OnPod},
		Means: "An annotation of the driver has a value that the driver does not know. It counts as the one that " +
			"switches its action off.",
		Next: "set one of the values that the event names, or remove the annotation"},
)

var ofUnknown = group(groupUnknown,
	Cause{ID: apiv1.ReasonOtherDriver, Outcome: CannotTell,
		Means: "The volume is another driver's, about which nothing is known here.",
		Next:  "ask that driver"},
	Cause{ID: apiv1.ReasonNotReadable, Outcome: CannotTell,
		Means: "What decides it is not readable with the reader's rights, and no event says it.",
		Next:  "ask an administrator of the cluster to run the same command"},
)

var ofFine = group(groupFine,
	Cause{ID: apiv1.ReasonHealthy, Outcome: Healthy, Means: "Nothing is wrong."},
	Cause{ID: apiv1.ReasonNotUsed, Outcome: Healthy, Means: "The volume is there, and no pod uses it."},
	Cause{ID: apiv1.ReasonVolumesReady, Outcome: Healthy,
		Means: "The volumes are mounted. If the pod does not run, the reason is another one.",
		Next:  "nothing about its volumes"},
	Cause{ID: apiv1.ReasonVolumeDeletionHeld, Outcome: Healthy, On: []Object{OnVolume},
		Means: "The AzVolume was deleted while a PersistentVolume or a node needs it. The driver keeps it, and the " +
			"volume works as before.",
		Next: "leave the AzVolume as it is, and find out who deletes AzVolumes; it is removed when neither a " +
			"PersistentVolume nor a node needs it"},
	Cause{ID: apiv1.ReasonPersistentVolumeTerminating, Outcome: Healthy,
		Seen: []string{"finalizer kubernetes.io/pv-protection"},
		Means: "The PersistentVolume was deleted while a claim is bound to it. Kubernetes keeps it until the claim is " +
			"deleted, and the volume works as before: the cluster uses no VolumeAttachments. Then it is deleted, and with " +
			"the reclaim policy Delete its disk too.",
		Next: "to keep the disk when the claim is deleted, set the reclaim policy to Retain: kubectl patch pv NAME -p " +
			"'{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'"},
	Cause{ID: apiv1.ReasonDiskFlushFailed, Outcome: Healthy, On: []Object{OnVolume},
		Seen: []string{"WritesKept"},
		Means: "The device of the volume did not take all data when a pod ended, as the message says. The volume " +
			"works. What an application had synced before is on the disk.",
		Next: "check the application's data, and find out why the device failed: most often the disk was detached " +
			"from the node"},
	Cause{ID: apiv1.ReasonNoVolumes, Outcome: Healthy,
		Means: "The pod uses no volume of this driver.",
		Next:  "nothing about volumes"},
	Cause{ID: apiv1.ReasonPodEnding, Outcome: Waits, Usually: 30 * time.Second,
		Seen:  []string{"Killing"},
		Means: "The pod is being deleted, and its volumes are unmounted after it has ended."},
	Cause{ID: apiv1.ReasonPodEnded, Outcome: Healthy, Means: "The pod has ended and needs its volumes no more."},
)
