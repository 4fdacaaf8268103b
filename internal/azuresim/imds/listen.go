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

// checkAddress refuses the addresses at which a host's own metadata service, or every address,
// would answer.
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

// listen listens in the network namespace at path, or in the process's own if path is "". A socket
// stays in the namespace in which it was made, so a thread enters it only for that moment.
func listen(ctx context.Context, address, path string) (net.Listener, error) {
	config := net.ListenConfig{}
	if path == "" {
		return config.Listen(ctx, "tcp", address)
	}
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer unix.Close(there)
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		var r result
		home, err := inNamespace(there, func() { r.listener, r.err = config.Listen(ctx, "tcp", address) })
		if home {
			runtime.UnlockOSThread()
		} // else the thread ends with the goroutine, so that no other one finds itself in that namespace
		if err != nil {
			r.err = fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		done <- r
	}()
	r := <-done
	return r.listener, r.err
}

// inNamespace runs do with the thread in the namespace. home reports whether the thread is where it
// was.
func inNamespace(namespace int, do func()) (home bool, err error) {
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, err
	}
	defer unix.Close(here)
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return true, err
	}
	do()
	return unix.Setns(here, unix.CLONE_NEWNET) == nil, nil
}
