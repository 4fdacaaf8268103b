package host

import (
	"context"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// SetReadOnly implements provisioner.Devices. From Linux 5.12 on the protection of a disk is also
// its partitions', and it stays when the disk is read again (commits 947139bf3cfd and
// 52f019d43c22). Before, a partition has its own, and SCSI's answer to a rescan replaces it.
func (d devices) SetReadOnly(ctx context.Context, device provisioner.Device, readOnly bool) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		paths := []string{device.Path}
		if disk := filepath.Base(d.diskDirectory(device.Path)); disk != filepath.Base(device.Path) {
			paths = []string{filepath.Join(d.options.DevRoot, disk), device.Path}
		}
		for _, path := range paths {
			if err := setReadOnly(path, device.Sequence, readOnly); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

func setReadOnly(path string, wanted uint64, readOnly bool) error {
	file, err := openDevice(path, os.O_RDONLY)
	if isGone(err) {
		return provisioner.Errorf(provisioner.NotFound, "the device is gone: %w", err)
	}
	if err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "open device: %w", err)
	}
	defer file.Close()
	if is := sequence(file); wanted != 0 && is != wanted {
		return provisioner.Errorf(provisioner.NotFound, "%s is another device now: its disk has number %d, want %d", path, is,
			wanted)
	}
	value := 0
	if readOnly {
		value = 1
	}
	fd := int(file.Fd())
	is, err := unix.IoctlGetInt(fd, unix.BLKROGET)
	if err == nil && is != value {
		if err = unix.IoctlSetPointerInt(fd, unix.BLKROSET, value); err == nil {
			is, err = unix.IoctlGetInt(fd, unix.BLKROGET)
		}
	}
	switch {
	case isGone(err):
		return provisioner.Errorf(provisioner.NotFound, "the device is gone: %w", err)
	case err != nil:
		return provisioner.Errorf(provisioner.Unavailable, "set write protection of %s: %w", path, err)
	case is != value:
		return provisioner.Errorf(provisioner.Unavailable,
			"set write protection of %s to %d: the kernel has accepted it, and a read of it answers %d", path, value, is)
	}
	return nil
}

// luns is how many data disks a VM of Azure can have at most.
const luns = 64

// Writable implements provisioner.Devices.
func (d devices) Writable(ctx context.Context) map[int32]provisioner.Device {
	found := map[int32]provisioner.Device{}
	for lun := range int32(luns) {
		device, attached := d.lookup(ctx, lun)
		if !attached {
			continue
		}
		if protected, err := bounded(ctx, func() (bool, error) { return isReadOnly(device.Path) }); err == nil && !protected {
			found[lun] = device
		}
	}
	return found
}

func isReadOnly(path string) (bool, error) {
	file, err := openDevice(path, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close()
	is, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKROGET)
	return is != 0, err
}

// sequence returns the number of an open device's disk, 0 if the kernel has none.
func sequence(file *os.File) uint64 {
	var number uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.BLKGETDISKSEQ,
		uintptr(unsafe.Pointer(&number))) //nolint:gosec // An ioctl takes the address of its result.
	if errno != 0 {
		return 0
	}
	return number
}
