// Package nodereport keeps this node's AzDriverNode: the heartbeat, and the report of the
// volumes that are staged here, which is the node's half of laws 2 to 4.
//
// The report is a write-ahead log. An entry is written before the first effect on a
// device and removed after the last, so it always names at least the volumes that are in use. The controller
// takes a volume's absence from it for the proof that the node let go (law 3a), and
// therefore an entry must never be missing:
//
//   - Only this package writes the report, one write at a time, each a compare-and-swap.
//   - Whatever the first write of a process is, it carries the result of a scan of the node's mounts, and only
//     such a write sets status.mountsScannedTime.
//   - From then on the process knows better than the object: every write puts its own entries in place of those read, so that an entry
//     that was edited out, or an object that was deleted or restored, is corrected by the next write. For this there is
//     one process at a time (Records.Lock).
//   - The report carries a digest of what it proves, so that the controller can tell a report that the node did not write
//     (ownership.ReportProvesAbsence, docs/adr/0018-the-node-owns-its-report.md).
//
// What the mounts do not show, raw block volumes and formats that were cut short,
// is kept in one small file for each volume on the node (Records).
//
// Callers: internal/csi/node for the entries, cmd for the heartbeat.
package nodereport
