// Package csi is the CSI Node server: it stages, publishes, unpublishes and unstages volumes
// on this node, by the protocol of docs/adr/0001-hand-over-protocol.md.
//
// The order of the steps is what keeps two nodes from writing to one volume (laws 2 and 3) and a
// disk from being formatted twice (law 4):
//
//	stage:    announce in the report ─▶ read ownership and attachment at the API server ─▶ reserve the disk
//	          ─▶ record on this node ─▶ make the device writable ─▶ touch it ─▶ mount ─▶ confirm in the report
//	publish:  read ownership and attachment ─▶ stage in place if the staged epoch has ended or the device fails ─▶ bind
//	unpublish: sync what the pod has written ─▶ unmount
//	unstage:  begin in the report ─▶ record the device ─▶ unmount ─▶ flush ─▶ write-protect the device ─▶ flush
//	          ─▶ end the reservation ─▶ delete the record ─▶ remove the entry from the report ─▶ remove the staging path
//
// The process may be killed between any two of these steps, and every call can be repeated. The
// decisions are pure functions: ownership.MayStage, ownership.EpochOver, and stagingMount and
// planFormat in package filesystem. A command that changes a filesystem continues after its call
// has ended (progress.go).
//
// AnswerFences runs beside the calls: it takes the reservation of a disk from a node that was lost
// (docs/adr/0027-fencing-by-persistent-reservations.md).
//
// The steps are in these packages. Each imports only those below it:
//
//	filesystem  makes, checks and mounts a filesystem
//	device      finds the device and checks that it is the volume's
//	grant       reads at the API server whether the node may use the volume
//	reservation sends the commands of persistent reservations
//	usage       reads how a call of the kubelet uses a volume
//
// Every NodeStageVolume that fails ends in settle, which removes the record and the entry if
// nothing on the node uses the volume. If something remains on the node, the call fails with a code
// after which the kubelet calls NodeUnstageVolume later (docs/reference/final-codes.md).
// EndUnfinished takes the place of that call if the kubelet has forgotten the volume.
package csi
