// Package guest gives the processes of a VM the ioctls that Linux has for reservations of SCSI
// disks, and that the loop devices of package hypervisor lack: those of linux/pr.h, and PERSISTENT
// RESERVE IN and OUT through SG_IO. A program that fences with them runs in the simulator as it
// runs on Azure.
//
//	process of a VM ── ioctl ── kernel: a seccomp filter stops the call
//	                              │
//	                  azuresim guest serve: finds the device, does what the kernel's SCSI driver does
//	                              │
//	                  azuresim hypervisor: the disk
//
// `azuresim guest run` installs the filter and then becomes the VM's first program. All its
// descendants have the filter, also in containers. The kernel reports a stopped call to the process
// that has the filter's listener; `guest run` hands it to `guest serve` over a unix socket. Only
// the ioctls named here are stopped, and calls for other devices continue in the kernel. It needs
// Linux 5.19.
//
// A device tells which VM asks. If a process opens the device of another VM, which no VM of Azure
// could, it acts for that one, as with reads and writes.
//
// Not simulated: the kernel's check that a process may use the ioctls. A process that could open
// the device may.
package guest
