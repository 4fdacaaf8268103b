package host

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// fiThaw is FITHAW of linux/fs.h, _IOWR('X', 120, int).
const fiThaw = 0xC0045878

// thaw ends the freeze of a mounted filesystem, and reports whether it was frozen. A filesystem that
// is not frozen, or cannot be, refuses the command.
func thaw(ctx context.Context, path string) bool {
	thawed, err := bounded(ctx, func() (bool, error) {
		dir, err := os.Open(path)
		if err != nil {
			return false, err
		}
		defer dir.Close()
		return unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0) == nil, nil
	})
	return err == nil && thawed
}

// thawBeforeLast ends the freeze of a filesystem whose last mount is about to be removed: a backup
// has frozen it, and has not ended the freeze. The kernel keeps a frozen filesystem without a mount,
// so that no program could end the freeze, and no node use the volume.
func (m mounts) thawBeforeLast(ctx context.Context, mount mountutils.MountInfo) error {
	infos, err := m.mountInfo(ctx)
	if err != nil {
		return err
	}
	same := 0
	for _, other := range infos {
		if other.Major == mount.Major && other.Minor == mount.Minor {
			same++
		}
	}
	if same == 1 && onDevice(mount) && thaw(ctx, mount.MountPoint) {
		logr.FromContextOrDiscard(ctx).Info("ended the freeze of a filesystem before its last unmount", "device", mount.Source,
			"target", mount.MountPoint)
	}
	return nil
}

// onDevice reports whether a mount is a filesystem on a block device, and not a bind mount of a
// device node.
func onDevice(mount mountutils.MountInfo) bool {
	return strings.HasPrefix(mount.Source, "/") && mount.FsType != "devtmpfs" && mount.FsType != "tmpfs"
}

// thawUnmounted ends the freeze of a filesystem that has no mount any more, and reports whether it
// was frozen. It mounts the filesystem for that. The caller knows that something holds the device: if
// that is a frozen filesystem, the mount is one more of it, and if it is something else, the kernel
// refuses the mount.
func (h *Host) thawUnmounted(ctx context.Context, device string) bool {
	infos, err := h.mountInfo(ctx)
	if err != nil || slices.ContainsFunc(infos, func(i mountutils.MountInfo) bool { return h.source(i) == device }) {
		return false
	}
	dir, err := os.MkdirTemp("", "thaw-")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(dir) }()
	if err := h.runOK(ctx, "mount", "-o", "nosuid,nodev,noexec", device, dir); err != nil {
		return false
	}
	thawed := thaw(ctx, dir)
	log := logr.FromContextOrDiscard(ctx)
	if err := h.runOK(context.WithoutCancel(ctx), "umount", dir); err != nil {
		log.Error(err, "cannot unmount a filesystem that was mounted to end its freeze", "device", device, "target", dir)
		return false
	}
	if thawed {
		log.Info("ended the freeze of a filesystem that was not mounted any more", "device", device)
	}
	return thawed
}
