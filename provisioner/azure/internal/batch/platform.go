package batch

import (
	"context"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// Platform is Azure, as far as the engine needs it.
type Platform interface {
	// Validate refuses IDs that are not those of a VM and of a disk.
	Validate(vmID, diskID string) error
	// VM reads a VM. If there is no such VM, the result is Gone and err is nil.
	VM(ctx context.Context, vmID string) (VM, error)
	// Disk reads a disk.
	Disk(ctx context.Context, diskID string) (Disk, error)
	// UpdateDelay is how long an update of a VM would have to wait for its quota.
	UpdateDelay(vmID string) time.Duration
	// HasReads reports whether that many reads of a VM are left of its quota.
	HasReads(vmID string, n int) bool
	// Update changes the data disks of a VM in one call. It returns when Azure has accepted the
	// call.
	Update(ctx context.Context, update Update) (*operation.Operation, error)
	// Resume follows a call that an earlier process made. The look is as in Update.
	Resume(ctx context.Context, token operation.Token, look *operation.Look) (*operation.Operation, error)
}

// Update is a call that changes the data disks of a VM.
type Update struct {
	VMID    string
	Changes []Change
	// Look finds out whether all changes are made.
	Look *operation.Look
}

// Kind is the kind of the operation: that of the changes for which others wait.
func (u Update) Kind() operation.Kind {
	k := operation.Detach
	for _, c := range u.Changes {
		if c.Kind != operation.Detach {
			k = c.Kind
		}
	}
	return k
}

// Usual is when such an update usually ends: when the slowest of its changes does. A detach takes
// longer than an attach.
func (u Update) Usual() operation.Span {
	usual := operation.Usual(u.Changes[0].Kind, len(u.Changes))
	for _, c := range u.Changes[1:] {
		usual = usual.Slower(operation.Usual(c.Kind, len(u.Changes)))
	}
	return usual
}

// Sizes tells how many data disks VMs can have.
type Sizes interface {
	// KnownDataDisks returns the number without waiting; 0 if it is not known.
	KnownDataDisks(location, vmSize string) int
	// VM returns all limits of a VM size.
	VM(ctx context.Context, location, vmSize string) (provisioner.VMLimits, error)
}

// Change is an attach or a detach of a disk.
type Change struct {
	Kind operation.Kind
	provisioner.AttachRequest
}

// VM is a VM as it was read. Its DataDisks are what it is to have; see isOff.
type VM struct {
	provisioner.Instance
	// State is the provisioning state.
	State string
	// Gone says that there is no such VM.
	Gone bool
}

// Disk is a disk as it was read.
type Disk struct {
	provisioner.Disk
	// State is the provisioning state.
	State string
}

// find returns the VM's entry for a disk.
func (v VM) find(diskKey string) (provisioner.Attachment, bool) {
	for _, a := range v.DataDisks {
		if operation.Key(a.DiskID) == diskKey {
			return a, true
		}
	}
	return provisioner.Attachment{}, false
}

// has reports whether the VM has the disk of an attach. A VM whose update is under way, or has
// failed, also lists disks that it does not have.
func (v VM) has(r *request) bool {
	a, listed := v.find(r.disk)
	return listed && !a.Detaching && v.State == operation.StateSucceeded
}
