package supervisor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
)

type dialer func(context.Context) (net.Conn, error)

// proxies carry connections from one network namespace to another.
type proxies struct {
	log *slog.Logger

	mu        sync.Mutex
	listeners []net.Listener
}

func newProxies(log *slog.Logger) *proxies { return &proxies{log: log} }

// serve connects each connection to the listener with one that dial makes.
func (p *proxies) serve(listener net.Listener, dial dialer) {
	p.mu.Lock()
	p.listeners = append(p.listeners, listener)
	p.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				p.log.Warn("a proxied connection was not accepted", "address", listener.Addr().String(), "error", err)
				continue
			}
			go p.carry(conn, dial)
		}
	}()
}

func (p *proxies) carry(conn net.Conn, dial dialer) {
	defer conn.Close()
	target, err := dial(context.Background())
	if err != nil {
		p.log.Warn("a proxied connection has no other end", "error", err)
		return
	}
	defer target.Close()
	var wait sync.WaitGroup
	wait.Add(2)
	go oneWay(&wait, target, conn)
	go oneWay(&wait, conn, target)
	wait.Wait()
}

// oneWay copies until the source ends and passes that end on, so that the other
// direction may still finish.
func oneWay(wait *sync.WaitGroup, to, from net.Conn) {
	defer wait.Done()
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	} else {
		_ = to.Close()
	}
}

func (p *proxies) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.listeners = nil
}
