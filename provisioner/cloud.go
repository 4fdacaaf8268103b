package provisioner

import (
	"context"
	"time"
)

// Cloud is a platform on which disks can be created and attached.
type Cloud interface {
	Disks() Disks
	Snapshots() Snapshots
	Attachments() Attachments
	Instances() Instances
	SKUs() SKUs
}

// Operation is a long-running operation that the platform has accepted.
type Operation interface {
	// Token is an opaque text with which any process can resume the operation, also
	// after this one is gone; "" for an operation that had ended when it was begun.
	Token() string
	// Wait blocks until the operation has ended or ctx is done. It may be called
	// again, and by several goroutines. Polling adapts to the age of the operation
	// and to the platform's quota. Errors: any kind; Conflict when the platform let
	// another operation take this one's place, after which the truth must be read again.
	Wait(ctx context.Context) error
}

// DiskOperation is an Operation of Disks.Create whose last answer may describe the disk.
type DiskOperation interface {
	Operation
	// Disk is the disk as the platform described it when the operation ended; ok is false if
	// it did not. It is called after Wait has returned nil, and does no I/O.
	Disk() (disk Disk, ok bool)
}

// Disks creates, reads, changes and deletes managed disks. A DiskID is the
// resource ID at Azure, compared without regard to case.
type Disks interface {
	// Create asks for a disk and returns once the platform has accepted. It is idempotent by ID:
	// for a disk that exists and fits spec it returns an operation that has ended (or the one in
	// flight); a disk that differs in size, SKU, shares, zone or source is AlreadyExists, and is
	// not touched. The operation may be a DiskOperation. Errors: InvalidArgument (the parameters),
	// InsufficientCapacity (quota), NotFound (source or resource group), Conflict, and the general
	// ones.
	Create(ctx context.Context, spec DiskSpec) (Operation, error)
	// Get reads a disk. Errors: NotFound.
	Get(ctx context.Context, id string) (Disk, error)
	// List reads all disks of a resource group.
	List(ctx context.Context, scope Scope) ([]Disk, error)
	// Update makes a change, all of it in one call to the platform or none. A size that is not
	// larger than the disk's has no effect, nor has any other value that the disk already has. The
	// operation of a conversion to another SKU may end before the conversion does; see
	// Disk.CompletionPercent. Errors: NotFound, InvalidArgument (the platform never takes it for
	// this disk), FailedPrecondition (not while the disk is attached, or not yet), Conflict.
	Update(ctx context.Context, id string, change DiskChange) (Operation, error)
	// Delete asks for the disk's deletion. A disk that does not exist is a success. The platform
	// may delete a disk that is being attached, and the VM then keeps a disk that does not exist:
	// the caller makes sure that no attach is in flight. Errors: FailedPrecondition while it is
	// attached to any VM.
	Delete(ctx context.Context, id string) (Operation, error)
	// Resume returns the operation for a token from an earlier Create, Update or
	// Delete. Errors: InvalidArgument for a token that cannot be read.
	Resume(ctx context.Context, token string) (Operation, error)
}

// Snapshots creates, reads and deletes snapshots.
type Snapshots interface {
	// Create asks for a snapshot; idempotent by ID as Disks.Create is, AlreadyExists for another
	// source. Its operation ends when the content is fixed; Get shows the progress of a copy in the
	// background. Errors: NotFound (source), InvalidArgument, Conflict (a source that is not
	// complete, or busy).
	Create(ctx context.Context, spec SnapshotSpec) (Operation, error)
	// Get reads a snapshot. Errors: NotFound.
	Get(ctx context.Context, id string) (Snapshot, error)
	// List reads all snapshots of a resource group.
	List(ctx context.Context, scope Scope) ([]Snapshot, error)
	// Delete asks for the deletion; a snapshot that does not exist is a success.
	Delete(ctx context.Context, id string) (Operation, error)
}

// Attachments attaches disks to virtual machines and detaches them.
//
// Requests for one VM that arrive while a call for that VM is in flight travel
// together in the next call; a request for an idle VM is sent immediately, unless
// more requests for the VM are arriving. Attaches
// of one shared disk to several VMs are sent one after the other (Azure answers
// ConflictingUserInput to races), without delaying other disks.
type Attachments interface {
	// Attach asks for the disk to be attached and returns once the platform has
	// accepted the request, so that errors that the request causes are returned
	// here. The disk gets a LUN that is free and not one of OtherLUNs; find it with List when Wait
	// has returned. A disk that is attached already is a success, and keeps its LUN.
	// Errors: NotFound (VM or disk), InsufficientCapacity (no free slot or share),
	// InvalidArgument (wrong zone, wrong caching), FailedPrecondition (a disk that is not shared is
	// attached elsewhere), Conflict (being detached, or preempted).
	Attach(ctx context.Context, request AttachRequest) (Operation, error)
	// Detach asks for an orderly detach and returns once the platform has accepted it. A disk that
	// is not attached, and a VM that does not exist, are a success. Errors: Conflict if it is not
	// known whether the disk is attached, because of another operation on the VM.
	Detach(ctx context.Context, vmID, diskID string) (Operation, error)
	// ForceDetach cuts the disk off a VM that may not answer any more; writes that the VM has not
	// flushed are lost. It takes the place of other operations of that VM. A disk that is not
	// attached is a success; also then an attach of it to that VM, asked for before, has ended when
	// the forced detach has. Only for a node that is lost.
	//
	// The success of the operation proves that the VM cannot write to the disk, and nothing else
	// does. So it is a success only if the platform has completed the detach, or if the VM does not
	// list the disk, is Settled, and the disk does not name the VM in AttachedTo, or if the VM does
	// not exist. If the operation fails, the VM may write to the disk, whatever List says. The same
	// holds of an operation that is resumed. Errors: Conflict if there is no proof,
	// FailedPrecondition if the VM's state forbids a detach, as when it is hibernated.
	ForceDetach(ctx context.Context, vmID, diskID string) (Operation, error)
	// List reads the data disks of a VM from the platform, not from a cache. They are the VM's goal
	// state: the platform may list a disk as soon as an attach is accepted, and stop listing it as
	// soon as a detach is accepted, also if the operation fails. So the answer proves neither that
	// a VM has a disk nor that it has not. Errors: NotFound for a VM that does not exist.
	List(ctx context.Context, vmID string) ([]Attachment, error)
	// ListMany reads the data disks of many VMs with few requests, if the platform has lists of
	// VMs; such a read is Deferrable. The result is by lower-case VM ID. It leaves out VMs that the
	// lists do not have, and those for which a list would cost more than List, and may have others.
	// A list may lag behind List, and a VM that is left out may exist: the answer proves nothing,
	// and a caller that acts on it asks List first. If a list fails, the error is returned with the
	// answers of the others.
	ListMany(ctx context.Context, vmIDs []string) (map[string][]Attachment, error)
	// Resume returns the operation for a token from an earlier Attach, Detach or
	// ForceDetach. Errors: InvalidArgument for a token that cannot be read.
	Resume(ctx context.Context, token string) (Operation, error)
	// Waiting says what a request of this process that the platform has not accepted
	// yet waits for. It does no I/O.
	Waiting(vmID, diskID string) Waiting
}

// Waiting is what a request waits for before the platform accepts it.
type Waiting struct {
	// For is "" if no request waits.
	For WaitingFor
	// Since is when it began to wait for that, and Until the expected end; zero if not known.
	Since, Until time.Time
}

// WaitingFor is a reason to wait.
type WaitingFor string

// The reasons to wait.
const (
	// WaitingForMore: the call waits a short time for further requests for the VM.
	WaitingForMore WaitingFor = "More"
	// WaitingForQuota: the quota for updates of the VM is used up.
	WaitingForQuota WaitingFor = "Quota"
	// WaitingForUpdate: another update of the VM is in flight.
	WaitingForUpdate WaitingFor = "Update"
	// WaitingForAnswer: the platform has been asked, and has not answered.
	WaitingForAnswer WaitingFor = "Answer"
)

// Instances reads virtual machines and scale-set instances.
type Instances interface {
	// Get reads a VM with its power state from the platform, not from a cache.
	// Errors: NotFound for a VM that does not exist.
	Get(ctx context.Context, vmID string) (Instance, error)
}

// SKUs reads the offers of the platform in a region, and whether the subscription may use them.
// Answers about offers may be cached for a day, answers about quotas for a minute.
type SKUs interface {
	// VM returns what a VM size can take. Errors: NotFound for a size that the region does not
	// list.
	VM(ctx context.Context, location, vmSize string) (VMLimits, error)
	// Disk returns what a disk of a SKU and size may have. Errors: NotFound for a
	// SKU that the region does not offer, InvalidArgument for a size out of its range.
	Disk(ctx context.Context, location, skuName string, sizeBytes int64) (DiskLimits, error)
	// Quota returns how much of a disk SKU a subscription may still create in a region; the
	// driver's own subscription if subscriptionID is "". Quotas are of the region; no zone has one
	// of its own. Errors: NotFound for a SKU that has none, Unauthorized if the credentials do not
	// allow to read quotas, and the general ones.
	Quota(ctx context.Context, subscriptionID, location, skuName string) (DiskQuota, error)
}

// Scope is a resource group of a subscription.
type Scope struct {
	SubscriptionID string
	ResourceGroup  string
}

// DiskSpec describes a disk to create.
type DiskSpec struct {
	// ID is the resource ID that the disk shall have.
	ID string
	// Location as in "eastus".
	Location string
	// Zone as in "1"; "" for a regional or zone-redundant disk.
	Zone string
	// SizeBytes is a multiple of 1 GiB.
	SizeBytes int64
	// MaxShares is the number of VMs that may attach the disk at once, from 1.
	MaxShares int32
	// SourceID is the resource ID of the disk or snapshot to copy; "" for an empty disk.
	SourceID string
	DiskSettings
	ImmutableDiskSettings
}

// Disk is a disk as the platform sees it.
type Disk struct {
	// ID is the resource ID.
	ID string
	// UniqueID is given by the platform and never used again for another disk.
	UniqueID  string
	Location  string
	Zone      string
	SizeBytes int64
	MaxShares int32
	SourceID  string
	// AttachedTo are the resource IDs of the VMs that have it attached.
	AttachedTo []string
	// Ready says that the disk is provisioned and can be attached.
	Ready bool
	// CompletionPercent of the background copy that fills the disk; 100 where there is none.
	CompletionPercent float64
	// DiskSettings and ImmutableDiskSettings are the other settings of the disk at the platform.
	DiskSettings
	ImmutableDiskSettings
}

// SnapshotSpec describes a snapshot to create.
type SnapshotSpec struct {
	// ID is the resource ID that the snapshot shall have.
	ID string
	// SourceID is the resource ID of a disk, or of the incremental snapshot to copy to another
	// region.
	SourceID string
	// Location is the source's for a snapshot of a disk; another one makes a copy in the
	// background.
	Location            string
	Incremental         bool
	NetworkAccessPolicy string
	PublicNetworkAccess string
	DiskAccessID        string
	// DataAccessAuthMode is "None" or "AzureActiveDirectory"; "" for the platform's default.
	DataAccessAuthMode string
	// InstantAccessMinutes, from 60 to 300, makes a snapshot of an Ultra or Premium v2 disk usable
	// for this many minutes while its background copy runs; 0 turns it off.
	InstantAccessMinutes int64
	Tags                 map[string]string
}

// Snapshot is a snapshot as the platform sees it.
type Snapshot struct {
	ID        string
	SourceID  string
	Location  string
	SizeBytes int64
	Created   time.Time
	Tags      map[string]string
	// Incremental says that it holds the changes since the former snapshot.
	Incremental bool
	// CompletionPercent of the background copy; 100 where there is none.
	CompletionPercent float64
	// Cut says that its content is fixed, although a background copy may still be on its way.
	Cut bool
	// Ready says that a disk can be created from it.
	Ready bool
	// CopyFailure is why the background copy has failed permanently; "" if it has not.
	CopyFailure string
}

// AttachRequest asks for a disk on a VM.
type AttachRequest struct {
	// VMID is the resource ID of a VM or scale-set instance.
	VMID string
	// DiskID is the resource ID of the disk.
	DiskID string
	// CachingMode is None, ReadOnly or ReadWrite; None for shared disks.
	CachingMode string
	// Shared says that the disk may be attached to several VMs; it is then serialised over VMs.
	Shared bool
	// DiskEncryptionSetID is the disk's encryption set, if it has one.
	DiskEncryptionSetID string
	// WriteAccelerator turns the write accelerator on.
	WriteAccelerator bool
	// OtherLUNs returns the LUNs at which other disks are recorded for the VM. Such a LUN can be
	// free, if the other disk was detached outside the driver. A node that looks for the other disk
	// there must not find this one. It is called when the request is sent, must not block, and may
	// be nil.
	OtherLUNs func(context.Context) ([]int32, error)
}

// Attachment is a data disk of a VM.
type Attachment struct {
	DiskID string
	LUN    int32
	// Detaching says that the disk is being detached and still attached.
	Detaching bool
}

// PowerState is whether a VM can run code.
type PowerState string

// The power states that the driver distinguishes.
const (
	// PowerRunning: the VM runs, or may run: also starting and stopping.
	PowerRunning PowerState = "Running"
	// PowerStopped: the VM is stopped and its disks stay attached to it.
	PowerStopped PowerState = "Stopped"
	// PowerDeallocated: the VM holds no host; it cannot write.
	PowerDeallocated PowerState = "Deallocated"
	// PowerHibernated: the VM holds no host and is hibernated, or the platform does not tell that
	// from deallocated. If it is started, it goes on with its mounts and dirty pages.
	PowerHibernated PowerState = "Hibernated"
	// PowerUnknown: the platform does not say.
	PowerUnknown PowerState = "Unknown"
)

// Instance is a virtual machine or scale-set instance.
type Instance struct {
	ID       string
	Name     string
	Size     string
	Location string
	Zone     string
	Power    PowerState
	// DataDisks are the data disks that the VM is to have. See Attachments.List.
	DataDisks []Attachment
	// Settled reports that no operation on the VM is in flight, and that the last one succeeded.
	Settled bool
}

// Down reports whether the VM is stopped or deallocated, so that it cannot write now. A VM that is
// hibernated does not count.
func (i Instance) Down() bool { return i.Power == PowerStopped || i.Power == PowerDeallocated }

// DiskLimits is what a disk of one SKU and size may have.
type DiskLimits struct {
	// MinSizeBytes and MaxSizeBytes are of the SKU, whatever the size that was asked about.
	MinSizeBytes int64
	MaxSizeBytes int64
	// MaxShares of a disk of the size.
	MaxShares int32
	// Zones in which the SKU is offered; none for a region without zones.
	Zones []string
}

// VMLimits is what a VM of one size can take.
type VMLimits struct {
	// MaxDataDisks is the largest number of data disks; the OS disk does not count.
	MaxDataDisks int32
	// PremiumIO says that disks of the Premium SKUs can be attached.
	PremiumIO bool
	// UltraZones are the zones in which Ultra disks can be attached to the size, and UltraRegional
	// reports whether they can be outside of the zones. The VM has to have been made with Ultra
	// disks enabled besides.
	UltraZones    []string
	UltraRegional bool
	// UncachedIOPS and UncachedBytesPerSecond are what the VM can do on all its disks together,
	// without the host's cache; 0 if Azure does not say.
	UncachedIOPS, UncachedBytesPerSecond int64
}

// Unlimited is a figure of a DiskQuota that has no limit.
const Unlimited int64 = -1

// DiskQuota is what a subscription may still create of a disk SKU in a region.
type DiskQuota struct {
	// Disks is the number of disks, SizeBytes their size together; Unlimited where there is no
	// limit.
	Disks     int64
	SizeBytes int64
}
