package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// StallTimeout is how long a device may end no write during Sync. It is longer than the pauses of a
// disk that Azure moves, and a quarter of what the kubelet gives a call.
const StallTimeout = 30 * time.Second

// Sync implements provisioner.Mounts. A device that writes slowly is waited for as long as ctx
// lasts: gigabytes can be dirty. One that ends no write is not: a frozen filesystem, or a device
// that hangs, may keep the system call for ever.
func (m mounts) Sync(ctx context.Context, target string) error {
	mount, found, err := m.topMount(ctx, target)
	if err != nil || !found {
		return err
	}
	device, isNode := m.boundNode(mount)
	write := func() error { return syncDevice(device) }
	if !isNode {
		device = m.source(mount)
		if readOnlyMount(mount) || !strings.HasPrefix(device, "/") {
			return nil
		}
		write = func() error { return syncFilesystem(mount) }
	}
	before, _ := m.Counters(device) // 0 for a device that is gone
	ticker := m.options.Clock.NewTicker(StallTimeout)
	defer ticker.Stop()
	ended := make(chan error, 1)
	go func() { ended <- write() }()
	for {
		select {
		case err := <-ended:
			if err != nil && !isGone(err) {
				return provisioner.Errorf(provisioner.Unavailable, "write the data at %s to %s: %w", target, device, err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the data at %s is still being written to %s: %w", target, device, ctx.Err())
		case <-ticker.C():
			now, _ := m.Counters(device)
			if now.Writes == before.Writes {
				return provisioner.Errorf(provisioner.Unavailable, "write the data at %s to %s: the device has ended no write for %s",
					target, device, StallTimeout)
			}
			before = now
		}
	}
}

// syncDevice writes the kernel's cache of a device to it. The device node in /dev is opened, and not
// the one that is mounted: an open file would keep its mount.
func syncDevice(device string) error {
	file, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// syncFilesystem syncs the filesystem through a copy of the mount that is in no namespace, so that
// a sync that hangs does not keep the mount from being unmounted.
func syncFilesystem(mount mountutils.MountInfo) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, mount.MountPoint, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	root, err := unix.Openat(tree, ".", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the filesystem: %w", err)
	}
	defer func() { _ = unix.Close(root) }()
	return unix.Syncfs(root)
}
