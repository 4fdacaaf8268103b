// Package arm is the HTTP front of the simulator: it routes Azure Resource Manager calls, checks
// tokens and quotas, applies faults, translates between Azure's JSON and package compute, and
// dresses long-running operations in Azure's headers. It decides nothing about resources.
package arm
