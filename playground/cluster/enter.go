package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/machine"
	"github.com/azuredisk-csi/azuredisk/playground/process"
)

// Enter returns the beginning of a command line that runs
// what follows inside a node, or inside the network namespace cp, azure or net with
// the supervisor's view of files.
func (c *Cluster) Enter(ctx context.Context, name string) ([]string, error) {
	if _, err := c.Plan.Node(name); err == nil {
		pid, err := c.NodePID(ctx, name)
		if err != nil {
			return nil, err
		}
		return append(c.withReservations(), enterMachine(pid)...), nil
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	supervisor, err := c.HostPID(status.SupervisorPID)
	if err != nil {
		return nil, err
	}
	ns := filepath.Join(fmt.Sprintf("/proc/%d/root", supervisor), c.Dir.Namespaces(), "azpg-"+name)
	if _, err := os.Stat(ns); err != nil {
		return nil, fmt.Errorf("%q is neither a node nor one of cp, azure and net", name)
	}
	return []string{"nsenter", "--target", strconv.Itoa(supervisor), "--mount", "--pid", "--net=" + ns, "--"}, nil
}

// withReservations gives what follows the ioctls of reservations, as the node's own processes have
// them.
func (c *Cluster) withReservations() []string {
	return []string{c.Options.Programs["azuresim"], "guest", "run", "--socket", azure.GuestSocket(c.Dir.Azure()), "--"}
}

// enterMachine runs what follows with the environment of the machine's own programs, and the
// terminal of the caller.
func enterMachine(pid int) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(pid), "--all", "--", "env"}, machine.Environment()...)
}

// NodePID is the host's number of a node's first process. It fails for a node without power.
func (c *Cluster) NodePID(ctx context.Context, node string) (int, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range status.Nodes {
		if n.Name == node && n.Power {
			return c.HostPID(n.PID)
		}
	}
	return 0, fmt.Errorf("%s is switched off", node)
}

// HostPID turns a process number of the playground's PID namespace, as in a status,
// into the host's.
func (c *Cluster) HostPID(pid int) (int, error) {
	all, err := c.hostPIDs()
	if err != nil {
		return 0, err
	}
	if host, ok := all[pid]; ok {
		return host, nil
	}
	return 0, fmt.Errorf("process %d of the playground has ended", pid)
}

// Processes are all processes of the playground, those of the nodes included.
func (c *Cluster) Processes() ([]process.Identity, error) {
	all, err := c.hostPIDs()
	if err != nil {
		return nil, err
	}
	var list []process.Identity
	for _, pid := range all {
		if id, err := process.Identify(pid); err == nil { // it may have ended by now
			list = append(list, id)
		}
	}
	return list, nil
}

// hostPIDs maps the playground's process numbers to the host's. A process of the
// playground is one whose namespace is that of the supervisor, or lies within it.
func (c *Cluster) hostPIDs() (map[int]int, error) {
	id, alive, err := c.Dir.Supervisor()
	if err != nil {
		return nil, err
	}
	if !alive {
		return nil, ErrNotUp
	}
	first, err := namespacePIDs(id.PID)
	if err != nil {
		return nil, err
	}
	depth := len(first) - 1
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]int{}
	for _, entry := range entries {
		host, err := strconv.Atoi(entry.Name())
		if err != nil || !descends(host, id.PID) {
			continue
		}
		if pids, err := namespacePIDs(host); err == nil && len(pids) > depth {
			all[pids[depth]] = host
		}
	}
	return all, nil
}

// namespacePIDs are the numbers of a process in its PID namespaces, the host's first.
func namespacePIDs(pid int) ([]int, error) {
	value, err := statusField(pid, "NSpid")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(value) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// descends tells whether the process is the ancestor or descends from it.
func descends(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		value, err := statusField(pid, "PPid")
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(value); err != nil {
			return false
		}
	}
	return pid == ancestor
}

func statusField(pid int, name string) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("process %d has no %s", pid, name)
}
