package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// disks is where commands are run: a hypervisor.Client.
type disks interface {
	Execute(ctx context.Context, device string, cdb, out []byte) (reservations.Answer, error)
}

// server answers the caught ioctls of any number of VMs.
type server struct {
	disks disks
	log   *slog.Logger
	calls sync.WaitGroup
}

// Serve takes listeners from the socket and answers their calls until ctx ends. A call that comes
// after that fails in its process with ENOSYS.
func Serve(ctx context.Context, socket *net.UnixListener, disks *hypervisor.Client, log *slog.Logger) error {
	s := &server{disks: disks, log: log}
	unregister := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer unregister()
	defer s.calls.Wait()
	for {
		connection, err := socket.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a VM: %w", err)
		}
		s.calls.Go(func() {
			if err := s.serveConnection(ctx, connection); err != nil {
				s.log.ErrorContext(ctx, "the ioctls of a VM are not answered", "error", err)
			}
		})
	}
}

// serveConnection receives one listener, confirms it, and serves it.
func (s *server) serveConnection(ctx context.Context, connection *net.UnixConn) error {
	listener, err := receiveFile(connection)
	if errors.Is(err, io.EOF) {
		return connection.Close()
	}
	if err == nil {
		_, err = connection.Write([]byte{0})
	}
	if err = errors.Join(err, connection.Close()); err != nil {
		return err
	}
	return s.serveListener(ctx, listener)
}

// sendFile hands a file to the process at the other end, and returns when it has it.
func sendFile(connection *net.UnixConn, file *os.File) error {
	if _, _, err := connection.WriteMsgUnix([]byte{0}, unix.UnixRights(int(file.Fd())), nil); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait until the listener is taken: %w", err)
	}
	return nil
}

func receiveFile(connection *net.UnixConn) (*os.File, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := connection.ReadMsgUnix(make([]byte, 1), control)
	if errors.Is(err, io.EOF) {
		return nil, err // a program that only looked whether this one listens
	}
	if err != nil {
		return nil, fmt.Errorf("receive a listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, fmt.Errorf("receive a listener: parse the message: %w", err)
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("receive a listener: got %d control messages, want 1", len(messages))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, fmt.Errorf("receive a listener: parse the message: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "seccomp listener"), nil
}
