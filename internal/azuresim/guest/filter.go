package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of linux/pr.h that change reservations.
const (
	prRegister     = 0x401870C8
	prReserve      = 0x401070C9
	prRelease      = 0x401070CA
	prPreempt      = 0x401870CB
	prPreemptAbort = 0x401870CC
	prClear        = 0x401070CD
)

// sgIO is the ioctl of scsi/sg.h that sends a SCSI command.
const sgIO = 0x2285

var caught = []uint32{prRegister, prReserve, prRelease, prPreempt, prPreemptAbort, prClear, sgIO}

// Offsets in struct seccomp_data, on a little-endian machine.
const (
	offsetCall    = 0
	offsetArch    = 4
	offsetCommand = 24 // the lower half of the second argument
)

// architectures are those of seccomp by Go's names.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// program is the filter: it reports the caught ioctls, and allows everything else.
func program(arch uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	result := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	commands := uint8(len(caught))
	const equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	filter := []unix.SockFilter{
		load(offsetArch),
		{Code: equal, K: arch, Jf: commands + 3},
		load(offsetCall),
		{Code: equal, K: unix.SYS_IOCTL, Jf: commands + 1},
		load(offsetCommand),
	}
	for i, command := range caught {
		filter = append(filter, unix.SockFilter{
			Code: equal,
			K:    command,
			Jt:   commands - uint8(i),
		})
	}
	return append(filter, result(unix.SECCOMP_RET_ALLOW), result(unix.SECCOMP_RET_USER_NOTIF))
}

// install puts the filter on the calling thread, which must be locked, and returns its listener.
// What the thread starts inherits the filter.
func install() (*os.File, error) {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("catch ioctls: the architecture is %s, want amd64 or arm64", runtime.GOARCH)
	}
	filter := program(arch)
	argument := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Without the second flag a signal, as Go's runtime sends them, would interrupt a call whose
	// command the disk has run already.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&argument)))
	switch {
	case errno == unix.EINVAL:
		return nil, errors.New("catch ioctls: the kernel does not know the flags of the seccomp filter; Linux 5.19 or later is needed")
	case errno != 0:
		return nil, fmt.Errorf("catch ioctls: install a seccomp filter: %w", errno)
	}
	return os.NewFile(fd, "seccomp listener"), nil
}
