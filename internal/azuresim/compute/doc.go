// Package compute is the model of Azure Compute: resource groups, disks, snapshots, VMs and scale
// sets, with the rules by which Azure accepts or refuses a change, and what each long-running
// operation does to them.
//
// A request is judged and its intent recorded in one store transaction, together with the operation
// that carries it out; the operation's effects on the data plane are made when it is due, and its
// result is recorded in one transaction with its final state. Check reports whether the whole is
// consistent, which it is between any two transactions.
//
// The package speaks domain types. The HTTP front end (package arm) translates.
package compute
