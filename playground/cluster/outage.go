package cluster

import (
	"context"
	"fmt"
	"syscall"
)

const apiServer = "kube-apiserver"

// StopAPIServer halts the API server at any point of its work: connections stay
// open and no request is answered. resume lets the server continue, and is idempotent.
func (c *Cluster) StopAPIServer(ctx context.Context) (resume func() error, err error) {
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, component := range status.Components {
		if component.Name != apiServer {
			continue
		}
		pid, err := c.HostPID(component.PID)
		if err != nil {
			return nil, err
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return nil, fmt.Errorf("halt the API server: %w", err)
		}
		return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, nil
	}
	return nil, fmt.Errorf("%s is not among the playground's programs", apiServer)
}
