// Package provisioner is the Provisioner Library: the contract between the driver and a platform,
// in the driver's terms.
//
// The cloud side (Cloud) creates disks and attaches them to virtual machines.
// The host side (Host) turns an attached disk into a mounted filesystem. Both
// are sets of small interfaces, one for each resource. The contract, that is
// idempotency, blocking and errors, stands in the comment of each method, and package
// conformance tests every implementation of the cloud side against it.
//
// Implementations: package azure (Azure Compute through Azure's SDK), package
// fake (in memory, for tests) and package host (Linux).
//
// # Compatibility
//
// The library, with the packages below this one, is v0: it may change with each version, as
// SUPPORT.md says. An interface gets more methods: an implementation outside of this repository
// embeds UnimplementedDisks and its like.
//
// # Errors
//
// Every error that leaves an implementation is, or wraps, one of the kinds in
// errors.go. Callers decide by errors.Is and never by the message.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. They honour their
// context: a call whose context ends returns soon, with the context's error. The
// work at the platform may go on nevertheless; all of it can be asked for again.
package provisioner
