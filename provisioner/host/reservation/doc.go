// Package reservation implements provisioner.Reservations on Linux. It needs root.
//
// Changes are the ioctls of linux/pr.h (Documentation/block/pr.rst), which the kernel has for SCSI
// disks and NVMe namespaces. They cannot read what is registered, so the state is read by a command
// to the device: PERSISTENT RESERVE IN through SG_IO (SPC-4, section 6.15), or Reservation Report
// through the kernel's NVMe passthrough (NVM Express Base Specification 2.0, section 7.3).
//
// What is not obvious:
//   - An ioctl of linux/pr.h returns a positive number if the disk refused the command. From Linux
//     6.2 on, the numbers are those of enum pr_status for SCSI and NVMe; before, they are SCSI's or
//     NVMe's own status.
//   - Both drivers of the kernel take the first key of struct pr_preempt for the caller's and the
//     second for the victim's. The names in the header, old_key and new_key, suggest something
//     else.
//   - The kernel's NVMe driver makes no Unregister of a new key 0. Unregister is sent by
//     passthrough there.
//   - NVMe targets, Linux's own among them, refuse to replace or to remove a registration that does
//     not exist, also if the former key is ignored.
//   - Devices are opened for reading: closing a device that was open for writing makes udev probe
//     it again.
package reservation
