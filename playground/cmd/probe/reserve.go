package main

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of linux/pr.h.
const (
	prRegister     = 0x401870C8
	prReserve      = 0x401070C9
	prPreemptAbort = 0x401870CC

	prIgnoreKey      = 1
	prWriteExclusive = 1
)

// reserve registers a key with a disk and reserves the disk, or takes the reservation
// from the victim, if that is a key and not "".
func reserve(device, keyText, victimText string) error {
	key, err := strconv.ParseUint(keyText, 0, 64)
	if err != nil {
		return err
	}
	disk, err := os.Open(device)
	if err != nil {
		return err
	}
	defer disk.Close()
	if err := control(disk, prRegister, &[3]uint64{0, key, prIgnoreKey}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if victimText == "" {
		return control(disk, prReserve, &[3]uint64{key, prWriteExclusive})
	}
	victim, err := strconv.ParseUint(victimText, 0, 64)
	if err != nil {
		return err
	}
	return control(disk, prPreemptAbort, &[3]uint64{key, victim, prWriteExclusive})
}

// control calls an ioctl whose argument is at most 24 bytes long.
func control(disk *os.File, request uintptr, argument *[3]uint64) error {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), request, uintptr(unsafe.Pointer(argument)))
	if errno != 0 {
		return errno
	}
	if result != 0 {
		return fmt.Errorf("the disk answers with status %#x", result)
	}
	return nil
}
