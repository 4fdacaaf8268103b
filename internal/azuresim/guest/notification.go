package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification has the layout of linux/seccomp.h.
type notification struct {
	id    uint64
	pid   uint32 // of the thread, as this process sees it
	flags uint32
	call  int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// notifIDValid is SECCOMP_IOCTL_NOTIF_ID_VALID.
const notifIDValid = 0x40082102

func control(listener *os.File, request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, listener.Fd(), request, uintptr(argument))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// serveListener answers the calls of one filter until no process has the filter any more, or ctx
// ends.
func (s *server) serveListener(ctx context.Context, listener *os.File) error {
	defer listener.Close()
	stop, stopped, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stop.Close()
	unregister := context.AfterFunc(ctx, func() { _ = stopped.Close() })
	defer func() {
		if unregister() {
			_ = stopped.Close()
		}
	}()
	for {
		polled := []unix.PollFd{{Fd: int32(listener.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd())}}
		if _, err := unix.Poll(polled, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for caught ioctls: %w", err)
		}
		switch {
		case polled[1].Revents != 0:
			return nil
		case polled[0].Revents&unix.POLLIN != 0:
			n := &notification{}
			if err := control(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)); err != nil {
				continue // its process was killed
			}
			s.calls.Go(func() { s.answer(ctx, listener, n) })
		case polled[0].Revents != 0:
			return nil
		}
	}
}

func (s *server) answer(ctx context.Context, listener *os.File, n *notification) {
	r := &reply{id: n.id}
	c := &call{
		thread:   int(n.pid),
		fd:       int32(n.args[0]),
		command:  uint32(n.args[1]),
		argument: uintptr(n.args[2]),
		// What was read of a process that was killed could be another one's.
		valid: func() error { return control(listener, notifIDValid, unsafe.Pointer(&n.id)) },
	}
	value, err := s.do(ctx, c)
	var errno unix.Errno
	switch {
	case errors.Is(err, errNotOurs):
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	case errors.As(err, &errno):
		r.errno = -int32(errno)
	case err != nil:
		s.log.ErrorContext(ctx, "cannot answer an ioctl", "thread", c.thread, "command", fmt.Sprintf("%#x", c.command), "error",
			err)
		r.errno = -int32(unix.EIO)
	default:
		r.value = value
	}
	_ = control(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)) // it fails only if the process was killed
}
