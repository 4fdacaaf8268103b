package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// StopKubelet halts the kubelet of a node at any point of its work; containerd, the pods'
// containers and so the driver's node plug-in continue to run. resume lets the kubelet continue,
// and is idempotent.
func (c *Cluster) StopKubelet(ctx context.Context, node string) (resume func() error, err error) {
	return c.halt(ctx, node, "kubelet")
}

// StopNodePlugin halts the driver's node plug-in on a node at any point of its work. resume lets it
// continue, and is idempotent. The kubelet replaces a plug-in that stays halted by a new one.
func (c *Cluster) StopNodePlugin(ctx context.Context, node string) (resume func() error, err error) {
	return c.halt(ctx, node, "azuredisk", "node")
}

// halt stops a program of a node that was started with these arguments.
func (c *Cluster) halt(ctx context.Context, node string, command ...string) (resume func() error, err error) {
	first, err := c.Process(ctx, node)
	if err != nil {
		return nil, err
	}
	machine, err := strconv.Atoi(filepath.Base(first))
	if err != nil {
		return nil, err
	}
	all, err := c.hostPIDs()
	if err != nil {
		return nil, err
	}
	for _, pid := range all {
		if runs(pid, command) && descends(pid, machine) {
			return halt(pid, fmt.Sprintf("%q of %s", command, node))
		}
	}
	return nil, fmt.Errorf("halt %q of %s: no such process runs there", command, node)
}

// runs reports whether a process of the host was started with these arguments, the program without
// its folder. A process that has ended was not.
func runs(pid int, command []string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	return err == nil && len(args) >= len(command) && filepath.Base(args[0]) == command[0] &&
		slices.Equal(args[1:len(command)], command[1:])
}
