// Package node is the CSI Node server: it stages, publishes and takes back volumes
// on this node, by the protocol of docs/adr/0001-hand-over-protocol.md.
//
// The order of the steps is what keeps two nodes from writing to one volume (laws 2 and 3) and a disk
// from being formatted twice (law 4):
//
//	stage:    announce in the report ─▶ read claim and attachment at the API server ─▶ record on this node
//	          ─▶ touch the device ─▶ mount ─▶ confirm in the report
//	publish:  read the claim and the attachment ─▶ stage in place if what is staged is of an epoch that is over, or dead ─▶ bind
//	unstage:  say so in the report ─▶ record the device ─▶ unmount ─▶ flush ─▶ delete the record ─▶ forget in the report
//	          ─▶ remove the staging path
//
// The process may be killed between any two of these steps; every call can be repeated. What must be decided is
// decided by pure functions: MayStage (decision.go), epochOver and stagingMount (epoch.go), and planFormat (format.go).
// Commands that change a filesystem outlive their call (work.go).
//
// Every NodeStageVolume that fails ends in settle, which takes the record and the entry back if nothing on the node uses the volume. If something
// stays behind, the call fails with a code after which the kubelet calls NodeUnstageVolume later (docs/reference/final-codes.md).
package node
