package imds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrAddress marks an address that the service must not listen on.
var ErrAddress = errors.New("address not allowed")

// checkAddress refuses the addresses at which a host's own metadata service, or everybody, could be taken in.
func checkAddress(address string) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not IP:PORT: %w", ErrAddress, address, err)
	}
	if ip := parsed.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
		return fmt.Errorf("%w: %s is link-local or unspecified; give a network namespace of a VM, or --allow-link-local inside of one", ErrAddress, ip)
	}
	return nil
}

// listen listens in the network namespace at path, or in the process's own if path is "". A socket stays in the namespace in
// which it was made, so only the thread that makes it goes there.
func listen(ctx context.Context, address, path string) (net.Listener, error) {
	config := net.ListenConfig{}
	if path == "" {
		return config.Listen(ctx, "tcp", address)
	}
	namespace, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer unix.Close(namespace)
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so no other one finds itself in that namespace.
		runtime.LockOSThread()
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter network namespace %s: %w", path, err)}
			return
		}
		listener, err := config.Listen(ctx, "tcp", address)
		done <- result{listener, err}
	}()
	r := <-done
	return r.listener, r.err
}
