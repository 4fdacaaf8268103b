package cause

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

var ofNodes = group(groupNode,
	Cause{ID: apiv1.ReasonNodeUnknown, Outcome: NeedsAction, On: []Object{OnAttachment},
		Means: "There is no Node, or the driver's node plug-in has not reported from it, so its VM is not known " +
			"and no disk is attached there.",
		Next: "look at the node plug-in's pod on that node, or whether it has one"},
	Cause{ID: apiv1.ReasonNotInCSINode, Outcome: Waits, On: []Object{OnNode}, Usually: time.Minute,
		Means: "The kubelet has lost the registration of the node plug-in, which registers again."},
	Cause{ID: apiv1.ReasonRegistrationFailed, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "The kubelet refuses the registration of the node plug-in.",
		Next:  "do what the message says; another program may use the driver's name on that node"},
	Cause{ID: apiv1.ReasonStarting, Outcome: Waits, On: []Object{OnNode}, Usually: time.Minute,
		Means: "The node plug-in is starting."},
	Cause{ID: apiv1.ReasonStopped, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "The node plug-in has stopped.",
		Next:  "look at the node plug-in's pod on that node"},
	Cause{ID: apiv1.ReasonVMContradictsProviderID, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "The Node's providerID names another VM than the node plug-in, so no disk is attached there.",
		Next:  "if the VM was replaced, delete the Node so that it registers again"},
	Cause{ID: apiv1.ReasonVMIDInvalid, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "What the node plug-in names is not the resource ID of a VM, so no disk is attached there.",
		Next:  "correct the node's metadata or the chart's values"},
	Cause{ID: apiv1.ReasonVMNamedTwice, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "Two nodes name the same VM, so no disk is attached to either.",
		Next:  "delete the Node that does not exist any more"},
	Cause{ID: apiv1.ReasonMaintenanceAnnounced, Outcome: Waits, On: []Object{OnNode},
		Means: "Azure has announced maintenance of the VM, and the driver prepares for it."},
	Cause{ID: apiv1.ReasonMaintenancePodsMove, Outcome: Waits, On: []Object{OnNode},
		Means: "Azure has announced maintenance of the VM, and the driver moves the pods with replicated volumes away."},
	Cause{ID: apiv1.ReasonNodeNotReady, Outcome: NeedsAction,
		Means: "Kubernetes does not see the node of the pod or of the volume as Ready: nothing starts there, and what " +
			"runs there may not work.",
		Next: "repair the node, and first its kubelet: a pod that is deleted there ends only when the kubelet runs. If the " +
			"node is gone for ever, delete the pod by force"},
	Cause{ID: apiv1.ReasonNodeGone, Outcome: NeedsAction, On: []Object{OnNode},
		Means: "The Node does not exist.",
		Next:  "delete the pods that are still bound to it, if there are any"},
)

var ofAttaches = group(groupAttach,
	Cause{ID: apiv1.ReasonVolumePaused, Outcome: NeedsAction, On: []Object{OnAttachment, OnVolume, OnFailover},
		Seen: []string{apiv1.ReasonFailedAttachVolume, apiv1.ReasonProvisioningFailed, apiv1.ReasonFailoverHeldBack},
		Means: "The AzVolume has the annotation disk.csi.azure.com/paused: true, so the driver requests nothing at " +
			"Azure for it. A node that has the disk can use it.",
		Next: "end the pause when its purpose is served: kubectl annotate azv -n azure-disk-csi NAME " +
			"disk.csi.azure.com/paused-"},
	Cause{ID: apiv1.ReasonPersistentVolumeNotAttachable, Outcome: NeedsAction,
		Seen: []string{apiv1.ReasonFailedAttachVolume, "is marked for deletion", "finalizer kubernetes.io/pv-protection"},
		Means: "The PersistentVolume was deleted while a claim is bound to it, and the cluster uses VolumeAttachments " +
			"(attachRequired: true): csi-attacher attaches such a volume to no node. Pods that use it go on. A pod that " +
			"starts again or moves waits for ever.",
		Next: "create the PersistentVolume again under its name, as the guide delete-and-retain says: the disk, the claim " +
			"and the pods stay. Do not restart the pods before that"},
	Cause{ID: apiv1.ReasonDiskAttaching, Outcome: Waits, On: []Object{OnAttachment}, Usually: time.Minute,
		Seen:  []string{apiv1.ReasonWaitingForVolume},
		Means: "Azure attaches the disk."},
	Cause{ID: apiv1.ReasonWaitingForAzureQuota, Outcome: Waits, On: []Object{OnAttachment},
		Seen: []string{apiv1.ReasonWaitingForVolume},
		Means: "Azure allows a limited number of updates of a VM, and the driver waits until the next one is " +
			"allowed. The message says until when."},
	Cause{ID: apiv1.ReasonWaitingForDiskSlot, Outcome: Waits, On: []Object{OnAttachment},
		Means: "The VM or the disk has no free slot or share, and a replica is removed for it."},
	Cause{ID: apiv1.ReasonNoDiskSlot, Outcome: NeedsAction, On: []Object{OnAttachment},
		Means: "The VM has as many disks as its size allows, or the disk as many VMs as its maxShares allow, and " +
			"none can be removed.",
		Next: "move a pod with a volume away from the node, or use nodes with more data disks"},
	Cause{ID: apiv1.ReasonSKUNotAttachable, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonDiskAttachFailed, apiv1.ReasonFailedAttachVolume},
		Means: "VMs of the node's size cannot have disks of this SKU.",
		Next:  "place the pod on nodes whose VM size supports the SKU, or use another SKU"},
	Cause{ID: apiv1.ReasonVolumeNotReady, Outcome: Waits, On: []Object{OnAttachment},
		Means: "There is no AzVolume, or its disk is not created yet, or the disk is being changed."},
	Cause{ID: apiv1.ReasonDiskGone, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonDiskCreationFailed},
		Means: "The disk of the volume does not exist at Azure any more.",
		Next:  "restore the disk from a snapshot under the same name, or create the claim again from a backup"},
	Cause{ID: apiv1.ReasonDiskAttachFailed, Outcome: NeedsAction, On: []Object{OnAttachment},
		Seen:  []string{apiv1.ReasonFailedAttachVolume},
		Means: "Azure refuses to attach the disk, or fails to. The driver repeats it.",
		Next:  "remove what Azure names"},
	Cause{ID: apiv1.ReasonUsedOutsideCluster, Outcome: NeedsAction, On: []Object{OnAttachment, OnPod},
		Means: "A VM that is no node of this cluster has the disk attached, and may be using it. The disk is detached here " +
			"if it was attached, and Azure is asked again before the next try.",
		Next: "when nothing on that VM uses the disk any more, detach it there (az vm disk detach)"},
	Cause{ID: apiv1.ReasonPublishing, Outcome: Waits, Usually: 30 * time.Second,
		Means: "The pod has just been placed, and the driver is about to attach the disk."},
)
