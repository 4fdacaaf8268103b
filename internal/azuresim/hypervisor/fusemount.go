package hypervisor

import (
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fuseMount is a FUSE file system that is mounted nowhere: a detached mount, reached through a file
// descriptor only.
//
// It is not in any mount table, so no other mount namespace copies it (a VM's namespace that held a
// copy would show every VM's disks and keep the file system alive), it cannot be unmounted by
// mistake, and a hypervisor that is killed leaves no mount behind: the kernel drops it with the
// process's descriptors.
type fuseMount struct {
	fs     *fuseFS
	root   *os.File // the detached mount
	server *fuse.Server
	served chan struct{} // closed when the last request was answered
}

// mountFuse makes the file system and serves it until close.
func mountFuse(fs *fuseFS, logger *log.Logger) (*fuseMount, error) {
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: open /dev/fuse: %w", ErrUnsupported, err)
	}
	root, err := detachedMount("fuse", map[string]string{
		"source":   "azuresim",
		"fd":       strconv.Itoa(device),
		"rootmode": "40000",
		"user_id":  "0",
		"group_id": "0",
		"max_read": strconv.Itoa(maxIOBytes),
	})
	if err != nil {
		_ = unix.Close(device)
		return nil, err
	}
	server, err := fuse.NewServer(fs, "/dev/fd/"+strconv.Itoa(device), &fuse.MountOptions{
		MaxWrite:          maxIOBytes,
		MaxBackground:     backgroundIO,
		ExtraCapabilities: fuse.CAP_ASYNC_DIO,
		DisableXAttrs:     true,
		Logger:            logger,
	})
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("start FUSE server: %w", err)
	}
	m := &fuseMount{
		fs:     fs,
		root:   root,
		server: server,
		served: make(chan struct{}),
	}
	go func() {
		defer close(m.served)
		server.Serve()
	}()
	return m, nil
}

// close ends the file system and returns when no request is served any more. A loop device that a
// stale mount keeps alive gets an error from then on.
func (m *fuseMount) close() error {
	if err := m.abort(); err != nil {
		return err
	}
	<-m.served
	return m.root.Close()
}

// abort ends the FUSE connection through the kernel's control file system, since unmounting would
// wait for users that the hypervisor does not control.
func (m *fuseMount) abort() error {
	var stat unix.Statx_t
	// Unsynchronised, for this process must not wait for its own file system (see agent).
	if err := unix.Statx(int(m.root.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &stat); err != nil {
		return fmt.Errorf("stat FUSE root: %w", err)
	}
	control, err := detachedMount("fusectl", nil)
	if err != nil {
		return err
	}
	defer control.Close()
	name := fmt.Sprintf("%d/abort", stat.Dev_minor)
	fd, err := unix.Openat(int(control.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open FUSE connection %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if _, err := file.WriteString("1"); err != nil {
		return fmt.Errorf("abort FUSE connection: %w", err)
	}
	return nil
}

// detachedMount makes a file system that no path leads to and returns its root.
func detachedMount(fsType string, options map[string]string) (*os.File, error) {
	context, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: fsopen %s (Linux 5.2 or newer and root are needed): %w", ErrUnsupported, fsType, err)
	}
	defer unix.Close(context)
	for key, value := range options {
		if err := unix.FsconfigSetString(context, key, value); err != nil {
			return nil, fmt.Errorf("set %s option %s: %w", fsType, key, err)
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("create %s file system: %w", fsType, err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s file system: %w", fsType, err)
	}
	return os.NewFile(uintptr(fd), fsType), nil
}
