package host

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// subscription tells when the devices of this node may have changed: by inotify on
// the directories of Azure's links, and by the kernel's own uevents. Either may
// be missing (no inotify instance left, a network namespace without uevents);
// the caller's ticker is what is relied upon.
type subscription struct {
	happened    chan struct{}
	directories []string
	watcher     *fsnotify.Watcher
	uevents     *os.File
}

func (d devices) subscribe(ctx context.Context) *subscription {
	s := &subscription{happened: make(chan struct{}, 1), directories: d.linkDirectories()}
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		s.watcher = watcher
		go s.forwardInotify()
	}
	if uevents, err := openUevents(); err == nil {
		s.uevents = uevents
		go s.forwardUevents(ctx)
	}
	return s
}

// watchDirectories watches each directory of links or, where it is missing, the
// closest one above it, to see it being made. Watching one twice changes nothing.
func (s *subscription) watchDirectories() {
	if s.watcher == nil {
		return
	}
	for _, dir := range s.directories {
		for s.watcher.Add(dir) != nil && dir != "/" {
			dir = filepath.Dir(dir)
		}
	}
}

func (s *subscription) close() {
	if s.watcher != nil {
		_ = s.watcher.Close()
	}
	if s.uevents != nil {
		_ = s.uevents.Close()
	}
}

// notify wakes the waiter; one wake-up that waits is enough for any number of events.
func (s *subscription) notify() {
	select {
	case s.happened <- struct{}{}:
	default:
	}
}

func (s *subscription) forwardInotify() {
	errs := s.watcher.Errors
	for {
		select {
		case _, open := <-s.watcher.Events:
			if !open {
				return
			}
			s.notify()
		case _, open := <-errs:
			if !open {
				return
			}
			// An overflow: something happened, whatever it was.
			s.notify()
		}
	}
}

func (s *subscription) forwardUevents(ctx context.Context) {
	buffer := make([]byte, 16<<10)
	for ctx.Err() == nil {
		n, err := s.uevents.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("SUBSYSTEM=block\x00")) {
			s.notify()
		}
	}
}

// openUevents opens the kernel's multicast group of uevents. The file is non-blocking, so that
// Close ends a Read.
func openUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}
