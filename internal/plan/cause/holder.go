package cause

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// multiAttach begins the text of an event of Kubernetes, which knows VolumeAttachments only.
const multiAttach = "Multi-Attach error"

var ofHolders = group(groupHolder,
	Cause{ID: apiv1.ReasonHeldByPods, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonFailedAttachVolume, multiAttach},
		Means: "The volume can be used on one node at a time, and pods on another node use it.",
		Next:  "delete or move those pods, or use one volume for each pod"},
	Cause{ID: apiv1.ReasonStillMounted, Outcome: Waits, Usually: 30 * time.Second,
		Seen:  []string{apiv1.ReasonWaitingForVolume, multiAttach},
		Means: "The node that had the volume before has not unmounted it yet."},
	Cause{ID: apiv1.ReasonDeviceHeld, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "Something on the node holds the device of the volume, although no pod there uses it, so the volume stays " +
			"on the node.",
		Next: "end on that node what the message names, as with losetup -d, swapoff, dmsetup remove or umount. The driver " +
			"unmounts the volume within two minutes after that"},
	Cause{ID: apiv1.ReasonMountBusy, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "The volume cannot be unmounted on the node, because something is mounted below it, or a program there " +
			"uses it.",
		Next: "unmount on that node what the message names, or end the program. The kubelet unmounts the volume within " +
			"two minutes after that"},
	Cause{ID: apiv1.ReasonUnmountFailed, Outcome: NeedsAction, On: volumeAndUsers,
		Means: "The node cannot unmount the volume, for the reason in the message. The kubelet repeats it, and tells only " +
			"its own log.",
		Next: "remove what the message names. If it names a deadline, look at the disk and the VM at Azure: the device " +
			"does not take the data"},
	Cause{ID: apiv1.ReasonProcessLeftBehind, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonWaitingForVolume, "FailedScheduling"},
		Means: "A pod was deleted by force, and its process on the node that has the volume still runs and may write.",
		Next:  "restart that node, or let its container runtime go on; until then no other pod gets the volume"},
	Cause{ID: apiv1.ReasonKubeletDown, Outcome: NeedsAction,
		Seen: []string{apiv1.ReasonWaitingForVolume, apiv1.ReasonFailedAttachVolume},
		Means: "The node that has the volume runs, and its kubelet does not, so nothing ends the pods there or " +
			"unmounts the volume.",
		Next: "start the kubelet there again, or delete the pods there by force if the node is gone for ever"},
	Cause{ID: apiv1.ReasonPodEndsLate, Outcome: NeedsAction,
		Seen: []string{"Killing"},
		Means: "The pod should have ended, and its kubelet runs: a process of it cannot be killed, the container runtime " +
			"hangs, or a volume cannot be unmounted.",
		Next: "look on that node for a process of the pod in state D. One that waits for a filesystem which a " +
			"backup has frozen ends after fsfreeze --unfreeze at its mount. If there is none, let the container runtime go " +
			"on, or restart the node. What the kubelet waits for is in its log"},
	Cause{ID: apiv1.ReasonNodePluginDown, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonHeartbeatStale},
		Means: "Kubernetes sees the node that has the volume, and the driver's node plug-in there does not report.",
		Next:  "look at the node plug-in's pod on that node"},
	Cause{ID: apiv1.ReasonDiskDetaching, Outcome: Waits, On: []Object{OnAttachment}, Usually: time.Minute,
		Seen:  []string{apiv1.ReasonWaitingForVolume},
		Means: "Azure detaches the disk from the node that had it before."},
	Cause{ID: apiv1.ReasonDiskDetachFailed, Outcome: NeedsAction, On: []Object{OnAttachment},
		Seen:  []string{apiv1.ReasonFailedAttachVolume},
		Means: "Azure refuses to detach the disk from the node that had it before, or fails to. The driver repeats it.",
		Next:  "remove what Azure names"},
	Cause{ID: apiv1.ReasonGuardsFencedNode, Outcome: Waits, On: []Object{OnAttachment, OnVolume},
		Means: "The disk stays attached to the node until Azure has detached it from a lost node: only this node's " +
			"reservation keeps the lost one from writing."},
	Cause{ID: apiv1.ReasonWaitingForVolume, Outcome: Waits, On: []Object{OnPod},
		Means: "Another node has the volume, or Azure has not accepted to attach it yet. More is not readable with " +
			"these rights.",
		Next: "nothing: the event says what it waits for"},
	Cause{ID: apiv1.ReasonFailedAttachVolume, Outcome: NeedsAction, On: []Object{OnPod},
		Means: "The volume cannot be attached, as the event says. More is not readable with these rights.",
		Next:  "do what the event says, or ask an administrator of the cluster"},
)

var ofFailovers = group(groupFailover,
	Cause{ID: apiv1.ReasonVolumeFencing, Outcome: Waits, On: []Object{OnAttachment}, Usually: time.Minute,
		Seen:  []string{apiv1.ReasonFailoverStarted, multiAttach},
		Means: "The node that has the volume is lost, and the driver makes sure that it cannot write any more."},
	Cause{ID: apiv1.ReasonFailoverProven, Outcome: Waits, On: []Object{OnFailover}, Usually: 30 * time.Second,
		Seen:  []string{apiv1.ReasonFailoverUnblocked},
		Means: "The lost node cannot write any more, and the volume moves to another node."},
	Cause{ID: apiv1.ReasonNodeLost, Outcome: Waits, On: []Object{OnNode}, Usually: time.Minute,
		Means: "The node does not answer by two independent signals.",
		Next:  "nothing: the driver moves the volumes. Find out what happened to the node"},
	Cause{ID: apiv1.ReasonVMDown, Outcome: Waits, On: []Object{OnNode}, Usually: time.Minute,
		Means: "Azure says that the VM of the node is deallocated or deleted.",
		Next:  "nothing: the driver moves the volumes. Start the VM if it is needed"},
	Cause{ID: apiv1.ReasonVMStopped, Outcome: Waits, On: []Object{OnNode}, Usually: time.Minute,
		Means: "Azure says that the VM of the node is stopped, and not deallocated. A guest that hibernates by " +
			"itself looks the same, and continues with its memory, so pods that also write to volumes of other " +
			"drivers are left alone.",
		Next: "nothing: the driver moves its volumes. If the other pods are to move too, deallocate the VM, or " +
			"start it again"},
	Cause{ID: apiv1.ReasonHeartbeatStale, Outcome: Waits, On: []Object{OnNode},
		Means: "The node does not report, and nothing confirms yet that it is lost. This alone has no effect.",
		Next:  "nothing: the driver decides when a second signal is missing. If this lasts for minutes, look at the node"},
	Cause{ID: apiv1.ReasonNodeMaintenance, Outcome: Waits, On: []Object{OnNode},
		Means: "Azure pauses the VM of the node, as it had announced."},
	Cause{ID: apiv1.ReasonFencingHeldBack, Outcome: NeedsAction, On: []Object{OnNode},
		Seen: []string{apiv1.ReasonFailoverHeldBack},
		Means: "So many nodes seem lost at once that the fault may be in the network of the controller, so no " +
			"volume is taken from any node.",
		Next: "repair the network. For a node that is really gone, stop its VM (az vm stop), and the driver continues " +
			"with it"},
	Cause{ID: apiv1.ReasonFailoverDisabled, Outcome: NeedsAction,
		Seen:  []string{apiv1.ReasonNodeLost},
		Means: "The node is lost, and failover is switched off (controller.failover.enabled: false).",
		Next:  "start the node again, or delete the pods there by force"},
	Cause{ID: apiv1.ReasonOptedOut, Outcome: NeedsAction, On: []Object{OnNode, OnFailover},
		Seen: []string{apiv1.ReasonFailoverHeldBack},
		Means: "The pod, its claim or its Node has the annotation disk.csi.azure.com/failover: disabled, so its " +
			"volumes stay with the node if that is lost.",
		Next: "wait for the node, or delete the pod by force (kubectl delete pod --force). Remove the annotation " +
			"when it has served its purpose"},
	Cause{ID: apiv1.ReasonNoOwner, Outcome: NeedsAction, On: []Object{OnFailover},
		Seen:  []string{apiv1.ReasonFailoverHeldBack},
		Means: "No controller would create the pod on the lost node again, so its volumes stay with that node.",
		Next:  "delete the pod by force, and create it elsewhere"},
	Cause{ID: apiv1.ReasonDaemonSet, Outcome: NeedsAction, On: []Object{OnFailover},
		Seen:  []string{apiv1.ReasonFailoverHeldBack},
		Means: "The DaemonSet of the pod would create it on the lost node again, so its volumes stay with that node.",
		Next:  "start the node again, or delete the Node"},
	Cause{ID: apiv1.ReasonForeignVolume, Outcome: NeedsAction, On: []Object{OnFailover},
		Seen: []string{apiv1.ReasonFailoverHeldBack},
		Means: "The pod may also write to a volume that this driver cannot fence, so all its volumes stay with the " +
			"lost node.",
		Next: "make sure that the node is down, then delete the pod by force"},
	Cause{ID: apiv1.ReasonUnknownVolume, Outcome: NeedsAction, On: []Object{OnFailover},
		Seen:  []string{apiv1.ReasonFailoverHeldBack},
		Means: "A claim or a PersistentVolume of the pod does not exist, so nothing says what the pod writes to.",
		Next:  "make sure that the node is down, then delete the pod by force"},
	Cause{ID: apiv1.ReasonSharedVolume, Outcome: NeedsAction, On: []Object{OnFailover},
		Seen:  []string{apiv1.ReasonFailoverHeldBack},
		Means: "The pod shares a volume with another pod on the lost node that is not moved.",
		Next:  "release the other pod first"},
	Cause{ID: apiv1.ReasonFailoverHeldBack, Outcome: NeedsAction, On: []Object{OnFailover},
		Means: "The volumes of the pod stay with the lost node, as the event says. More is not readable with these " +
			"rights.",
		Next: "do what the event says"},
	Cause{ID: apiv1.ReasonWriteRefused, Outcome: NeedsAction, On: []Object{OnNode, OnFailover},
		Seen: []string{apiv1.ReasonProvisioningFailed, apiv1.ReasonFailedAttachVolume},
		Means: "The cluster refuses a write of the driver, by its access rules or an admission policy, so the " +
			"driver does not go on.",
		Next: "allow the write that the event names"},
)
