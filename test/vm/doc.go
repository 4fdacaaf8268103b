// Package vm tests the host library on devices that the development machine does not have: SCSI
// disks that come, go and grow, NVMe namespaces, and targets of Linux with persistent reservations.
// `make vm-test` runs it, in a virtual machine that test/vm/init starts. The tests have the build
// tag vm, so that nothing else runs them.
package vm
