package provisioner

import (
	"context"
	"time"
)

// Host is the node side of the platform: what an attached disk becomes.
type Host interface {
	Devices() Devices
	Tuner() Tuner
	Filesystems() Filesystems
	Mounts() Mounts
	Reservations() Reservations
}

// Devices finds the block device of an attached disk.
type Devices interface {
	// Find waits until the disk at the LUN shows up on this node, or ctx ends, and returns it. It
	// waits for events, and rescans the bus. Errors: NotFound when ctx ended before the device
	// came.
	Find(ctx context.Context, lun int32) (Device, error)
	// Hold opens the device until release is called. As long as it is open, the kernel gives its path
	// to no other device, also if this one disappears. Errors: Unavailable when it cannot be opened.
	Hold(ctx context.Context, path string) (release func(), err error)
	// Rescan makes the kernel read the size of the device again and drop its cache of the content,
	// which another node may have changed since, and returns the device after that. Errors:
	// Unavailable when the device cannot be opened.
	Rescan(ctx context.Context, path string) (Device, error)
	// Flush writes the kernel's dirty data to the device. A device that is gone is a success. It ends
	// the freeze of a filesystem on it that has no mount any more. Errors: Conflict with the fault
	// DeviceHeld, which names the holder, while anything on this node holds the device, also a mount in
	// another mount namespace; Unavailable when the device does not take the data.
	Flush(ctx context.Context, path string) error
	// SetReadOnly write-protects the device, and the disk of a partition, on this node, or removes
	// the protection, and reads it back. The kernel refuses the writes of processes to a protected
	// device, also by a file that was opened, or a loop device that was made, before. It does not
	// refuse what the kernel itself writes: dirty data, a filesystem, the device mapper, and a
	// mapping of the device that a process has made before. Reservations work as before. The
	// protection ends with the device. It can be repeated. Errors: NotFound when the device is gone,
	// also if another one has its path; Unavailable when the protection cannot be changed.
	SetReadOnly(ctx context.Context, device Device, readOnly bool) error
	// Writable returns the data disks of this node that are not write-protected, by LUN. It does not
	// wait for any. A disk that fails is left out.
	Writable(ctx context.Context) map[int32]Device
	// Read reads a block of the device past every cache: whether the disk still answers this node.
	// Errors: NotFound when the device is gone; Unavailable when the read fails, or ctx ends first.
	Read(ctx context.Context, path string) error
}

// Tuner finds the parts of a disk, and changes the kernel's settings for it. It is apart from
// Devices because most volumes need neither.
type Tuner interface {
	// Partition returns the partition of the disk with the number; the first is 1. Errors:
	// FailedPrecondition for a disk without that partition; Unavailable when the disk cannot be
	// opened.
	Partition(ctx context.Context, disk string, number int) (Device, error)
	// Tune writes settings of the kernel for a disk, in their order, and stops at the first that
	// fails. Repeating it changes nothing. Errors: InvalidArgument for a path that leads out of the
	// disk's own settings, for a setting that the disk does not have, and for a value that the
	// kernel refuses; Unavailable when it cannot be written for another reason.
	Tune(ctx context.Context, disk string, settings []DeviceSetting) error
}

// DeviceSetting is a value for one of the kernel's settings of a disk.
type DeviceSetting struct {
	// Path below the disk's directory in sysfs, as in "queue/scheduler".
	Path  string
	Value string
	// Optional settings are left out for a disk that does not have them.
	Optional bool
	// Ceiling is the path of the setting that says how large a number the disk takes here; a larger
	// Value is cut down to it. "" for none.
	Ceiling string
}

// Device is a block device on this node.
type Device struct {
	// Path of the device node, with links resolved, as in "/dev/sdc".
	Path string
	// SizeBytes of the device.
	SizeBytes int64
	// Sequence is the kernel's number of the disk: no other disk has it until the next boot. 0 if it
	// is not known, as before Linux 5.15.
	Sequence uint64
}

// DeviceCounters are the kernel's counters of a device, from when the device appeared.
type DeviceCounters struct {
	// Reads and Writes that have ended.
	Reads, Writes uint64
	// ReadBytes and WrittenBytes by them.
	ReadBytes, WrittenBytes uint64
	// ReadTime and WriteTime are the sums of their durations.
	ReadTime, WriteTime time.Duration
	// BusyTime is how long a request was in flight.
	BusyTime time.Duration
}

// Filesystem is what a device carries.
type Filesystem struct {
	// Type as in "ext4".
	Type string
	// UUID in lower case.
	UUID string
}

// FilesystemOptions are the options with which a filesystem is made; 0 is the default of mkfs.
type FilesystemOptions struct {
	// BlockSize and InodeSize in bytes; of ext and xfs.
	BlockSizeBytes, InodeSizeBytes int64
	// BytesPerInode is the size for which there is one inode, and NumberOfInodes their number; of
	// ext.
	BytesPerInode, NumberOfInodes int64
}

// Filesystems reads, makes, checks and grows filesystems. Make, Renew, Check and Grow run commands
// that can take longer than a caller waits. They return when the command has ended, also after the
// end of ctx: a command that was killed and started over with each call would never finish. Errors
// of these four: Conflict while another command works on the device.
type Filesystems interface {
	// Probe returns the filesystem on the device and whether the device is blank. Blank means that
	// no signature of anything is found on it and that its first and last MiB read as zeroes.
	// Errors: Unavailable when the device cannot be read.
	Probe(ctx context.Context, device string) (fs Filesystem, blank bool, err error)
	// Make makes the filesystem fs, with the type and the UUID that the caller chose, on a device
	// that Probe called blank. It probes again itself and refuses, with FailedPrecondition, a
	// device that is not blank. Errors: InvalidArgument for a type that cannot be made, and for
	// options that the type does not take.
	Make(ctx context.Context, device string, fs Filesystem, options FilesystemOptions) error
	// Unmake makes a device blank again on which a Make of fs was interrupted. A caller may call it
	// only if it recorded before that Make that the device was blank, and knows that the device was
	// not used since. Errors: FailedPrecondition for a device that has anything but fs or the rest
	// of an interrupted Make of it.
	Unmake(ctx context.Context, device string, fs Filesystem) error
	// Renew gives the filesystem fs on a device that nothing uses another UUID, so that a copy of a
	// disk can be mounted beside the disk that it was made from. It replays the journal first, and
	// changes nothing else of the content. If it is interrupted, fs has the old or the new UUID,
	// and it can be called again; it succeeds if the filesystem already has the new UUID. Errors:
	// FailedPrecondition for a device that has anything else, or a filesystem that must be repaired
	// manually; Conflict while anything holds the device; InvalidArgument for a type that cannot be
	// made.
	Renew(ctx context.Context, device string, fs Filesystem, uuid string) error
	// Check replays the journal and repairs what can be repaired without questions. A clean
	// filesystem with features that the host's program does not know is left as it is.
	// Errors: FailedPrecondition with the fault FilesystemDamaged if the filesystem must be repaired
	// manually.
	Check(ctx context.Context, device string, fs Filesystem) error
	// Grow grows a filesystem to the size of its device; no change is a success. It is called
	// before the mount, with mountPath "", and again after it: each host does the part that it can
	// do then.
	Grow(ctx context.Context, device, mountPath string) error
	// Progress describes the command that Make, Renew, Check or Grow runs on the device now, with
	// how long and how far; "" for none.
	Progress(device string) string
	// Stop ends a Check that runs on the device, and does not wait for the end. Other commands
	// would leave a filesystem behind that cannot be used, so they continue.
	Stop(device string)
	// Frozen reports whether a filesystem that is mounted from the device for writing is frozen, as a
	// backup does it. It is known of ext3 and ext4 with a journal, and false for all others. It reads
	// the kernel's cache, and neither waits for the end of a freeze nor ends it. Errors: Unavailable
	// when the device cannot be read.
	Frozen(ctx context.Context, device, fsType string) (bool, error)
	// Stats returns the use of the filesystem mounted at path.
	Stats(ctx context.Context, path string) (FilesystemStats, error)
}

// FilesystemStats is the use of a filesystem.
type FilesystemStats struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64
}

// Mounts mounts and unmounts.
type Mounts interface {
	// Mount mounts a device at a directory, which is made if it is missing. A directory where the
	// same device is mounted already is a success. Errors: InvalidArgument for a call that mount
	// does not understand; Unavailable if the device does not answer; without a kind if the device
	// answers and the mount fails nevertheless, as for options that the filesystem does not know.
	// The messages are mount's own.
	Mount(ctx context.Context, device, target, fsType string, options []string) error
	// Bind bind-mounts source (directory or device node) at target, which is made if it is missing,
	// as a directory or a file like source. Idempotent; readOnly is applied by a remount. Errors:
	// AlreadyExists where source is bound read-only already, though it is not read-only itself, and
	// was asked for with writing; FailedPrecondition where something else is mounted.
	Bind(ctx context.Context, source, target string, readOnly bool, options []string) error
	// Sync writes the data of what is mounted at target to its disk: of the whole filesystem, or, for
	// a bind mount of a device node, of the device. It holds neither the mount nor the device after it
	// has returned, and does not prevent an unmount while it runs. A target that is not mounted, and a
	// filesystem that is mounted read-only there, is a success. Errors: Unavailable when the device
	// does not take the data, or has taken none for 30 seconds; ctx's error when ctx ends first: the
	// kernel continues to write.
	Sync(ctx context.Context, target string) error
	// Unmount unmounts target and removes it. If it is the last mount of a filesystem that is frozen,
	// it ends the freeze first. A target that is not mounted, or missing, is a success. Errors: Conflict
	// with the fault MountBusy, which names what is mounted below, while something uses the mount.
	Unmount(ctx context.Context, target string) error
	// List returns the mount points of this node.
	List(ctx context.Context) ([]MountPoint, error)
}

// MountPoint is a mount of this node.
type MountPoint struct {
	// Source is the device with links resolved; for a bind mount of a device node, the device node.
	Source string
	Target string
	FSType string
	// ReadOnly mount.
	ReadOnly bool
	// Sealed says that the filesystem itself takes no writes: it was mounted so, or the kernel has
	// shut it down after an error.
	Sealed bool
}
