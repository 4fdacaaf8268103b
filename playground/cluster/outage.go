package cluster

import (
	"context"
	"errors"
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
		return halt(pid, "the API server")
	}
	return nil, fmt.Errorf("%s is not among the playground's programs", apiServer)
}

// halt halts a process until resume is called.
func halt(pid int, what string) (resume func() error, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("halt %s (process %d): %w", what, pid, err)
	}
	return func() error {
		if err := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil // it was replaced
	}, nil
}
