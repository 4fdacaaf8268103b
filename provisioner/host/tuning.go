package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type tuner struct{ devices }

// Tune implements provisioner.Tuner.
func (t tuner) Tune(ctx context.Context, disk string, settings []provisioner.DeviceSetting) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		dir, err := t.settingsOf(disk)
		if err != nil {
			return struct{}{}, err
		}
		for _, setting := range settings {
			if err := dir.apply(setting); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// settingsDir is where a disk has its settings, with links resolved.
type settingsDir struct {
	disk string
	// roots are the directories in which a setting may be.
	roots []string
}

func (t tuner) settingsOf(disk string) (settingsDir, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(t.options.SysRoot, "class/block", filepath.Base(disk)))
	if err != nil {
		return settingsDir{}, provisioner.Errorf(provisioner.Unavailable, "find the settings of %s: %w", disk, err)
	}
	found := settingsDir{disk: dir, roots: []string{dir}}
	// These two lead out of the disk's directory, and belong to the disk nevertheless: the SCSI or
	// NVMe device, and the backing device of the page cache.
	for _, link := range []string{"device", "bdi"} {
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, link)); err == nil {
			found.roots = append(found.roots, target)
		}
	}
	return found, nil
}

func (d settingsDir) apply(setting provisioner.DeviceSetting) error {
	file, err := d.resolve(setting.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if setting.Optional {
			return nil
		}
		return refuseSetting(setting, "the disk %s has no such setting", filepath.Base(d.disk))
	}
	if err != nil {
		return err
	}
	value := setting.Value
	if setting.Ceiling != "" {
		value = d.cut(value, setting.Ceiling)
	}
	err = writeAttribute(file, value)
	switch {
	case err == nil:
		return nil
	case isRefusal(err):
		return refuseSetting(setting, "the kernel refused the value for disk %s: %w", filepath.Base(d.disk), err)
	default:
		return provisioner.Errorf(provisioner.Unavailable, "write device setting %s: %w", setting.Path, err)
	}
}

// resolve returns the file of a setting. Links may lead to other files of the disk, and not out of
// its folder: device/driver/unbind would unbind every disk.
func (d settingsDir) resolve(path string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(path)) {
		return "", provisioner.Errorf(provisioner.InvalidArgument,
			"device setting %q: the path must stay below the disk's directory", path)
	}
	file, err := filepath.EvalSymlinks(filepath.Join(d.disk, filepath.FromSlash(path)))
	if err != nil {
		return "", err
	}
	for _, root := range d.roots {
		if strings.HasPrefix(file, root+string(filepath.Separator)) {
			return file, nil
		}
	}
	return "", provisioner.Errorf(provisioner.InvalidArgument, "device setting %q: leads to %s, which is not the disk's own",
		path, file)
}

// cut returns value, or the ceiling if it is less.
func (d settingsDir) cut(value, ceiling string) string {
	wanted, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	file, err := d.resolve(ceiling)
	if err != nil {
		return value
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return value
	}
	if most, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && most < wanted {
		return strconv.FormatInt(most, 10)
	}
	return value
}

// isRefusal distinguishes a value that the kernel refuses from a file that cannot be written.
func isRefusal(err error) bool {
	for _, refusal := range []error{syscall.EINVAL, syscall.ERANGE, syscall.ENOTSUP, syscall.E2BIG, syscall.ENODEV,
		syscall.EISDIR, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func refuseSetting(setting provisioner.DeviceSetting, format string, args ...any) error {
	return provisioner.Errorf(provisioner.InvalidArgument, "device setting %s: value %q: %w", setting.Path, setting.Value,
		fmt.Errorf(format, args...))
}

// Partition implements provisioner.Tuner. Names of partitions differ (sdc1, nvme0n1p1, loop0p1),
// and so do udev's links to them; sysfs says which of a disk's devices is which.
func (t tuner) Partition(ctx context.Context, disk string, number int) (provisioner.Device, error) {
	name, err := t.partitionName(disk, number)
	if errors.Is(err, fs.ErrNotExist) {
		if err := t.readPartitions(ctx, disk); err != nil {
			return provisioner.Device{}, err
		}
		name, err = t.partitionName(disk, number)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s has no partition %d", disk,
			number)
	}
	if err != nil {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "list partitions of %s: %w", disk, err)
	}
	return t.Rescan(ctx, filepath.Join(t.options.DevRoot, name))
}

func (t tuner) partitionName(disk string, number int) (string, error) {
	dir := filepath.Join(t.options.SysRoot, "class/block", filepath.Base(disk))
	entries, err := os.ReadDir(dir + "/")
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, entry.Name(), "partition"))
		if err == nil && strings.TrimSpace(string(raw)) == strconv.Itoa(number) {
			return entry.Name(), nil
		}
	}
	return "", fs.ErrNotExist
}

// readPartitions makes the kernel read the partition table again. A disk that is in use, or that
// has no partitions by its nature, is left as it is.
func (t tuner) readPartitions(ctx context.Context, disk string) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		file, err := openDevice(disk, os.O_RDONLY)
		if err != nil {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "open device: %w", err)
		}
		defer file.Close()
		err = unix.IoctlSetInt(int(file.Fd()), unix.BLKRRPART, 0)
		if err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EINVAL) {
			return struct{}{}, provisioner.Errorf(provisioner.Unavailable, "read partition table of %s: %w", disk, err)
		}
		return struct{}{}, nil
	})
	return err
}
