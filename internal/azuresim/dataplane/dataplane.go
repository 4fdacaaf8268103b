// Package dataplane is the interface between azuresim's ARM front end and the program that makes
// the disks.
//
// The front end decides (which VM may attach which disk, when, and what the answer is); the data
// plane obeys and decides nothing. Every method is idempotent, so that the front end can repeat a
// step after a crash of either side without first finding out how far the step had come. The front
// end calls it from its operation engine and once at start, to bring the data plane to what the
// front end's store says.
//
// Two implementations exist: the client of the hypervisor process, and None for a front end that
// runs alone.
package dataplane

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// Attachment is one disk as one VM sees it.
type Attachment struct {
	VM      string // data-plane key of the VM, see DataPlane
	LUN     int    // 0 to 63
	DiskUID string // the disk's uniqueId
	Device  string // block device path, for instance /dev/loop3; may be empty where nothing real is behind
}

// DataPlane carries disks and attachments.
//
// A VM is named by its key: the lower-case VM name, or `<vmss>_<instanceID>` for an instance of a
// uniform scale set. The front end keeps keys unique over the whole simulator. A disk or snapshot
// is named by its UID, which the front end makes and never uses twice.
//
// Methods block until the effect is there or ctx ends. They return an error only for failures of
// the data plane itself (no space, no device, process gone), never for a state that is already as
// asked.
type DataPlane interface {
	// CreateDisk makes the backing store of a disk or snapshot of sizeBytes. source is "" for a
	// blank one, or the UID of the disk or snapshot whose present content is copied. An existing
	// UID is left untouched.
	CreateDisk(ctx context.Context, diskUID string, sizeBytes int64, source string) error
	// ResizeDisk grows the backing store; devices of existing attachments show the new size. It
	// never shrinks.
	ResizeDisk(ctx context.Context, diskUID string, sizeBytes int64) error
	// DeleteDisk removes the backing store. A UID that is not there is success.
	DeleteDisk(ctx context.Context, diskUID string) error
	// SetShared reports whether the devices of the disk answer the commands of persistent
	// reservations. A new disk's do not. The reservations themselves are the VMs' to make; they
	// stay over detaches until LoseReservations, and end with the disk.
	SetShared(ctx context.Context, diskUID string, shared bool) error
	// Attach shows the disk to the VM. The device is under the VM's by-lun directory before Attach
	// returns.
	Attach(ctx context.Context, vm string, lun int, diskUID string) error
	// Detach cuts the VM off: its further I/O to the device fails with EIO, also for files that are
	// open. Ordinary and forced detach are the same thing here. An attachment that is not there, or
	// whose LUN holds another disk, is success and changes nothing.
	Detach(ctx context.Context, vm string, lun int, diskUID string) error
	// PowerOff cuts every attachment of the VM. What the VM's cache had not yet written is lost.
	// The attachments stay recorded.
	PowerOff(ctx context.Context, vm string) error
	// PowerOn gives every recorded attachment of the VM a fresh device. A VM without attachments,
	// or one that is on, is success. A VM that was not known is from now on.
	PowerOn(ctx context.Context, vm string) error
	// RemoveVM cuts every attachment of the VM and forgets the VM, also whether it was on. A VM
	// that is not known is success.
	RemoveVM(ctx context.Context, vm string) error
	// List returns every recorded attachment, also of VMs that are powered off.
	List(ctx context.Context) ([]Attachment, error)
	// ListDisks returns the UIDs of every backing store, of disks and of snapshots.
	ListDisks(ctx context.Context) ([]string, error)
	// LoseReservations removes what the VM has registered and reserved at the disk. A VM that has
	// not is success.
	LoseReservations(ctx context.Context, vm, diskUID string) error
	// ListReservations returns the reservations of the disks that have any, by UID. Initiators are
	// keys of VMs.
	ListReservations(ctx context.Context) (map[string]reservations.State, error)
}
