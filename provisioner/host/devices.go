package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type devices struct{ *Host }

// Find looks, in this order, at the links of azure-vm-utils, at the links of the Linux agent, and
// at the SCSI and NVMe devices themselves.
func (d devices) Find(ctx context.Context, lun int32) (provisioner.Device, error) {
	if device, found := d.lookup(ctx, lun); found {
		return device, nil
	}
	// The events are subscribed to before the next look, so that none is missed between both.
	events := d.subscribe(ctx)
	defer events.close()
	ticker := d.options.Clock.NewTicker(d.options.RescanInterval)
	defer ticker.Stop()
	scans := make(chan struct{}, 1)
	d.startScan(scans, events)
	for {
		events.watchDirectories()
		if device, found := d.lookup(ctx, lun); found {
			return device, nil
		}
		select {
		case <-ctx.Done():
			return provisioner.Device{},
				provisioner.Errorf(provisioner.NotFound, "no device at LUN %d showed up: %w", lun, ctx.Err())
		case <-events.happened:
		case <-ticker.C():
			d.startScan(scans, events)
		}
	}
}

// startScan scans the controllers, unless a scan is running, and tells when it has ended. A scan
// waits for disks that do not answer, and cannot be stopped.
func (d devices) startScan(running chan struct{}, events *subscription) {
	select {
	case running <- struct{}{}:
	default:
		return
	}
	go func() {
		d.rescanControllers()
		<-running
		events.notify()
	}()
}

func (d devices) linkDirectories() []string {
	return []string{
		filepath.Join(d.options.Links, "data/by-lun"),
		filepath.Join(d.options.Links, "scsi1"),
	}
}

// lookup returns the device at the LUN if it exists and can be opened. A link whose device does
// not exist yet, or any more, counts as no device.
func (d devices) lookup(ctx context.Context, lun int32) (provisioner.Device, bool) {
	number := strconv.Itoa(int(lun))
	candidates := []string{
		filepath.Join(d.options.Links, "data/by-lun", number),
		filepath.Join(d.options.Links, "scsi1/lun"+number),
	}
	for _, link := range candidates {
		if path, err := filepath.EvalSymlinks(link); err == nil {
			if device, err := d.open(ctx, path); err == nil {
				return device, true
			}
		}
	}
	for _, disk := range []func(int32) (string, bool){d.scsiDisk, d.nvmeDisk} {
		if path, found := disk(lun); found {
			if device, err := d.open(ctx, path); err == nil {
				return device, true
			}
		}
	}
	return provisioner.Device{}, false
}

// open reads the kernel's present data about a device.
func (d devices) open(ctx context.Context, path string) (provisioner.Device, error) {
	return bounded(ctx, func() (provisioner.Device, error) {
		file, err := openDevice(path, os.O_RDONLY)
		if err != nil {
			return provisioner.Device{}, err
		}
		defer file.Close()
		return describe(file, path)
	})
}

// Rescan asks the SCSI or NVMe layer for the size, where the device has one, and drops
// the page cache of the device: while this node held a replica, another node wrote.
func (d devices) Rescan(ctx context.Context, path string) (provisioner.Device, error) {
	return bounded(ctx, func() (provisioner.Device, error) {
		if err := d.askForSize(path); err != nil {
			return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "rescan %s: %w", path, err)
		}
		file, err := openDevice(path, os.O_RDONLY)
		if err != nil {
			return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "open device: %w", err)
		}
		defer file.Close()
		if err := unix.IoctlSetInt(int(file.Fd()), unix.BLKFLSBUF, 0); err != nil {
			return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "drop cache of %s: %w", path, err)
		}
		return describe(file, path)
	})
}

// askForSize makes the kernel read the size of the disk again: of a SCSI disk directly, of an NVMe
// namespace through its controller. Other devices, and partitions, get their size from the device
// below them.
func (d devices) askForSize(path string) error {
	dir := d.diskDirectory(path)
	for _, attribute := range []string{"device/rescan", "device/rescan_controller"} {
		if err := writeAttribute(filepath.Join(dir, attribute), "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// diskDirectory is the directory in sysfs of a device's disk.
func (h *Host) diskDirectory(path string) string {
	dir := resolved(filepath.Join(h.options.SysRoot, "class/block", filepath.Base(path)))
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		return filepath.Dir(dir)
	}
	return dir
}

// Flush opens the device exclusively, which the kernel refuses as long as a
// filesystem is mounted from it in any mount namespace, and for a frozen filesystem also after that.
func (d devices) Flush(ctx context.Context, path string) error {
	err := d.flush(ctx, path)
	if errors.Is(err, provisioner.Conflict) && d.thawUnmounted(ctx, path) {
		err = d.flush(ctx, path)
	}
	if errors.Is(err, provisioner.Conflict) {
		return fmt.Errorf("%w: %s", err, d.holders(path))
	}
	return err
}

func (d devices) flush(ctx context.Context, path string) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		file, err := openDevice(path, os.O_RDWR|os.O_EXCL)
		if isGone(err) {
			return struct{}{}, nil
		}
		if errors.Is(err, syscall.EBUSY) {
			return struct{}{}, provisioner.Errorf(provisioner.Conflict, "device %s is still held on this node", path).
				With(provisioner.DeviceHeld)
		}
		if err != nil {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "open device to flush: %w", err)
		}
		defer file.Close()
		if err := file.Sync(); err != nil && !isGone(err) {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "flush %s: %w", path, err)
		}
		return struct{}{}, nil
	})
	return err
}

// Hold implements provisioner.Devices. The kernel frees the name of a SCSI disk, and the instance of
// an NVMe namespace, with the last reference to it.
func (d devices) Hold(ctx context.Context, path string) (release func(), err error) {
	file, err := bounded(ctx, func() (*os.File, error) { return openDevice(path, os.O_RDONLY|unix.O_NONBLOCK) })
	if err != nil {
		return nil, provisioner.Errorf(provisioner.Unavailable, "hold device: %w", err)
	}
	return func() { _ = file.Close() }, nil // nothing was written to it
}

// directBlock is a multiple of every sector size; a direct read needs memory and length aligned to
// it.
const directBlock = 4096

// Read implements provisioner.Devices.
func (d devices) Read(ctx context.Context, path string) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		file, err := openDevice(path, os.O_RDONLY|unix.O_DIRECT)
		if isGone(err) {
			return struct{}{}, provisioner.Errorf(provisioner.NotFound, "the device is gone: %w", err)
		}
		if err != nil {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "open device: %w", err)
		}
		defer file.Close()
		page, err := unix.Mmap(-1, 0, directBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "get memory for a direct read: %w", err)
		}
		defer func() { _ = unix.Munmap(page) }()
		n, err := file.ReadAt(page, 0)
		if n == 0 && errors.Is(err, io.EOF) {
			return struct{}{}, provisioner.Errorf(provisioner.NotFound, "device %s has no medium", path)
		}
		if err != nil {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "read device: %w", err)
		}
		return struct{}{}, nil
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return provisioner.Errorf(provisioner.Unavailable, "read %s: no answer in time: %w", path, err)
	}
	return err
}

// isGone distinguishes a device that does not exist any more from a device that fails.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) ||
		errors.Is(err, errNotDevice)
}

var errNotDevice = errors.New("not a block device")

func openDevice(path string, flags int) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return nil, fmt.Errorf("%s: %w", path, errNotDevice)
	}
	return os.OpenFile(path, flags, 0)
}

func describe(file *os.File, path string) (provisioner.Device, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "read size of %s: %w", path, err)
	}
	if size == 0 {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "device %s has no medium", path)
	}
	return provisioner.Device{Path: path, SizeBytes: size, Sequence: sequence(file)}, nil
}
