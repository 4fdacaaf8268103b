// Package nodereport writes this node's AzDriverNode: the heartbeat, and the report of the
// volumes that are staged on the node, which is the node's half of laws 2 to 4.
//
// The report is a write-ahead log. An entry is written before the first effect on a device and
// removed after the last, so it always names at least the volumes that are in use. The controller
// uses a volume's absence from the report as the proof that the node released the volume (law 3a),
// and therefore an entry must never be missing:
//
//   - Only this package writes the report, one write at a time, each a compare-and-swap.
//   - The first write of a process always has the result of a scan of the node's mounts, and only
//     such a write sets status.mountsScannedTime.
//   - From then on the process's own entries are right, not the object's: every write replaces the
//     entries that were read, so that the next write corrects an entry that was removed by an edit,
//     or an object that was deleted or restored. For this, only one process writes at a time
//     (Records.Lock).
//   - The report has a digest of what it proves, so that the controller recognises a report that
//     the node did not write (ownership.ReportProvesAbsence,
//     docs/adr/0018-the-node-owns-its-report.md).
//
// The mounts do not show raw block volumes and interrupted formats. For these the
// node keeps one small file for each volume (Records).
//
// Callers: internal/node/csi for the entries, cmd for the heartbeat.
package nodereport
