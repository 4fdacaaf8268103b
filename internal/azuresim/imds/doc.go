// Package imds is the Azure Instance Metadata Service of one VM: what a program inside the VM asks
// to learn which VM it is in, which disks the VM has and which maintenance is announced, and to get
// a token of the VM's managed identity.
//
// `azuresim imds` serves one VM. It belongs into the network namespace that stands for the VM,
// where it may have Azure's address 169.254.169.254; on a host that address may be the host's own
// metadata service, so it is refused there.
//
// What is served comes from a Source. The one for ordinary use asks the ARM front end for the VM,
// as any client could, and keeps the answer for some seconds: the metadata service must not use up
// the VM's quota of ARM reads. Scheduled events come from the admin API and are never old.
package imds
