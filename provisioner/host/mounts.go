package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type mounts struct{ *Host }

const (
	dirMode  = 0o750
	fileMode = 0o640
)

// Mount implements provisioner.Mounts.
func (m mounts) Mount(ctx context.Context, device, target, fsType string, options []string) error {
	mount, found, err := m.topMount(ctx, target)
	if err != nil {
		return err
	}
	if found {
		if source := m.source(mount); source != resolved(device) {
			return provisioner.Errorf(provisioner.FailedPrecondition,
				"%s is mounted at %s, which was to become the mount point of %s", source, target, device)
		}
		return nil
	}
	if err := os.MkdirAll(target, dirMode); err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "make mount point: %w", err)
	}
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, device, target)
	ended, err := m.run(ctx, "mount", args...)
	if err != nil || ended.code == 0 {
		return err
	}
	words := fmt.Errorf("mount %s: exit code %d: %s", strings.Join(args, " "), ended.code, ended.output)
	const misunderstood = 1
	if ended.code == misunderstood {
		return provisioner.Errorf(provisioner.InvalidArgument, "%w", words)
	}
	// A device that fails may work later; options that the filesystem does not know stay wrong.
	if err := m.Devices().Read(ctx, device); err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "%w; %w", words, err)
	}
	if fault := mountFault(ctx, device, fsType); fault != "" {
		return provisioner.Errorf(provisioner.FailedPrecondition, "cannot mount %s: %s: %w", device, fault, words)
	}
	return words
}

// Bind implements provisioner.Mounts. A process that was killed between bind and
// remount left a target that can be written to; the next call makes up for it.
func (m mounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	mount, found, err := m.topMount(ctx, target)
	if err != nil {
		return err
	}
	if !found {
		if err := makeBindTarget(source, target); err != nil {
			return err
		}
		args := []string{"--bind"}
		if len(options) > 0 {
			args = append(args, "-o", strings.Join(options, ","))
		}
		if err := m.runOK(ctx, "mount", append(args, source, target)...); err != nil {
			return err
		}
	} else if err := m.checkSame(source, target); err != nil {
		return err
	} else if !readOnly && readOnlyMount(mount) {
		return m.checkReadOnlySource(ctx, source, target)
	}
	if !readOnly || (found && readOnlyMount(mount)) {
		return nil
	}
	err = m.runOK(ctx, "mount", "-o", strings.Join(append([]string{"remount", "bind", "ro"}, options...), ","), target)
	return err
}

func readOnlyMount(mount mountutils.MountInfo) bool { return slices.Contains(mount.MountOptions, "ro") }

// checkReadOnlySource reports whether it is for its source that a bind mount is read-only.
func (m mounts) checkReadOnlySource(ctx context.Context, source, target string) error {
	from, found, err := m.topMount(ctx, source)
	if err != nil || (found && readOnlyMount(from)) {
		return err
	}
	return provisioner.Errorf(provisioner.AlreadyExists, "%s is bound at %s read-only, and was asked for with writing", source,
		target)
}

// sealed are the options of a filesystem that takes no writes; the kernel sets the last two after
// an error.
var sealed = []string{"ro", "emergency_ro", "shutdown"}

func (m mounts) checkSame(source, target string) error {
	from, err := os.Stat(source)
	if err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "look at source of bind mount: %w", err)
	}
	to, err := os.Stat(target)
	if err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "look at target of bind mount: %w", err)
	}
	if !os.SameFile(from, to) {
		return provisioner.Errorf(provisioner.FailedPrecondition, "something else than %s is mounted at %s", source, target)
	}
	return nil
}

func makeBindTarget(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return provisioner.Errorf(provisioner.NotFound, "source of bind mount: %w", err)
		}
		return provisioner.Errorf(provisioner.Unavailable, "source of bind mount: %w", err)
	}
	if err := makeLike(info, target); err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "make target of bind mount: %w", err)
	}
	return nil
}

func makeLike(source os.FileInfo, target string) error {
	if source.IsDir() {
		return os.MkdirAll(target, dirMode)
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, fileMode)
	if err != nil {
		return err
	}
	return file.Close()
}

// Unmount implements provisioner.Mounts. Mounts that lie over one another are all taken away.
func (m mounts) Unmount(ctx context.Context, target string) error {
	for {
		mount, found, err := m.topMount(ctx, target)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		if err := m.thawBeforeLast(ctx, mount); err != nil {
			return err
		}
		if err := m.runOK(ctx, "umount", target); err != nil {
			return m.unmountFailure(ctx, target, err)
		}
	}
	// Remove does not follow into a directory that holds something.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, syscall.ENOTEMPTY) {
			return provisioner.Errorf(provisioner.FailedPrecondition,
				"%s is no mount point and holds files of its own; they are left alone", target)
		}
		return provisioner.Errorf(provisioner.Unavailable, "remove mount point: %w", err)
	}
	return nil
}

// unmountFailure returns why a mount could not be removed. With MNT_EXPIRE the kernel refuses a busy mount
// without a wait, and removes one that is not busy only at the second call. It does not see that a copy of the mount
// in another mount namespace is busy, as the node's own is while a program there uses it: umount has said so.
func (m mounts) unmountFailure(ctx context.Context, target string, failure error) error {
	if ctx.Err() != nil || !strings.Contains(failure.Error(), "target is busy") &&
		!errors.Is(unix.Unmount(target, unix.MNT_EXPIRE|unix.UMOUNT_NOFOLLOW), syscall.EBUSY) {
		return failure
	}
	infos, err := m.mountInfo(ctx)
	if err != nil {
		return failure
	}
	var below []string
	for _, info := range infos {
		if strings.HasPrefix(info.MountPoint, resolvedParent(target)+"/") {
			below = append(below, fmt.Sprintf("%s is mounted at %s", info.Source, info.MountPoint))
		}
	}
	if len(below) == 0 {
		return provisioner.Errorf(provisioner.Conflict,
			"cannot unmount %s: a program uses it; on the node, this names the program: fuser -vm %s", target, target).
			With(provisioner.MountBusy)
	}
	return provisioner.Errorf(provisioner.Conflict, "cannot unmount %s: below it, %s", target, strings.Join(below, ", ")).
		With(provisioner.MountBusy)
}

// List implements provisioner.Mounts.
func (m mounts) List(ctx context.Context) ([]provisioner.MountPoint, error) {
	infos, err := m.mountInfo(ctx)
	if err != nil {
		return nil, err
	}
	points := make([]provisioner.MountPoint, 0, len(infos))
	for _, info := range infos {
		points = append(points, provisioner.MountPoint{
			Source:   m.source(info),
			Target:   info.MountPoint,
			FSType:   info.FsType,
			ReadOnly: readOnlyMount(info),
			Sealed:   slices.ContainsFunc(info.SuperOptions, func(option string) bool { return slices.Contains(sealed, option) }),
		})
	}
	return points, nil
}

// topMount returns the mount that is seen at target.
func (h *Host) topMount(ctx context.Context, target string) (mountutils.MountInfo, bool, error) {
	infos, err := h.mountInfo(ctx)
	if err != nil {
		return mountutils.MountInfo{}, false, err
	}
	target = resolvedParent(target)
	for _, info := range slices.Backward(infos) {
		if info.MountPoint == target {
			return info, true, nil
		}
	}
	return mountutils.MountInfo{}, false, nil
}

func (h *Host) mountInfo(ctx context.Context) ([]mountutils.MountInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	infos, err := mountutils.ParseMountInfo(h.options.MountInfo)
	if err != nil {
		return nil, provisioner.Errorf(provisioner.Unavailable, "read mounts: %w", err)
	}
	for i := range infos {
		infos[i].MountPoint = unescape(infos[i].MountPoint)
		infos[i].Root = unescape(infos[i].Root)
		infos[i].Source = unescape(infos[i].Source)
	}
	return infos, nil
}

// source is the device that is mounted. A bind mount of a device node shows in the list as a mount
// of the filesystem that holds the node; which device it is, the node itself says. Only such mounts
// are touched: a look at a mount whose server is gone would not return.
func (h *Host) source(info mountutils.MountInfo) string {
	if name, ok := h.boundNode(info); ok {
		return name
	}
	if strings.HasPrefix(info.Source, "/") {
		return resolved(info.Source)
	}
	return info.Source
}

// boundNode returns the device of a bind mount of a device node.
func (h *Host) boundNode(info mountutils.MountInfo) (device string, is bool) {
	if (info.FsType == "devtmpfs" || info.FsType == "tmpfs") && info.Root != "/" {
		return h.deviceNode(info.MountPoint)
	}
	return "", false
}

func (h *Host) deviceNode(path string) (string, bool) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", false
	}
	number := fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	link, err := os.Readlink(filepath.Join(h.options.SysRoot, "dev/block", number))
	if err != nil {
		return "", false
	}
	return filepath.Join(h.options.DevRoot, filepath.Base(link)), true
}

func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// resolvedParent resolves the links of all but the last part: the target itself may be a mount
// whose device no longer answers.
func resolvedParent(path string) string {
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// unescape undoes the octal escapes of white space and backslashes in mountinfo.
func unescape(field string) string {
	if !strings.Contains(field, `\`) {
		return field
	}
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) {
			if code, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(field[i])
	}
	return out.String()
}
