package guest

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// words is an argument of an ioctl.
func words(values ...uint64) []byte {
	var argument []byte
	for _, value := range values {
		argument = binary.NativeEndian.AppendUint64(argument, value)
	}
	return argument
}

// TestTheCommandsOfTheKernel has what drivers/scsi/sd.c sends for each ioctl.
func TestTheCommandsOfTheKernel(t *testing.T) {
	t.Parallel()
	const wero = 3 // PR_WRITE_EXCLUSIVE_REG_ONLY
	for name, c := range map[string]struct {
		ioctl    uint32
		argument []byte
		action   byte
		kind     reservations.Type
		key      uint64
		other    uint64
		aptpl    byte
		errno    unix.Errno
	}{
		"register":                {prRegister, words(1, 2, 0), reservations.Register, 0, 1, 2, 1, 0},
		"register, ignoring":      {prRegister, words(1, 2, 1), reservations.RegisterAndIgnore, 0, 1, 2, 1, 0},
		"reserve":                 {prReserve, words(1, wero), reservations.Reserve, 5, 1, 0, 0, 0},
		"release":                 {prRelease, words(1, wero), reservations.Release, 5, 1, 0, 0, 0},
		"preempt":                 {prPreempt, words(1, 2, wero), reservations.Preempt, 5, 1, 2, 0, 0},
		"preempt and abort":       {prPreemptAbort, words(1, 2, wero), reservations.PreemptAndAbort, 5, 1, 2, 0, 0},
		"clear":                   {prClear, words(1, 0), reservations.Clear, 0, 1, 0, 0, 0},
		"a type that there isn't": {prReserve, words(1, 9), reservations.Reserve, 0, 1, 0, 0, 0},
		"a flag that there isn't": {prRegister, words(1, 2, 2), 0, 0, 0, 0, 0, unix.EOPNOTSUPP},
		"a flag with reserve":     {prReserve, words(1, wero|1<<32), 0, 0, 0, 0, 0, unix.EOPNOTSUPP},
	} {
		cdb, out, err := command(c.ioctl, c.argument)
		if c.errno != 0 {
			if !errors.Is(err, c.errno) {
				t.Errorf("%s: got %v, want %v", name, err, c.errno)
			}
			continue
		}
		wantCDB := []byte{reservations.OpOut, c.action, byte(c.kind), 0, 0, 0, 0, 0, 24, 0}
		wantOut := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.key), c.other)
		wantOut = append(wantOut, 0, 0, 0, 0, c.aptpl, 0, 0, 0)
		if err != nil || !reflect.DeepEqual(cdb, wantCDB) || !reflect.DeepEqual(out, wantOut) {
			t.Errorf("%s: got command % x, parameters % x, %v; want % x, % x", name, cdb, out, err, wantCDB, wantOut)
		}
	}
}

// sgHeader is struct sg_io_hdr.
type sgHeader struct {
	interfaceID, direction int32
	cdbLength, senseRoom   uint8
	iovecs                 uint16
	length                 uint32
	data, cdb, sense       *byte
	_                      [3]uint32
	_                      uint64
	status, _, _, wrote    uint8
	host, driver           uint16
	residual               int32
	_, info, _             uint32
}

// TestCommandsThroughSGIO sends PERSISTENT RESERVE OUT and IN from this thread, as sg_persist does.
func TestCommandsThroughSGIO(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(sgHeader{}); got != sgSize {
		t.Fatalf("struct sg_io_hdr has %d bytes here, want %d", got, sgSize)
	}
	var state reservations.State
	send := func(direction int32, cdb, data []byte) (*sgHeader, []byte, error) {
		sense := make([]byte, 32)
		header := &sgHeader{
			interfaceID: 'S',
			direction:   direction,
			cdbLength:   uint8(len(cdb)),
			senseRoom:   uint8(len(sense)),
			length:      uint32(len(data)),
			data:        &data[0],
			cdb:         &cdb[0],
			sense:       &sense[0],
		}
		c := &call{thread: os.Getpid(), command: sgIO, argument: uintptr(unsafe.Pointer(header))}
		err := c.sendCommand(func(cdb, out []byte) (reservations.Answer, error) {
			answer := state.Execute("vm", cdb, out)
			state = answer.State
			return answer, nil
		})
		return header, sense, err
	}
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list[8:], 0x77)
	register := []byte{reservations.OpOut, reservations.RegisterAndIgnore, 0, 0, 0, 0, 0, 0, 24, 0}
	if header, _, err := send(sgToDevice, register, list); err != nil || header.status != 0 || header.info != 0 ||
		header.residual != 0 {
		t.Errorf("register: got %v, status %#x, info %d, residual %d, want success", err, header.status, header.info,
			header.residual)
	}
	keys := make([]byte, 64)
	header, _, err := send(sgFromDevice, []byte{reservations.OpIn, 0, 0, 0, 0, 0, 0, 0, 64, 0}, keys)
	if got := binary.BigEndian.Uint64(keys[8:]); err != nil || header.status != 0 || got != 0x77 || header.residual != 48 {
		t.Errorf("read keys: got %v, status %#x, key %#x, residual %d, want key 0x77, residual 48", err, header.status, got,
			header.residual)
	}
	header, _, err = send(sgToDevice, register[:10:10], make([]byte, 8))
	if err != nil || header.status != uint8(reservations.CheckCondition) || header.wrote != 18 || header.driver != driverSense ||
		header.info != sgInfoCheck {
		t.Errorf("a parameter list that is too short: got %v, status %#x, %d bytes of sense data, driver status %#x, info %d, want CHECK CONDITION with 18",
			err, header.status, header.wrote, header.driver, header.info)
	}
	if _, sense, _ := send(sgToDevice, register, make([]byte, 8)); sense[2] != 5 || sense[12] != 0x1A {
		t.Errorf("sense data % x, want ILLEGAL REQUEST, PARAMETER LIST LENGTH ERROR", sense)
	}
	if _, _, err := send(sgFromDevice, []byte{0x12, 0, 0, 0, 36, 0}, make([]byte, 36)); !errors.Is(err, errNotOurs) {
		t.Errorf("INQUIRY: got %v, want that it is left to the kernel", err)
	}
	c := &call{thread: os.Getpid(), command: sgIO, argument: 8}
	if err := c.sendCommand(nil); !errors.Is(err, unix.EFAULT) {
		t.Errorf("an address that is not mapped: got %v, want EFAULT", err)
	}
}
