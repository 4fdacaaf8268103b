// Package recorder is the workload by which the playground's scenarios judge a
// driver, and the Collector that it reports to.
//
// The writer appends numbered, checksummed records to one file, makes each durable
// with fsync, and only then reports its number to a Collector outside the node. The
// Collector keeps every number with the time of its arrival. What was reported must
// be on the disk for good, whatever happened to the node in between; package history
// compares the two.
//
// Invariants: the file is only ever appended to, also after damage; a number is
// reported after its fsync returned and never before; a writer that cannot reach
// the Collector continues to write and reports later, so that a node that is cut off
// is still watched by what it left on the disk.
//
// cmd/recorder runs the writer inside a pod, package scenario runs the Collector.
package recorder
