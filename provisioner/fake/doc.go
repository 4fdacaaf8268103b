// Package fake is a platform in memory that implements provisioner.Cloud, for tests.
//
// It keeps every rule that the contracts name: shares, slots, zones, one owner for a
// disk that is not shared, no deletion while attached, calls for one VM that join the next
// one, attaches of a shared disk one after the other. The conformance suite holds it to the same
// behaviour as package azure.
//
// Operations end at once, or after the latencies of Options on the injected clock. No
// goroutine runs without the test's knowledge: effects that are due happen at the next call.
//
// Faults are injected with Inject; Calls returns the calls, and State the resources.
package fake
