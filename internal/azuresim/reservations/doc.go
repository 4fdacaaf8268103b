// Package reservations is what a shared disk does with persistent reservations (SPC-4, section
// 5.13): the state of one disk, and the commands PERSISTENT RESERVE OUT and IN that change and read
// it. It does no I/O; package hypervisor keeps the states and applies them to reads and writes.
//
// An initiator is a VM. As on Azure, it can be registered once with each disk.
//
// Not simulated: unit attentions, which a kernel would hide from programs, REGISTER AND MOVE,
// SPEC_I_PT, and targets with several ports. State that was registered without APTPL survives a
// restart too.
package reservations
