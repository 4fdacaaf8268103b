package reservation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The ioctls of linux/nvme_ioctl.h.
const (
	iocNVMeID    = 0x4E40     // NVME_IOCTL_ID
	iocNVMeAdmin = 0xC0484E41 // NVME_IOCTL_ADMIN_CMD
	iocNVMeIO    = 0xC0484E43 // NVME_IOCTL_IO_CMD
)

// nvmeCommand is struct nvme_passthru_cmd. A blank field is one that is not used here.
type nvmeCommand struct {
	opcode        uint8
	_             [3]uint8
	nsid          uint32
	_             [2]uint32 // cdw2 and cdw3
	_             uint64    // metadata
	address       uint64
	_             uint32 // length of the metadata
	length        uint32
	cdw10, cdw11  uint32
	_             [4]uint32 // cdw12 to cdw15
	timeoutMillis uint32
	_             uint32 // result
}

const (
	nvmeRegister = 0x0D // Reservation Register
	nvmeReport   = 0x0E // Reservation Report

	// nvmeUnregisterAction is RREGA 1. Without IEKEY the namespace refuses it if the host has
	// another key.
	nvmeUnregisterAction = 1
	// nvmeExtended asks for the data structure with host identifiers of 128 bits.
	nvmeExtended = 1

	nvmeGetFeatures    = 0x0A // an admin command
	nvmeHostIdentifier = 0x81 // a feature
	// nvmeHostExtended asks for a Host Identifier of 128 bits.
	nvmeHostExtended = 1

	nvmeTimeoutMillis = 10_000
	nvmeReportRoom    = 4096 // for 63 hosts in the extended data structure
)

// Statuses of NVMe, without the flags.
const (
	nvmeInvalidOpcode    statusError = 0x01
	nvmeInvalidField     statusError = 0x02
	nvmeHostInconsistent statusError = 0x18 // Host Identifier Inconsistent Format
)

// isNVMe reports whether the device is an NVMe namespace.
func isNVMe(fd int) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), iocNVMeID, 0)
	return errno == 0
}

// nvmeIsHost refuses a controller that does not tell this machine from others. The registrant of a
// reservation is the Host Identifier (NVM Express Base Specification 2.0, section 5.27.1.25). Linux
// sets none for a PCIe controller, so it is what the platform has set: with 0, or with a value that
// is a pattern, a registration of one machine would replace another's.
func nvmeIsHost(fd int) error {
	id := make([]byte, 16)
	err := nvmePass(fd, iocNVMeAdmin, &nvmeCommand{
		opcode: nvmeGetFeatures,
		cdw10:  nvmeHostIdentifier,
		cdw11:  nvmeHostExtended,
	}, id)
	if hasStatus(err, nvmeInvalidField) {
		id = id[:8]
		err = nvmePass(fd, iocNVMeAdmin, &nvmeCommand{opcode: nvmeGetFeatures, cdw10: nvmeHostIdentifier}, id)
	}
	switch {
	case hasStatus(err, nvmeInvalidOpcode), hasStatus(err, nvmeInvalidField):
		return fmt.Errorf("%w: the controller has no Host Identifier: %w", errUnsupported, err)
	case err != nil:
		return fmt.Errorf("read the Host Identifier: %w", err)
	case !identifies(id):
		return fmt.Errorf("%w: the Host Identifier of the controller is %x, which does not tell this machine from others",
			errUnsupported, id)
	}
	return nil
}

// identifies reports whether a Host Identifier can identify one machine: it is not one byte over
// and over.
func identifies(id []byte) bool {
	return slices.ContainsFunc(id, func(b byte) bool { return b != id[0] })
}

// nvmeSend sends a command to the namespace of the device.
func nvmeSend(fd int, opcode uint8, cdw10, cdw11 uint32, data []byte) error {
	nsid, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), iocNVMeID, 0)
	if errno == unix.ENOTTY || errno == unix.EINVAL || errno == unix.EOPNOTSUPP {
		return errOtherBus
	}
	if errno != 0 {
		return errno
	}
	return nvmePass(fd, iocNVMeIO, &nvmeCommand{
		opcode: opcode,
		nsid:   uint32(nsid),
		cdw10:  cdw10,
		cdw11:  cdw11,
	}, data)
}

// nvmePass passes a command with its data through the kernel.
func nvmePass(fd int, ioctl uintptr, command *nvmeCommand, data []byte) error {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&data[0])
	command.address, command.length = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))
	command.timeoutMillis = nvmeTimeoutMillis
	return control(fd, ioctl, command)
}

// hasStatus reports whether the namespace refused a command with the status.
func hasStatus(err error, want statusError) bool {
	var status statusError
	return errors.As(err, &status) && status&^nvmeFlags == want
}

// nvmeUnregister removes the registration of this host with the key.
func nvmeUnregister(fd int, key provisioner.ReservationKey) error {
	data := make([]byte, 16) // the current key, and no new one
	binary.LittleEndian.PutUint64(data, uint64(key))
	return nvmeSend(fd, nvmeRegister, nvmeUnregisterAction, 0, data)
}

// nvmeRead reads the report with the host identifiers that the controller was given: of 128 bits,
// as Linux does it today, or of 64.
func nvmeRead(fd int) (provisioner.ReservationState, error) {
	report := make([]byte, nvmeReportRoom)
	err := nvmeSend(fd, nvmeReport, nvmeReportRoom/4-1, nvmeExtended, report)
	extended := true
	if hasStatus(err, nvmeHostInconsistent) {
		extended = false
		err = nvmeSend(fd, nvmeReport, nvmeReportRoom/4-1, 0, report)
	}
	if hasStatus(err, nvmeInvalidOpcode) || hasStatus(err, nvmeInvalidField) {
		err = fmt.Errorf("%w: %w", errUnsupported, err)
	}
	if err != nil {
		return provisioner.ReservationState{}, err
	}
	return parseNVMe(report, extended)
}

// parseNVMe reads the Reservation Status data structure.
func parseNVMe(report []byte, extended bool) (provisioner.ReservationState, error) {
	header, entry, keyAt := 24, 24, 16
	if extended {
		header, entry, keyAt = 64, 64, 8
	}
	state := provisioner.ReservationState{
		Generation: binary.LittleEndian.Uint32(report),
		Type:       provisioner.ReservationType(report[4]),
	}
	hosts := int(binary.LittleEndian.Uint16(report[5:]))
	if header+hosts*entry > len(report) {
		return state, fmt.Errorf("the report has %d bytes and says that %d hosts are registered, want at most %d", len(report),
			hosts, (len(report)-header)/entry)
	}
	if state.Type > provisioner.ExclusiveAccessAllRegistrants {
		return state, fmt.Errorf("the report names reservation %s, want one of NVMe 2.0", state.Type)
	}
	for i := range hosts {
		host := report[header+i*entry:]
		key := provisioner.ReservationKey(binary.LittleEndian.Uint64(host[keyAt:]))
		state.Keys = append(state.Keys, key)
		if holds := host[2]&1 != 0; holds && state.Type < provisioner.WriteExclusiveAllRegistrants {
			state.Holder = key
		}
	}
	return state, nil
}
