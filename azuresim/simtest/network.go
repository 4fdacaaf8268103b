package simtest

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// network connects clients and servers of one process without sockets. A goroutine that waits for it
// waits on a channel, so that the clock of a bubble of testing/synctest can go on.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener // by address
}

func newNetwork() *network { return &network{listeners: map[string]*listener{}} }

// listen gives each listener a port of its own.
func (n *network) listen(string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{
		at:     address(fmt.Sprintf("127.0.0.1:%d", len(n.listeners)+1)),
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
	n.listeners[l.at.String()] = l
	return l, nil
}

// dial connects to the listener at an address.
func (n *network) dial(ctx context.Context, _, to string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s in memory: no simulator listens there", to)
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s in memory: the simulator has ended", to)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listener implements net.Listener.
type listener struct {
	at     address
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.at }

// address implements net.Addr.
type address string

// Network implements net.Addr.
func (address) Network() string { return "memory" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
