package cause

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// Condition is a type of condition, a row of the page docs/reference/conditions.md.
type Condition struct {
	// Kind of the object that has it.
	Kind string
	// Type is the condition's type.
	Type string
	// Writer is the program that writes it.
	Writer string
	// Informs says that True and False are both healthy. True is the healthy status of all others.
	Informs bool
	// True, False and Unknown are what the condition says with that status; "" for one that it never has.
	True, False, Unknown Meaning
}

// Meaning is what a condition says with one status.
type Meaning struct {
	Text string
	// Reasons are IDs of the table of causes. There are others if Open.
	Reasons []string
	// Open says that the reason may also be any cause of the table for which a disk is not attached, or a
	// node cannot be reached.
	Open bool
}

const (
	controller = "controller"
	nodePlugIn = "node plug-in"
)

// Conditions returns the types of conditions, by kind.
func Conditions() []Condition { return conditions }

var conditions = []Condition{
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionReady, Writer: controller,
		True: Meaning{Text: "The disk exists.", Reasons: []string{apiv1.ReasonDiskCreated, apiv1.ReasonDiskUpdating,
			apiv1.ReasonDiskUpdateFailed, apiv1.ReasonVolumeDeletionHeld, apiv1.ReasonDiskKept}},
		False: Meaning{Text: "The disk does not exist yet, or is being deleted.", Reasons: []string{apiv1.ReasonDiskCreating,
			apiv1.ReasonDiskFilling, apiv1.ReasonDiskCreationFailed, apiv1.ReasonDiskDeleting, apiv1.ReasonDiskDeletionFailed}},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionUpdated, Writer: controller,
		True: Meaning{Text: "The disk is as the spec asks, or becomes so while it can be used.",
			Reasons: []string{apiv1.ReasonDiskUpdated, apiv1.ReasonDiskConverting, apiv1.ReasonDiskConverted}},
		False: Meaning{Text: "The disk is not as the spec asks.",
			Reasons: []string{apiv1.ReasonDiskUpdating, apiv1.ReasonDiskUpdateFailed, apiv1.ReasonDiskUpdatePending,
				apiv1.ReasonDiskUpdateRefused}},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionDiskAsRecorded, Writer: controller,
		True: Meaning{Text: "The disk is as the driver made or adopted it, as far as the driver has read it since.",
			Reasons: []string{apiv1.ReasonDiskAsRecorded}},
		False: Meaning{Text: "The disk was changed outside the driver.", Reasons: []string{apiv1.ReasonDiskChanged}},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionWritesKept, Writer: controller,
		True: Meaning{Text: "No node has lost writes to the volume within a day.", Reasons: []string{apiv1.ReasonNoWritesLost}},
		False: Meaning{Text: "A node could not write all data to the disk. The condition stays False for a day.",
			Reasons: []string{apiv1.ReasonDiskFlushFailed}},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionUsable, Writer: controller,
		True: Meaning{Text: "No node reports a problem with the volume.", Reasons: []string{apiv1.ReasonNoProblem}},
		False: Meaning{Text: "A node that has the volume, or is to have it, has reported a problem for longer than 10 s.",
			Reasons: problem.Reasons},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionReplicasAttached, Writer: controller,
		True: Meaning{Text: "All wanted replicas are attached. None are wanted while no node uses the volume.",
			Reasons: []string{apiv1.ReasonReplicasAttached, apiv1.ReasonReplicasNotWanted}},
		False: Meaning{Text: "Replicas are missing, or one stays that is not wanted because it guards a fenced node.",
			Reasons: []string{apiv1.ReasonReplicasMissing, apiv1.ReasonGuardsFencedNode}},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionPublished, Writer: controller,
		True: Meaning{Text: "No pod waits for the volume.", Reasons: []string{apiv1.ReasonPublished}},
		False: Meaning{Text: "A pod has waited for the volume for longer than 3 s.",
			Reasons: []string{apiv1.ReasonStillMounted, apiv1.ReasonHeldByPods, apiv1.ReasonVolumeFencing,
				apiv1.ReasonFailoverProven, apiv1.ReasonDiskDetaching, apiv1.ReasonDiskDeleting,
				apiv1.ReasonKubeletDown}, Open: true},
	},
	{
		Kind: "AzVolume", Type: apiv1.VolumeConditionPaused, Writer: controller, Informs: true,
		True: Meaning{Text: "The driver begins nothing new at Azure for the volume, and places no replicas. What had begun before goes on.",
			Reasons: []string{apiv1.ReasonVolumePaused}},
		False: Meaning{Text: "The driver does its work.", Reasons: []string{apiv1.ReasonNotPaused}},
	},
	{
		Kind: "AzVolumeAttachment", Type: apiv1.AttachmentConditionAttached, Writer: controller,
		True: Meaning{Text: "The disk is attached to the node's VM.", Reasons: []string{apiv1.ReasonDiskAttached,
			apiv1.ReasonPrimaryHeld, apiv1.ReasonWaitingForProof, apiv1.ReasonGuardsFencedNode, apiv1.ReasonVolumeFenced,
			apiv1.ReasonVolumeFencing, apiv1.ReasonVolumePaused}},
		False: Meaning{Text: "The disk is not attached to the node's VM, or is not known to be.",
			Reasons: []string{apiv1.ReasonDiskAttaching, apiv1.ReasonWaitingForDiskSlot, apiv1.ReasonWaitingForAzureQuota,
				apiv1.ReasonNoDiskSlot, apiv1.ReasonVolumeNotReady, apiv1.ReasonNodeUnknown,
				apiv1.ReasonDiskAttachFailed, apiv1.ReasonCustodyUnknown,
				apiv1.ReasonDiskStillDetaching, apiv1.ReasonUsedOutsideCluster, apiv1.ReasonYieldsToAnotherCluster,
				apiv1.ReasonDiskDetachedOutside, apiv1.ReasonVMUnrecorded, apiv1.ReasonStatusRestored,
				apiv1.ReasonWaitingForProof, apiv1.ReasonPrimaryHeld, apiv1.ReasonGuardsFencedNode,
				apiv1.ReasonVolumeFencing, apiv1.ReasonVolumeFenced,
				apiv1.ReasonDiskDetaching, apiv1.ReasonDiskDetachFailed, apiv1.ReasonVolumePaused}},
		Unknown: Meaning{Text: "The attachment was re-created, and the driver has not looked yet, or fences the node.",
			Reasons: []string{apiv1.ReasonVolumeFencing, apiv1.ReasonNotYetKnown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionReady, Writer: controller,
		True: Meaning{Text: "PluginReady, Reachable and VMKnown are True.", Reasons: []string{apiv1.ReasonNodeUsable}},
		False: Meaning{Text: "One of them is False, and its reason is the reason.", Reasons: []string{apiv1.ReasonNodeLost,
			apiv1.ReasonVMDown, apiv1.ReasonVMStopped, apiv1.ReasonVMIDInvalid, apiv1.ReasonVMContradictsProviderID,
			apiv1.ReasonVMNamedTwice, apiv1.ReasonNodeUnknown, apiv1.ReasonStarting, apiv1.ReasonNotInCSINode,
			apiv1.ReasonRegistrationFailed, apiv1.ReasonStopped}},
		Unknown: Meaning{Text: "None is False, and one is Unknown: the node is silent, or new.", Reasons: []string{
			apiv1.ReasonHeartbeatStale, apiv1.ReasonNodeMaintenance, apiv1.ReasonFencingHeldBack, apiv1.ReasonNotYetKnown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionPluginReady, Writer: nodePlugIn,
		True: Meaning{Text: "The node plug-in can stage volumes, by its last report.",
			Reasons: []string{apiv1.ReasonRegistered, apiv1.ReasonServing}},
		False: Meaning{Text: "The node plug-in cannot stage volumes.", Reasons: []string{apiv1.ReasonStarting,
			apiv1.ReasonNotInCSINode, apiv1.ReasonRegistrationFailed, apiv1.ReasonStopped}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionReachable, Writer: controller,
		True: Meaning{Text: "The node reports.", Reasons: []string{apiv1.ReasonHeartbeatFresh}},
		False: Meaning{Text: "The node is lost.",
			Reasons: []string{apiv1.ReasonNodeLost, apiv1.ReasonVMDown, apiv1.ReasonVMStopped}},
		Unknown: Meaning{Text: "The node is silent, and is not held lost.", Reasons: []string{apiv1.ReasonHeartbeatStale,
			apiv1.ReasonNodeMaintenance, apiv1.ReasonFencingHeldBack}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionProbeable, Writer: controller,
		True: Meaning{Text: "The controller's probes reach the node.", Reasons: []string{apiv1.ReasonAnswersProbes}},
		False: Meaning{Text: "The kubelet's lease takes the place of the probes.",
			Reasons: []string{apiv1.ReasonProbesDisabled, apiv1.ReasonProbesContradicted}},
		Unknown: Meaning{Text: "No probe was answered yet.", Reasons: []string{apiv1.ReasonNotYetKnown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionVMKnown, Writer: controller,
		True: Meaning{Text: "The controller believes which VM the node is.", Reasons: []string{apiv1.ReasonVMEstablished}},
		False: Meaning{Text: "The controller does not believe it, and attaches no disk there.",
			Reasons: []string{apiv1.ReasonVMIDInvalid, apiv1.ReasonVMContradictsProviderID, apiv1.ReasonVMNamedTwice,
				apiv1.ReasonNodeUnknown}},
		Unknown: Meaning{Text: "The controller has not looked yet.", Reasons: []string{apiv1.ReasonNotYetKnown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionUndisturbed, Writer: controller,
		True: Meaning{Text: "Azure leaves the VM alone, as far as it has announced.",
			Reasons: []string{apiv1.ReasonNoMaintenance}},
		False: Meaning{Text: "Azure has announced maintenance for which the driver prepares.",
			Reasons: []string{apiv1.ReasonMaintenanceAnnounced, apiv1.ReasonMaintenancePodsMove}},
		Unknown: Meaning{Text: "Something is announced, and the controller has not looked yet.",
			Reasons: []string{apiv1.ReasonNotYetKnown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionInService, Writer: controller,
		True: Meaning{Text: "The driver has set no taint `node.kubernetes.io/out-of-service`, or has removed it.",
			Reasons: []string{apiv1.ReasonInService, apiv1.ReasonNodeBack}},
		False: Meaning{Text: "The driver sets the taint, because the VM is deallocated or gone.",
			Reasons: []string{apiv1.ReasonVMDown}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionFailoverEnabled, Writer: controller,
		True: Meaning{Text: "The Node does not opt out of failover.", Reasons: []string{apiv1.ReasonFailoverEnabled}},
		False: Meaning{Text: "The Node has the annotation `disk.csi.azure.com/failover: disabled`.",
			Reasons: []string{apiv1.ReasonOptedOut}},
	},
	{
		Kind: "AzDriverNode", Type: apiv1.NodeConditionGuards, Writer: nodePlugIn, Informs: true,
		True: Meaning{Text: "The node's reservation keeps fenced nodes from writing to volumes that it has not staged.",
			Reasons: []string{apiv1.ReasonNodeFenced}},
		False: Meaning{Text: "There is nothing to guard.", Reasons: []string{apiv1.ReasonNothingGuarded}},
	},
}
