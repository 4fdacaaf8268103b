package reservation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const first, second = 0xAD1D540000010002, 0x0000000000001234

// scsiAnswer is an answer to PERSISTENT RESERVE IN.
func scsiAnswer(generation uint32, list ...byte) []byte {
	answer := binary.BigEndian.AppendUint32(nil, generation)
	answer = binary.BigEndian.AppendUint32(answer, uint32(len(list)))
	return append(answer, list...)
}

func scsiKeys(keys ...uint64) (list []byte) {
	for _, key := range keys {
		list = binary.BigEndian.AppendUint64(list, key)
	}
	return list
}

func scsiReservation(key uint64, kind byte) []byte {
	return append(scsiKeys(key), 0, 0, 0, 0, 0, kind, 0, 0)
}

func TestAnswersOfSCSIDisks(t *testing.T) {
	t.Parallel()
	state := func(holder provisioner.ReservationKey, kind provisioner.ReservationType,
		keys ...provisioner.ReservationKey) provisioner.ReservationState {
		return provisioner.ReservationState{Generation: 7, Keys: keys, Holder: holder, Type: kind}
	}
	for name, c := range map[string]struct {
		keys, reservation []byte
		want              provisioner.ReservationState
		same, fails       bool
	}{
		"nothing is registered": {scsiAnswer(7), scsiAnswer(7), state(0, provisioner.NoReservation), true, false},
		"keys without a reservation": {scsiAnswer(7, scsiKeys(first, second)...), scsiAnswer(7),
			state(0, provisioner.NoReservation, first, second), true, false},
		"a reservation": {scsiAnswer(7, scsiKeys(first, second)...), scsiAnswer(7, scsiReservation(second, 1)...),
			state(second, provisioner.WriteExclusive, first, second), true, false},
		"a scope beside the type": {scsiAnswer(7, scsiKeys(first)...), scsiAnswer(7, scsiReservation(first, 0x03)...),
			state(first, provisioner.ExclusiveAccess, first), true, false},
		"one that all hold": {scsiAnswer(7, scsiKeys(first)...), scsiAnswer(7, scsiReservation(0, 8)...),
			state(0, provisioner.ExclusiveAccessAllRegistrants, first), true, false},
		"a change in between": {scsiAnswer(7, scsiKeys(first)...), scsiAnswer(8, scsiReservation(first, 5)...),
			state(first, provisioner.WriteExclusiveRegistrantsOnly, first), false, false},
		"a list longer than the room": {append(scsiAnswer(7)[:4], 0, 0, 0, 16, 1, 2), scsiAnswer(7),
			provisioner.ReservationState{}, false, true},
		"half a key":     {scsiAnswer(7, 1, 2, 3, 4), scsiAnswer(7), provisioner.ReservationState{}, false, true},
		"a short answer": {[]byte{0, 0, 0}, scsiAnswer(7), provisioner.ReservationState{}, false, true},
		"a type that there is not": {scsiAnswer(7, scsiKeys(first)...), scsiAnswer(7, scsiReservation(first, 2)...),
			provisioner.ReservationState{}, false, true},
	} {
		got, same, err := parseSCSI(c.keys, c.reservation)
		if (err != nil) != c.fails {
			t.Errorf("%s: got error %v, want one: %t", name, err, c.fails)
		}
		if !c.fails && (!reflect.DeepEqual(got, c.want) || same != c.same) {
			t.Errorf("%s: got %+v, of one generation %t; want %+v, %t", name, got, same, c.want, c.same)
		}
	}
}

func TestOutcomesOfSCSICommands(t *testing.T) {
	t.Parallel()
	fixed := func(key, code, qualifier byte) []byte {
		return []byte{0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0}
	}
	for name, c := range map[string]struct {
		header sgHeader
		sense  []byte
		want   error
	}{
		"good":                                {sgHeader{}, nil, nil},
		"a command that the disk lacks":       {sgHeader{status: 2, driverStatus: 8}, fixed(5, 0x20, 0), errUnsupported},
		"the same in the format of later":     {sgHeader{status: 2}, []byte{0x72, 5, 0x20, 0, 0, 0, 0, 0}, errUnsupported},
		"a unit attention":                    {sgHeader{status: 2}, fixed(6, 0x2A, 3), errUnitAttention},
		"a hardware error":                    {sgHeader{status: 2}, fixed(4, 0x44, 0), unix.EIO},
		"a check condition without a reason":  {sgHeader{status: 2}, nil, unix.EIO},
		"a command that was lost on the way":  {sgHeader{hostStatus: 1}, nil, unix.EIO},
		"a driver that gave up on a deadline": {sgHeader{driverStatus: 6}, nil, unix.EIO},
		"a reservation conflict":              {sgHeader{status: 0x18}, nil, statusConflict},
	} {
		if err := scsiOutcome(&c.header, c.sense); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// nvmeReportOf is a Reservation Status data structure, as in figures of section 7.3 of the base
// specification.
func nvmeReportOf(extended bool, kind byte, holder int, keys ...uint64) []byte {
	header, entry, keyAt := 24, 24, 16
	if extended {
		header, entry, keyAt = 64, 64, 8
	}
	report := make([]byte, 4096)
	binary.LittleEndian.PutUint32(report, 9)
	report[4] = kind
	binary.LittleEndian.PutUint16(report[5:], uint16(len(keys)))
	for i, key := range keys {
		host := report[header+i*entry:]
		binary.LittleEndian.PutUint64(host[keyAt:], key)
		binary.LittleEndian.PutUint64(host[24-keyAt:], 0xFFFFFFFFFFFFFFFF) // the host identifier is at the other place
		if i == holder {
			host[2] = 1
		}
	}
	return report
}

func TestReportsOfNVMeNamespaces(t *testing.T) {
	t.Parallel()
	for _, extended := range []bool{false, true} {
		for name, c := range map[string]struct {
			report []byte
			want   provisioner.ReservationState
		}{
			"nothing": {nvmeReportOf(extended, 0, -1), provisioner.ReservationState{Generation: 9}},
			"keys": {nvmeReportOf(extended, 0, -1, first, second),
				provisioner.ReservationState{Generation: 9, Keys: []provisioner.ReservationKey{first, second}}},
			"a reservation": {nvmeReportOf(extended, 1, 1, first, second),
				provisioner.ReservationState{Generation: 9, Keys: []provisioner.ReservationKey{first, second}, Holder: second,
					Type: provisioner.WriteExclusive}},
			"all hold it": {nvmeReportOf(extended, 6, 0, first),
				provisioner.ReservationState{Generation: 9, Keys: []provisioner.ReservationKey{first},
					Type: provisioner.ExclusiveAccessAllRegistrants}},
		} {
			if got, err := parseNVMe(c.report, extended); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, extended %t: got %+v, %v, want %+v", name, extended, got, err, c.want)
			}
		}
		if got, err := parseNVMe(nvmeReportOf(extended, 9, -1), extended); err == nil {
			t.Errorf("a type that there is not, extended %t: got %+v, want an error", extended, got)
		}
		tooMany := nvmeReportOf(extended, 0, -1)
		binary.LittleEndian.PutUint16(tooMany[5:], 1000)
		if got, err := parseNVMe(tooMany, extended); err == nil {
			t.Errorf("more hosts than there is room, extended %t: got %+v, want an error", extended, got)
		}
	}
}

// TestKindsOfErrors has the results of ioctls that no device here gives.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want provisioner.Kind
	}{
		"a device that was removed":       {unix.ENODEV, provisioner.NotFound},
		"a device that is not configured": {unix.ENXIO, provisioner.NotFound},
		"a driver without reservations":   {unix.EOPNOTSUPP, provisioner.Unsupported},
		"a device without the ioctl":      {unix.ENOTTY, provisioner.Unsupported},
		"a disk without reservations":     {errors.Join(statusError(2), errUnsupported), provisioner.Unsupported},
		"a path that failed":              {statusError(0xF0000), provisioner.Unavailable},
		"a lack of rights":                {unix.EPERM, provisioner.Unavailable},
		"a conflict":                      {&provisioner.ReservationConflict{}, provisioner.Conflict},
		"a field that is not accepted":    {unix.EINVAL, provisioner.Unsupported},
	} {
		if got := provisioner.KindOf(kindOf(c.err, "reserve", "/dev/sdc")); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	for status, want := range map[statusError]bool{
		0x18:     true,
		0x118:    true,
		0x110018: true,
		0x4018:   false,
		0x83:     true,
		0x4083:   true,
		0x6083:   true,
		0x02:     false,
		0xE0000:  false,
		0x4002:   false,
	} {
		if status.conflict() != want {
			t.Errorf("status %#x is a conflict: got %t, want %t", int(status), status.conflict(), want)
		}
	}
}

func TestAChangeIsRepeatedAfterAUnitAttention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []error
		want    error
		calls   int
	}{
		"success":                         {[]error{nil}, nil, 1},
		"a unit attention":                {[]error{statusError(0x02), nil}, nil, 2},
		"a unit attention of old kernels": {[]error{statusError(0x08000002), nil}, nil, 2},
		"a conflict after one":            {[]error{statusError(0x02), statusConflict}, statusConflict, 2},
		"a conflict":                      {[]error{statusConflict}, statusConflict, 1},
		"an errno":                        {[]error{unix.ENODEV}, unix.ENODEV, 1},
		"a disk that always fails":        {[]error{statusError(0x02)}, statusError(0x02), scsiTries},
	} {
		calls := 0
		err := repeated(func() error {
			calls++
			return c.answers[min(calls, len(c.answers))-1]
		})
		if !errors.Is(err, c.want) || calls != c.calls {
			t.Errorf("%s: got %v after %d calls, want %v after %d", name, err, calls, c.want, c.calls)
		}
	}
}

func TestArgumentsHaveTheSizesOfTheHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want uintptr }{
		"pr_reservation":    {unsafe.Sizeof(prReservation{}), iocReserve >> 16 & 0x3FFF},
		"pr_registration":   {unsafe.Sizeof(prRegistration{}), iocRegister >> 16 & 0x3FFF},
		"pr_preempt":        {unsafe.Sizeof(prPreempt{}), iocPreemptAbort >> 16 & 0x3FFF},
		"pr_clear":          {unsafe.Sizeof(prClear{}), iocClear >> 16 & 0x3FFF},
		"nvme_passthru_cmd": {unsafe.Sizeof(nvmeCommand{}), iocNVMeIO >> 16 & 0x3FFF},
		"sg_io_hdr":         {unsafe.Sizeof(sgHeader{}), 88},
	} {
		if c.got != c.want {
			t.Errorf("struct %s has %d bytes, want %d", name, c.got, c.want)
		}
	}
}

func TestARefusalOfANodeThatIsNotRegisteredIsAConflict(t *testing.T) {
	t.Parallel()
	state := provisioner.ReservationState{Keys: []provisioner.ReservationKey{7}}
	for name, c := range map[string]struct {
		status statusError
		needs  registered
		want   bool
	}{
		"a conflict":                               {statusConflict, 7, true},
		"check condition, and no such key":         {0x02, 8, true},
		"check condition, though the key is there": {0x02, 7, false},
		"check condition of a registration":        {0x02, 0, false},
		"another status, and no such key":          {0xE0000, 8, false},
	} {
		if got := isConflict(c.status, c.needs, state); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestTheFlagsOfAnNVMeStatusDoNotMatter(t *testing.T) {
	t.Parallel()
	for status, want := range map[statusError]bool{0x01: true, 0x4001: true, 0x6001: true, 0x4002: false, 0x101: false} {
		if got := hasStatus(status, nvmeInvalidOpcode); got != want {
			t.Errorf("status %#x is an invalid opcode: got %t, want %t", int(status), got, want)
		}
	}
}

func TestAHostIdentifierTellsMachinesApart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id   []byte
		want bool
	}{
		"none, of 128 bits":    {make([]byte, 16), false},
		"none, of 64 bits":     {make([]byte, 8), false},
		"a byte over and over": {bytes.Repeat([]byte{0xFF}, 16), false},
		"a random one":         {[]byte{0x6c, 0x1b, 0x9f, 0x1e, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}, true},
	} {
		if got := identifies(test.id); got != test.want {
			t.Errorf("%s (%x): got %t, want %t", name, test.id, got, test.want)
		}
	}
}
