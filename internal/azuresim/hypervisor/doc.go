// Package hypervisor makes the simulator's disks real: a disk is a sparse file, and an attachment
// is a block device over it that can be cut off.
//
// It runs as a process of its own, `azuresim hypervisor`, and obeys the ARM front end over a unix
// socket (NewClient). It decides nothing: who may attach what is the front end's affair. A front
// end that is stopped, upgraded or killed is not noticed by a mounted file system.
//
// # The path of a write
//
//	program in a VM ── file system ── page cache of the VM's device
//	                                        │
//	                                  /dev/loopN          one per attachment, direct I/O
//	                                        │
//	                                  FUSE file           one per attachment; here it can be cut  (cutFile)
//	                                        │
//	                                  disks/<uid>.img     one per disk
//
// Two VMs that share a disk have two devices with caches of their own over one file, as on Azure:
// what one has written and not flushed the other does not see, and a VM keeps seeing what it has
// read. A flush of the device (fsync in the VM) is an fdatasync of the disk's file. A discard gives
// the space back.
//
// The device is shown to the VM by the names that Azure's udev rules give it, as symlinks under
// DeviceDir: data/by-lun/<lun> and scsi1/lun<lun>. DeviceDir is there from EnsureVM on and keeps
// its inode, so that it can be bind-mounted to /dev/disk/azure in the VM's mount namespace before
// any disk is attached.
//
// # Fencing
//
// Detach, power-off and the end of the process cut attachments. What that means is exact, since the
// driver's promise to never have two writers rests on it:
//
//   - When Detach or PowerOff returns, no read, write, flush or discard of that attachment reaches
//     the disk any more. They fail with EIO: those that start later, those that the kernel had
//     queued, and those that a fault held back.
//   - A write that the VM was told is done is on the disk, if it was a direct or flushed one. One
//     that was in flight at the cut is either done before Detach returns, or failed and not on the
//     disk; there is nothing in between and nothing afterwards.
//   - What was only in the VM's cache is lost. An unmount or a sync afterwards, or the kernel's own
//     write-back, gets EIO. So a power cut is one: first PowerOff, then kill the VM's processes;
//     the other way round the kernel would write the cache back while it tidies up.
//   - PowerOff bars all of a VM's disks before it waits for any.
//
// The mechanism is one reader-writer lock per attachment (cutFile): an operation holds it for
// reading from before it looks at the bar until the disk's file has answered; a cut raises the bar
// and then takes the lock for writing. Faults that delay or hang operations act outside the lock,
// and so does waiting for a copy of the disk, for neither may delay a cut.
//
// After the cut the loop device is cleared. If something holds it still, for instance a stale mount
// in the namespace of a dead VM, the kernel keeps it, cut, until the last user is gone, and then
// frees it. A device that is attached again is always a new one: an old mount never works again.
//
// # Reservations
//
// A shared disk has SCSI-3 persistent reservations (package reservations). Execute runs a command
// about them for the VM that has a device, and each operation looks at the state: one that the
// reservation forbids fails with EBADE, as the kernel reports a reservation conflict. See exclusion
// for what happens to writes in flight.
//
// # Crashes
//
// The state directory has three parts: the disks' files (complete as soon as they have their name,
// durable before CreateDisk returns), attachments.json (each disk's VM and LUN, the VMs that are
// off, and the reservations; durable before Attach, Detach, PowerOff, PowerOn and Execute return),
// and the VMs' device directories.
//
// A hypervisor that is killed cuts everything by that: the kernel ends the FUSE connection, and
// every operation fails. The next one that is started on the directory takes away the loop devices
// of its predecessor, which it knows by the names of the files under them (azuresim-<ID of the
// state directory>-…), and no others; then it gives each VM that is on fresh devices under the LUNs
// that they had. No acknowledged step is lost. A step that was not acknowledged may have been done
// or not; every step can be repeated. The same happens in an orderly stop, which clears the devices
// itself.
//
// The FUSE file system is mounted nowhere (fuseMount), so there is no mount to be left behind. The
// state directory is locked while a hypervisor, or what is left of a killed one, is at work.
//
// # Why there are two processes
//
// A thread that waits for a FUSE file system can't be killed until it is answered. If it belongs to
// the process that should answer, that process can't end either, /dev/fuse stays open, and the
// kernel's loop driver hangs for every process on the machine. Therefore everything that makes the
// kernel ask the file system happens in a child process, the agent; and a program that runs a
// Hypervisor in itself (New) must not use its devices itself.
//
// # Limits
//
// A copy of a disk (CreateDisk with a source) makes the source's writers wait until it is done:
// instantly where the state directory's file system can share blocks (XFS, btrfs), else as long as
// copying the allocated part takes. A cut does not wait for it.
package hypervisor
