// Package plan holds the driver's decisions: who may claim a volume, what the
// next step of a volume or of an attachment is, where replicas go and which of
// them gives way.
//
// Everything in it is a pure function of its arguments: no I/O, no clock of its own, no memory. The
// callers, which are the reconcilers and the CSI controller server, observe, ask
// here what to do, do it, and write the status that they were given. So a
// process that is started again goes on where the last one was killed.
//
// The rules come from docs/adr/0001-hand-over-protocol.md and the laws in docs/explanation/architecture.md.
package plan
