package reservation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// iocSGIO is SG_IO.
const iocSGIO = 0x2285

// sgHeader is struct sg_io_hdr of scsi/sg.h on 64-bit machines. A blank field is one that is not
// used here.
type sgHeader struct {
	interfaceID   int32
	direction     int32
	cdbLength     uint8
	senseRoom     uint8
	_             uint16 // number of parts of the data
	length        uint32
	data          unsafe.Pointer
	cdb           unsafe.Pointer
	sense         unsafe.Pointer
	timeoutMillis uint32
	_             [3]uint32 // flags, identifier of the packet, padding
	_             uint64    // the caller's pointer
	status        uint8
	_             [2]uint8 // status without reserved bits, message status
	senseWritten  uint8
	hostStatus    uint16
	driverStatus  uint16
	residual      int32
	_             [3]uint32 // duration, info, padding
}

// PERSISTENT RESERVE IN.
const (
	scsiReserveIn       = 0x5E
	scsiReadKeys        = 0
	scsiReadReservation = 1
)

const (
	scsiTimeoutMillis = 10_000
	scsiListHeader    = 8
	// scsiListRoom is enough for 1,000 registrations. Azure allows 15 VMs.
	scsiListRoom = scsiListHeader + 8*1000
	// scsiTries bounds the repetitions after a unit attention, which says that something else
	// happened before, and after a change in between.
	scsiTries = 5
)

// Statuses and sense keys of SCSI.
const (
	scsiCheckCondition = 0x02
	senseIllegal       = 0x5
	senseUnitAttention = 0x6
	// sgDriverSense is a driver status that only says that there is sense data.
	sgDriverSense = 0x08
)

var errUnitAttention = errors.New("unit attention")

// scsiRead reads the keys and the reservation of a SCSI disk. These are two commands, so it repeats
// them until no registration has changed in between.
func scsiRead(fd int) (provisioner.ReservationState, error) {
	var state provisioner.ReservationState
	for range scsiTries {
		keys, err := scsiReserve(fd, scsiReadKeys)
		if err != nil {
			return state, err
		}
		reservation, err := scsiReserve(fd, scsiReadReservation)
		if err != nil {
			return state, err
		}
		var same bool
		if state, same, err = parseSCSI(keys, reservation); err != nil || same {
			return state, err
		}
	}
	return state, fmt.Errorf("the registrations changed %d times while they were read", scsiTries)
}

// scsiReserve sends PERSISTENT RESERVE IN.
func scsiReserve(fd int, action byte) ([]byte, error) {
	for range scsiTries {
		data, err := scsiSend(fd, action)
		if !errors.Is(err, errUnitAttention) {
			return data, err
		}
	}
	return nil, errUnitAttention
}

func scsiSend(fd int, action byte) ([]byte, error) {
	cdb, data, sense := [10]byte{scsiReserveIn, action}, make([]byte, scsiListRoom), make([]byte, 64)
	binary.BigEndian.PutUint16(cdb[7:], scsiListRoom)
	header := &sgHeader{
		interfaceID:   'S',
		direction:     -3,
		cdbLength:     uint8(len(cdb)),
		senseRoom:     uint8(len(sense)),
		length:        scsiListRoom,
		data:          unsafe.Pointer(&data[0]),
		cdb:           unsafe.Pointer(&cdb[0]),
		sense:         unsafe.Pointer(&sense[0]),
		timeoutMillis: scsiTimeoutMillis,
	}
	err := control(fd, iocSGIO, header)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errOtherBus
	}
	if err != nil {
		return nil, err
	}
	if err := scsiOutcome(header, sense[:header.senseWritten]); err != nil {
		return nil, err
	}
	return data[:scsiListRoom-min(int(max(header.residual, 0)), scsiListRoom)], nil
}

// scsiOutcome says how a command ended.
func scsiOutcome(header *sgHeader, sense []byte) error {
	if header.hostStatus != 0 || header.driverStatus&^sgDriverSense != 0 {
		return fmt.Errorf("the command did not reach the disk: host status %#x, driver status %#x: %w", header.hostStatus,
			header.driverStatus, unix.EIO)
	}
	switch header.status {
	case 0:
		return nil
	case scsiCheckCondition:
		key, code := senseCode(sense)
		switch key {
		case senseIllegal:
			return fmt.Errorf("%w: ILLEGAL REQUEST, additional sense code %#04x", errUnsupported, code)
		case senseUnitAttention:
			return errUnitAttention
		}
		return fmt.Errorf("the disk answered with sense key %#x, additional sense code %#04x: %w", key, code, unix.EIO)
	}
	return statusError(header.status)
}

// senseCode reads sense data in the fixed and in the descriptor format.
func senseCode(sense []byte) (key byte, code uint16) {
	switch {
	case len(sense) >= 14 && sense[0]&0x7E == 0x70:
		return sense[2] & 0x0F, binary.BigEndian.Uint16(sense[12:])
	case len(sense) >= 4 && sense[0]&0x7E == 0x72:
		return sense[1] & 0x0F, binary.BigEndian.Uint16(sense[2:])
	}
	return 0, 0
}

// scsiTypes are the types by SCSI's numbers.
var scsiTypes = map[byte]provisioner.ReservationType{
	1: provisioner.WriteExclusive, 3: provisioner.ExclusiveAccess,
	5: provisioner.WriteExclusiveRegistrantsOnly, 6: provisioner.ExclusiveAccessRegistrantsOnly,
	7: provisioner.WriteExclusiveAllRegistrants, 8: provisioner.ExclusiveAccessAllRegistrants,
}

// parseSCSI reads the answers to READ KEYS and READ RESERVATION, and reports whether they are of
// one generation.
func parseSCSI(keys, reservation []byte) (state provisioner.ReservationState, same bool, err error) {
	generation, list, err := scsiList(keys, 8)
	if err != nil {
		return state, false, fmt.Errorf("read keys: %w", err)
	}
	state.Generation = generation
	for ; len(list) > 0; list = list[8:] {
		state.Keys = append(state.Keys, provisioner.ReservationKey(binary.BigEndian.Uint64(list)))
	}
	generation, list, err = scsiList(reservation, 16)
	if err != nil {
		return state, false, fmt.Errorf("read the reservation: %w", err)
	}
	if len(list) > 0 {
		known := false
		state.Holder = provisioner.ReservationKey(binary.BigEndian.Uint64(list))
		if state.Type, known = scsiTypes[list[13]&0x0F]; !known {
			return state, false, fmt.Errorf("read the reservation: type %#x, want one of SPC-4", list[13]&0x0F)
		}
	}
	return state, generation == state.Generation, nil
}

// scsiList returns the generation and the entries of an answer.
func scsiList(answer []byte, entry int) (generation uint32, list []byte, err error) {
	if len(answer) < scsiListHeader {
		return 0, nil, fmt.Errorf("the answer has %d bytes, want at least %d", len(answer), scsiListHeader)
	}
	length := int(binary.BigEndian.Uint32(answer[4:]))
	if length > len(answer)-scsiListHeader || length%entry != 0 {
		return 0, nil, fmt.Errorf("the answer has %d bytes and says that %d follow the first %d, want entries of %d", len(answer),
			length, scsiListHeader, entry)
	}
	return binary.BigEndian.Uint32(answer), answer[scsiListHeader : scsiListHeader+length], nil
}
