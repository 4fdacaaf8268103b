package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	loopMajor = 7
	// sectorSize is the logical block size of the devices, as on Azure (512e).
	sectorSize = 512
	// bindTries bounds the race for a free device number against other programs on the machine;
	// each lost try costs a millisecond.
	bindTries = 256
)

// bindLoop puts a loop device over file and returns its path. The file's name is the device's
// identity for clearLoop and sweepLoops. The binding outlives the calling process.
func bindLoop(file *os.File) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("%w: open /dev/loop-control: %w", ErrUnsupported, err)
	}
	defer control.Close()
	for range bindTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("%w: find a free loop device: %w", ErrNoSpace, err)
		}
		device := fmt.Sprintf("/dev/loop%d", number)
		err = configureLoop(device, number, file)
		if err == nil {
			return device, nil
		}
		// Between the two calls another process may have taken or removed the device.
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
			return "", fmt.Errorf("configure %s: %w", device, err)
		}
	}
	return "", fmt.Errorf("%w: lost the race for a free loop device %d times", ErrNoSpace, bindTries)
}

func configureLoop(device string, number int, file *os.File) error {
	// Where /dev is not a devtmpfs the kernel does not make the node.
	err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make device node: %w", err)
	}
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Size: sectorSize}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	if err := unix.IoctlLoopConfigure(fd, &config); err != nil {
		return err
	}
	return unprotect(fd)
}

// unprotect removes the write protection that the last user of the device set. The kernel keeps it
// with the device's number, also when another file backs it, but a newly attached disk must be
// writable.
func unprotect(fd int) error {
	if err := unix.IoctlSetPointerInt(fd, unix.BLKROSET, 0); err != nil {
		return fmt.Errorf("take write protection away: %w", err)
	}
	return nil
}

// clearLoop removes the loop device if its backing file's name begins with prefix, and does nothing
// otherwise. A device that is in use (a mount in some namespace) is removed when its last user
// ends.
func clearLoop(device, prefix string) error {
	cleared, err := releaseLoop(device, prefix)
	if err != nil || !cleared || backingName(device) != "" {
		return err
	}
	return openLoop(device, unprotect)
}

// openLoop calls do with the device open for reading. One that does not exist has been cleared
// already.
func openLoop(device string, do func(fd int) error) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	defer unix.Close(fd)
	return do(fd)
}

// releaseLoop reports whether it was the device's to clear. The kernel does it when the last
// descriptor is closed.
func releaseLoop(device, prefix string) (cleared bool, err error) {
	err = openLoop(device, func(fd int) error {
		// The open descriptor keeps others from binding the device again between the look at the
		// name and the clearing.
		if cleared = strings.HasPrefix(backingName(device), prefix); !cleared {
			return nil
		}
		if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("clear %s: %w", device, err)
		}
		return nil
	})
	return cleared, err
}

// resizeLoop lets the device show the present size of its file.
func resizeLoop(device string) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("refresh capacity of %s: %w", device, err)
	}
	return nil
}

// backingName returns the name of the device's backing file without its directory, or "" for a
// device that is free. It asks sysfs, since the ioctl for it wants the file's attributes, and a
// file that is cut or whose server was killed gives none.
func backingName(device string) string {
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"))
	if err != nil {
		return ""
	}
	return filepath.Base(string(backing))
}

// sweepLoops clears every loop device of this machine whose backing file's name begins with prefix:
// what an earlier process left behind. It returns how many there were. It opens no device of
// another program, for that could delay its removal.
func sweepLoops(prefix string) (int, error) {
	bound, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return 0, fmt.Errorf("list loop devices: %w", err)
	}
	found := 0
	var errs []error
	for _, path := range bound {
		device := "/dev/" + filepath.Base(filepath.Dir(path))
		if strings.HasPrefix(backingName(device), prefix) {
			found++
			errs = append(errs, clearLoop(device, prefix))
		}
	}
	return found, errors.Join(errs...)
}
