package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// errNotOurs leaves a call to the kernel.
var errNotOurs = errors.New("the call is not for a disk of azuresim")

// call is an ioctl that a thread of a VM waits in.
type call struct {
	thread   int
	fd       int32
	command  uint32
	argument uintptr
	// valid fails if the thread does not wait any more.
	valid func() error
}

// do returns what the ioctl returns. An errno is the ioctl's.
func (s *server) do(ctx context.Context, c *call) (int64, error) {
	device, ours, err := c.device()
	if err != nil {
		return 0, err
	}
	if !ours {
		return 0, errNotOurs
	}
	execute := func(cdb, out []byte) (reservations.Answer, error) {
		if err := c.valid(); err != nil {
			return reservations.Answer{}, err
		}
		answer, err := s.disks.Execute(ctx, device, cdb, out)
		if errors.Is(err, hypervisor.ErrNotFound) {
			return answer, unix.ENODEV // it was detached
		}
		return answer, err
	}
	if c.command == sgIO {
		return 0, c.sendCommand(execute)
	}
	return c.changeReservations(execute)
}

type execute func(cdb, out []byte) (reservations.Answer, error)

// device returns the block device that the descriptor is open on, and whether it is one of a
// hypervisor, or was until it was detached.
func (c *call) device() (path string, ours bool, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", c.thread, c.fd), &stat); err != nil {
		return "", false, unix.EBADF
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", false, nil
	}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	backing, err := os.ReadFile(filepath.Join(dir, "loop/backing_file"))
	if err != nil || !strings.HasPrefix(filepath.Base(string(backing)), "azuresim-") {
		return "", false, nil
	}
	name, err := os.Readlink(dir)
	if err != nil {
		return "", false, nil
	}
	return "/dev/" + filepath.Base(name), true, nil
}

// read reads memory of the thread.
func (c *call) read(address uintptr, length int) ([]byte, error) {
	data := make([]byte, length)
	if length == 0 {
		return data, nil
	}
	n, err := unix.ProcessVMReadv(c.thread, []unix.Iovec{{
		Base: &data[0],
		Len:  uint64(length),
	}}, []unix.RemoteIovec{{Base: address, Len: length}}, 0)
	if err != nil || n != length {
		return nil, unix.EFAULT
	}
	return data, nil
}

// write writes memory of the thread.
func (c *call) write(address uintptr, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	n, err := unix.ProcessVMWritev(c.thread, []unix.Iovec{{
		Base: &data[0],
		Len:  uint64(len(data)),
	}}, []unix.RemoteIovec{{Base: address, Len: len(data)}}, 0)
	if err != nil || n != len(data) {
		return unix.EFAULT
	}
	return nil
}

// What the ioctls of linux/pr.h return if the disk did not run the command, as of Linux 6.2.
const (
	prStatusIOError  = 0x2
	prStatusConflict = 0x18
)

const prFlagIgnoreKey = 1

// scsiTypes are SCSI's numbers of the types, by those of linux/pr.h.
var scsiTypes = []reservations.Type{0,
	reservations.WriteExclusive, reservations.ExclusiveAccess,
	reservations.WriteExclusiveRegistrantsOnly, reservations.ExclusiveAccessRegistrantsOnly,
	reservations.WriteExclusiveAllRegistrants, reservations.ExclusiveAccessAllRegistrants,
}

// changeReservations does what the kernel's SCSI disk driver (drivers/scsi/sd.c) does with the
// ioctls of linux/pr.h.
func (c *call) changeReservations(run execute) (int64, error) {
	size := int(c.command >> 16 & 0x3FFF)
	argument, err := c.read(c.argument, size)
	if err != nil {
		return 0, err
	}
	cdb, out, err := command(c.command, argument)
	if err != nil {
		return 0, err
	}
	answer, err := run(cdb, out)
	switch {
	case err != nil:
		return 0, err
	case answer.Status == reservations.Good:
		return 0, nil
	case answer.Status == reservations.Conflict:
		return prStatusConflict, nil
	case answer.Sense[12] == 0x24 || answer.Sense[12] == 0x26: // a field of the command or of its parameters is not valid
		return 0, unix.EINVAL
	}
	return prStatusIOError, nil
}

// command returns the SCSI command for an ioctl. For PREEMPT, the first key in the ioctl's argument
// is that of the caller, and the second one the victim's, though the header calls them old and new.
func command(ioctl uint32, argument []byte) (cdb, out []byte, err error) {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(argument[at:]) }
	half := func(at int) uint32 { return binary.NativeEndian.Uint32(argument[at:]) }
	var action byte
	var kind, flags uint32
	key, other := word(0), uint64(0)
	switch ioctl {
	case prRegister:
		action, other, flags = reservations.Register, word(8), half(16)
		if flags&prFlagIgnoreKey != 0 {
			action = reservations.RegisterAndIgnore
		}
		flags &^= prFlagIgnoreKey
	case prReserve:
		action, kind, flags = reservations.Reserve, half(8), half(12)
	case prRelease:
		action, kind, flags = reservations.Release, half(8), half(12)
	case prPreempt:
		action, other, kind, flags = reservations.Preempt, word(8), half(16), half(20)
	case prPreemptAbort:
		action, other, kind, flags = reservations.PreemptAndAbort, word(8), half(16), half(20)
	case prClear:
		action, flags = reservations.Clear, half(8)
	}
	if flags != 0 {
		return nil, nil, unix.EOPNOTSUPP
	}
	var t reservations.Type
	if int(kind) < len(scsiTypes) {
		t = scsiTypes[kind]
	}
	out = binary.BigEndian.AppendUint64(nil, key)
	out = binary.BigEndian.AppendUint64(out, other)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	if action == reservations.Register || action == reservations.RegisterAndIgnore {
		out[20] = 1 // APTPL
	}
	return []byte{reservations.OpOut, action, byte(t), 0, 0, 0, 0, 0, byte(len(out)), 0}, out, nil
}
