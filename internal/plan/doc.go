// Package plan has no code of its own. Each folder below it holds the decisions of one kind:
//
//	fencing       the commands to a disk that has persistent reservations
//	ownership     which node may use a volume; both halves of the hand-over
//	attaching     the next step of an AzVolumeAttachment
//	disk          the next step of an AzVolume's disk
//	placement     which nodes have replicas
//	lostnode      what is done for a node that is lost
//	publishing    to which nodes a volume is published, without VolumeAttachments
//	nodehealth    whether a node is lost: the failure detector
//	maintenance   what Azure has announced for a node's VM
//	identity      which VM a node is
//	claimstatus   what a claim is told about its volume
//	scaledown     which node an autoscaler must not take
//	refusal       the causes of refusals, by reason and by Azure's code
//	resourceid    what is a resource ID of Azure
//	operation     work at Azure, for attachment and disk
//
// Every decision is a pure function of its arguments: no I/O, no clock of its own, no memory. Only
// nodehealth.Detector has a state, which its caller keeps and passes observations to. The
// callers, which are the reconcilers and the CSI servers, observe, ask here what to do, do it, and
// write the status that they were given. A process that is started again therefore continues where
// the last one was killed.
//
// The rules come from docs/adr/0001-hand-over-protocol.md and the laws in
// docs/explanation/architecture.md.
package plan
