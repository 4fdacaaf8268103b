package supervisor

import (
	"context"
	"fmt"
	"net"
)

// forward opens a port in the network of the cloud, which pods and nodes reach, and
// carries what connects there to an address on the host. It returns the port's
// address. The port stays open until the playground goes down.
func (s *Supervisor) forward(ctx context.Context, to string) (string, error) {
	if host, _, err := net.SplitHostPort(to); err != nil || !net.ParseIP(host).IsLoopback() {
		return "", fmt.Errorf("forward to %q: it must be a loopback address and a port, like 127.0.0.1:8080", to)
	}
	ns, err := s.lab.Namespace("azure")
	if err != nil {
		return "", err
	}
	listener, err := ns.Listen(ctx, "tcp", net.JoinHostPort(s.plan.Cloud().String(), "0"))
	if err != nil {
		return "", fmt.Errorf("open a port for %s: %w", to, err)
	}
	s.proxies.serve(listener, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	})
	return listener.Addr().String(), nil
}
