package provisioner

import "context"

// The types of this file answer every call with the kind Unimplemented. An implementation embeds the one for its interface, and
// then still compiles with a version of this package that has more methods.
type (
	// UnimplementedCloud is a Cloud without resources: each of its parts is unimplemented.
	UnimplementedCloud struct{}
	// UnimplementedDisks is a Disks.
	UnimplementedDisks struct{}
	// UnimplementedSnapshots is a Snapshots.
	UnimplementedSnapshots struct{}
	// UnimplementedAttachments is an Attachments. No request waits.
	UnimplementedAttachments struct{}
	// UnimplementedInstances is an Instances.
	UnimplementedInstances struct{}
	// UnimplementedSKUs is a SKUs.
	UnimplementedSKUs struct{}

	// UnimplementedHost is a Host: each of its parts is unimplemented.
	UnimplementedHost struct{}
	// UnimplementedDevices is a Devices. No disk is writable.
	UnimplementedDevices struct{}
	// UnimplementedTuner is a Tuner.
	UnimplementedTuner struct{}
	// UnimplementedFilesystems is a Filesystems. No command runs.
	UnimplementedFilesystems struct{}
	// UnimplementedMounts is a Mounts.
	UnimplementedMounts struct{}
	// UnimplementedReservations is a Reservations.
	UnimplementedReservations struct{}
)

// Disks returns an unimplemented part.
func (UnimplementedCloud) Disks() Disks { return UnimplementedDisks{} }

// Snapshots returns an unimplemented part.
func (UnimplementedCloud) Snapshots() Snapshots { return UnimplementedSnapshots{} }

// Attachments returns an unimplemented part.
func (UnimplementedCloud) Attachments() Attachments { return UnimplementedAttachments{} }

// Instances returns an unimplemented part.
func (UnimplementedCloud) Instances() Instances { return UnimplementedInstances{} }

// SKUs returns an unimplemented part.
func (UnimplementedCloud) SKUs() SKUs { return UnimplementedSKUs{} }

// Create is unimplemented.
func (UnimplementedDisks) Create(context.Context, DiskSpec) (Operation, error) {
	return nil, Unimplemented
}

// Get is unimplemented.
func (UnimplementedDisks) Get(context.Context, string) (Disk, error) { return Disk{}, Unimplemented }

// List is unimplemented.
func (UnimplementedDisks) List(context.Context, Scope) ([]Disk, error) { return nil, Unimplemented }

// Update is unimplemented.
func (UnimplementedDisks) Update(context.Context, string, DiskChange) (Operation, error) {
	return nil, Unimplemented
}

// Delete is unimplemented.
func (UnimplementedDisks) Delete(context.Context, string) (Operation, error) {
	return nil, Unimplemented
}

// Resume is unimplemented.
func (UnimplementedDisks) Resume(context.Context, string) (Operation, error) {
	return nil, Unimplemented
}

// Create is unimplemented.
func (UnimplementedSnapshots) Create(context.Context, SnapshotSpec) (Operation, error) {
	return nil, Unimplemented
}

// Get is unimplemented.
func (UnimplementedSnapshots) Get(context.Context, string) (Snapshot, error) {
	return Snapshot{}, Unimplemented
}

// List is unimplemented.
func (UnimplementedSnapshots) List(context.Context, Scope) ([]Snapshot, error) {
	return nil, Unimplemented
}

// Delete is unimplemented.
func (UnimplementedSnapshots) Delete(context.Context, string) (Operation, error) {
	return nil, Unimplemented
}

// Attach is unimplemented.
func (UnimplementedAttachments) Attach(context.Context, AttachRequest) (Operation, error) {
	return nil, Unimplemented
}

// Detach is unimplemented.
func (UnimplementedAttachments) Detach(context.Context, string, string) (Operation, error) {
	return nil, Unimplemented
}

// ForceDetach is unimplemented.
func (UnimplementedAttachments) ForceDetach(context.Context, string, string) (Operation, error) {
	return nil, Unimplemented
}

// List is unimplemented.
func (UnimplementedAttachments) List(context.Context, string) ([]Attachment, error) {
	return nil, Unimplemented
}

// ListMany is unimplemented.
func (UnimplementedAttachments) ListMany(context.Context, []string) (map[string][]Attachment, error) {
	return nil, Unimplemented
}

// Resume is unimplemented.
func (UnimplementedAttachments) Resume(context.Context, string) (Operation, error) {
	return nil, Unimplemented
}

// Waiting is unimplemented.
func (UnimplementedAttachments) Waiting(string, string) Waiting { return Waiting{} }

// Get is unimplemented.
func (UnimplementedInstances) Get(context.Context, string) (Instance, error) {
	return Instance{}, Unimplemented
}

// VM is unimplemented.
func (UnimplementedSKUs) VM(context.Context, string, string) (VMLimits, error) {
	return VMLimits{}, Unimplemented
}

// Disk is unimplemented.
func (UnimplementedSKUs) Disk(context.Context, string, string, int64) (DiskLimits, error) {
	return DiskLimits{}, Unimplemented
}

// Quota is unimplemented.
func (UnimplementedSKUs) Quota(context.Context, string, string, string) (DiskQuota, error) {
	return DiskQuota{}, Unimplemented
}

// Devices returns an unimplemented part.
func (UnimplementedHost) Devices() Devices { return UnimplementedDevices{} }

// Tuner returns an unimplemented part.
func (UnimplementedHost) Tuner() Tuner { return UnimplementedTuner{} }

// Filesystems returns an unimplemented part.
func (UnimplementedHost) Filesystems() Filesystems { return UnimplementedFilesystems{} }

// Mounts returns an unimplemented part.
func (UnimplementedHost) Mounts() Mounts { return UnimplementedMounts{} }

// Reservations returns an unimplemented part.
func (UnimplementedHost) Reservations() Reservations { return UnimplementedReservations{} }

// Find is unimplemented.
func (UnimplementedDevices) Find(context.Context, int32) (Device, error) {
	return Device{}, Unimplemented
}

// Hold is unimplemented.
func (UnimplementedDevices) Hold(context.Context, string) (release func(), err error) {
	return nil, Unimplemented
}

// Rescan is unimplemented.
func (UnimplementedDevices) Rescan(context.Context, string) (Device, error) {
	return Device{}, Unimplemented
}

// Flush is unimplemented.
func (UnimplementedDevices) Flush(context.Context, string) error { return Unimplemented }

// SetReadOnly is unimplemented.
func (UnimplementedDevices) SetReadOnly(context.Context, Device, bool) error { return Unimplemented }

// Writable is unimplemented.
func (UnimplementedDevices) Writable(context.Context) map[int32]Device { return nil }

// Read is unimplemented.
func (UnimplementedDevices) Read(context.Context, string) error { return Unimplemented }

// Partition is unimplemented.
func (UnimplementedTuner) Partition(context.Context, string, int) (Device, error) {
	return Device{}, Unimplemented
}

// Tune is unimplemented.
func (UnimplementedTuner) Tune(context.Context, string, []DeviceSetting) error { return Unimplemented }

// Probe is unimplemented.
func (UnimplementedFilesystems) Probe(context.Context, string) (fs Filesystem, blank bool, err error) {
	return Filesystem{}, false, Unimplemented
}

// Make is unimplemented.
func (UnimplementedFilesystems) Make(context.Context, string, Filesystem, FilesystemOptions) error {
	return Unimplemented
}

// Unmake is unimplemented.
func (UnimplementedFilesystems) Unmake(context.Context, string, Filesystem) error {
	return Unimplemented
}

// Renew is unimplemented.
func (UnimplementedFilesystems) Renew(context.Context, string, Filesystem, string) error {
	return Unimplemented
}

// Check is unimplemented.
func (UnimplementedFilesystems) Check(context.Context, string, Filesystem) error {
	return Unimplemented
}

// Grow is unimplemented.
func (UnimplementedFilesystems) Grow(context.Context, string, string) error { return Unimplemented }

// Frozen is unimplemented.
func (UnimplementedFilesystems) Frozen(context.Context, string, string) (bool, error) {
	return false, Unimplemented
}

// Progress is unimplemented.
func (UnimplementedFilesystems) Progress(string) string { return "" }

// Stop is unimplemented.
func (UnimplementedFilesystems) Stop(string) {}

// Stats is unimplemented.
func (UnimplementedFilesystems) Stats(context.Context, string) (FilesystemStats, error) {
	return FilesystemStats{}, Unimplemented
}

// Mount is unimplemented.
func (UnimplementedMounts) Mount(context.Context, string, string, string, []string) error {
	return Unimplemented
}

// Bind is unimplemented.
func (UnimplementedMounts) Bind(context.Context, string, string, bool, []string) error {
	return Unimplemented
}

// Sync is unimplemented.
func (UnimplementedMounts) Sync(context.Context, string) error { return Unimplemented }

// Unmount is unimplemented.
func (UnimplementedMounts) Unmount(context.Context, string) error { return Unimplemented }

// List is unimplemented.
func (UnimplementedMounts) List(context.Context) ([]MountPoint, error) { return nil, Unimplemented }

// Read is unimplemented.
func (UnimplementedReservations) Read(context.Context, string) (ReservationState, error) {
	return ReservationState{}, Unimplemented
}

// Register is unimplemented.
func (UnimplementedReservations) Register(context.Context, string, ReservationKey) error {
	return Unimplemented
}

// Unregister is unimplemented.
func (UnimplementedReservations) Unregister(context.Context, string, ReservationKey) error {
	return Unimplemented
}

// Reserve is unimplemented.
func (UnimplementedReservations) Reserve(context.Context, string, ReservationKey) error {
	return Unimplemented
}

// Release is unimplemented.
func (UnimplementedReservations) Release(context.Context, string, ReservationKey) error {
	return Unimplemented
}

// PreemptAndAbort is unimplemented.
func (UnimplementedReservations) PreemptAndAbort(context.Context, string, ReservationKey, ReservationKey) error {
	return Unimplemented
}

// Aborts is unimplemented.
func (UnimplementedReservations) Aborts(context.Context, string, ReservationKey) (bool, error) {
	return false, Unimplemented
}

// Preempt is unimplemented.
func (UnimplementedReservations) Preempt(context.Context, string, ReservationKey, ReservationKey) error {
	return Unimplemented
}

// Clear is unimplemented.
func (UnimplementedReservations) Clear(context.Context, string, ReservationKey) error {
	return Unimplemented
}
