package reservation

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The ioctls of linux/pr.h.
const (
	iocRegister     = 0x401870C8
	iocReserve      = 0x401070C9
	iocRelease      = 0x401070CA
	iocPreempt      = 0x401870CB
	iocPreemptAbort = 0x401870CC
	iocClear        = 0x401070CD
)

// prIgnoreKey is PR_FL_IGNORE_KEY: whatever key was registered before.
const prIgnoreKey = 1

// The arguments, as in linux/pr.h. A blank field is one that is always 0.
type (
	prReservation struct {
		key  uint64
		kind uint32
		_    uint32
	}
	prRegistration struct {
		oldKey, newKey uint64
		flags          uint32
		_              uint32
	}
	prPreempt struct {
		oldKey, newKey uint64
		kind           uint32
		_              uint32
	}
	prClear struct {
		key uint64
		_   [2]uint32
	}
)

// errUnsupported is a device that does not know the commands of reservations, and errOtherBus one
// that does not know the bus's. errNVMeOff is an NVMe namespace whose reservations are not to be
// used.
var (
	errUnsupported = errors.New("the device does not know the command")
	errOtherBus    = errors.New("the device is on another bus")
	errNVMeOff     = fmt.Errorf("%w: reservations of NVMe namespaces are switched off", errUnsupported)
)

// statusError is what an ioctl returned that the disk refused.
type statusError int

// The numbers of a conflict: enum pr_status and SCSI's status, and NVMe's status before Linux 6.2.
// The latter may have flags above. Before Linux 6.2 SCSI's status comes with what the kernel made
// of it in the bytes above: 0x110018 before Linux 6.1, and then 0x118.
const (
	statusConflict     statusError = 0x18
	nvmeStatusConflict statusError = 0x83
	// nvmeFlags are Do Not Retry, More, and the delay of a repetition.
	nvmeFlags statusError = 0x7800
)

func (s statusError) Error() string {
	return fmt.Sprintf("the disk refused the command with status %#x", int(s))
}

// checkCondition reports whether the status is SCSI's CHECK CONDITION. Old kernels add bits for the
// driver above it.
func (s statusError) checkCondition() bool { return s&0xFF == scsiCheckCondition }

func (s statusError) conflict() bool {
	scsi := s&0xFF == statusConflict && s&nvmeFlags == 0
	return scsi || s&^nvmeFlags == nvmeStatusConflict
}

// control calls an ioctl. A positive result is a statusError.
func control[T any](fd int, request uintptr, argument *T) error {
	for {
		result, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(argument)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		case result != 0:
			return statusError(result)
		default:
			return nil
		}
	}
}

// read reads the state from a SCSI disk or an NVMe namespace.
func (r Reservations) read(fd int) (provisioner.ReservationState, error) {
	state, err := scsiRead(fd)
	if errors.Is(err, errOtherBus) && isNVMe(fd) {
		if !r.NVMe {
			return state, errNVMeOff
		}
		if err := nvmeIsHost(fd); err != nil {
			return state, err
		}
		return nvmeRead(fd)
	}
	if errors.Is(err, errOtherBus) {
		err = errUnsupported
	}
	return state, err
}
