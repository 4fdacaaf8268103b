// Package network builds the playground's network: namespaces for the control
// plane, the cloud and the nodes, joined by one bridge that lives in a namespace
// of its own. Nothing is added to the host's network.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace, held by a file that is mounted in this
// process's mount namespace: it goes when that goes.
type Namespace struct {
	// Path is the file that holds the namespace.
	Path string
}

// NewNamespace makes a network namespace and holds it at dir/name.
func NewNamespace(dir, name string) (*Namespace, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	file.Close()
	made := make(chan error)
	go func() {
		// The thread is never unlocked: it ends with the goroutine, because its
		// namespace is not that of the others any more.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		made <- unix.Mount(own, path, "", unix.MS_BIND, "")
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("hold network namespace %s: %w", name, err)
	}
	return &Namespace{Path: path}, nil
}

// Do runs f on a thread inside the namespace. Sockets and processes that f makes
// belong to the namespace for good; goroutines that it starts do not.
func (n *Namespace) Do(f func() error) error {
	handle, err := netns.GetFromPath(n.Path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n.Path, err)
	}
	defer handle.Close()
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := netns.Set(handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.Path, err)
	}
	err = f()
	if back := netns.Set(home); back != nil {
		// The thread stays locked, so that it ends with the goroutine.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.Path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Dial connects from inside the namespace. The address must be a literal one.
func (n *Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := n.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens inside the namespace. The address must be a literal one.
func (n *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := n.Do(func() error {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return listener, err
}
