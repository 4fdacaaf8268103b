package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StopKubelet halts the kubelet of a node at any point of its work; containerd, the pods' containers and so the driver's node plug-in continue
// to run. resume lets the kubelet continue, and is idempotent.
func (c *Cluster) StopKubelet(ctx context.Context, node string) (resume func() error, err error) {
	first, err := c.Process(ctx, node)
	if err != nil {
		return nil, err
	}
	machine, err := os.Readlink(filepath.Join(first, "ns/pid"))
	if err != nil {
		return nil, fmt.Errorf("look up the PID namespace of %s: %w", node, err)
	}
	all, err := c.hostPIDs()
	if err != nil {
		return nil, err
	}
	for _, pid := range all {
		if isKubelet(fmt.Sprintf("/proc/%d", pid), machine) {
			return halt(pid, "the kubelet of "+node)
		}
	}
	return nil, fmt.Errorf("halt the kubelet of %s: no such process runs there", node)
}

// isKubelet says whether a process of the host is a kubelet in the PID namespace of a machine. A process that has ended is not.
func isKubelet(process, machine string) bool {
	namespace, err := os.Readlink(filepath.Join(process, "ns/pid"))
	if err != nil || namespace != machine {
		return false
	}
	command, err := os.ReadFile(filepath.Join(process, "cmdline"))
	program, _, _ := strings.Cut(string(command), "\x00")
	return err == nil && filepath.Base(program) == "kubelet"
}
