package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
)

// vmVersion is the API version of VMs at Azure.
const vmVersion = "2025-04-01"

// DeallocateVM has Azure deallocate the VM of a node and returns when it is done. The
// node's machine loses its power.
func (c *Cluster) DeallocateVM(ctx context.Context, node string) error {
	return c.vmAction(ctx, node, "deallocate")
}

// StartVM has Azure start the VM of a node and returns when it is done. The node's
// machine boots.
func (c *Cluster) StartVM(ctx context.Context, node string) error {
	return c.vmAction(ctx, node, "start")
}

func (c *Cluster) vmAction(ctx context.Context, name, action string) error {
	node, err := c.Plan.Node(name)
	if err != nil {
		return err
	}
	endpoint, err := c.Azure(ctx)
	if err != nil {
		return err
	}
	client, err := azure.NewClient(ctx, endpoint, c.Options.Credentials)
	if err != nil {
		return fmt.Errorf("log in to azuresim: %w", err)
	}
	return client.Post(ctx, node.ResourceID(), action, vmVersion, nil)
}

// Process is the folder of the node's first process in the host's /proc: what is mounted
// on the node is in its file mounts, and the node's files are below root. It fails for
// a node without power.
func (c *Cluster) Process(ctx context.Context, node string) (string, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range status.Nodes {
		if n.Name != node || !n.Power {
			continue
		}
		pid, err := c.HostPID(n.PID)
		return fmt.Sprintf("/proc/%d", pid), err
	}
	return "", fmt.Errorf("%s is switched off", node)
}

// ChangeDriver upgrades the driver's release with these Helm values over those that it
// has, waits until the driver is ready, and returns what takes the release back to what
// it was. That is returned also with an error of the upgrade.
func (c *Cluster) ChangeDriver(ctx context.Context, values map[string]any) (restore func(context.Context) error, err error) {
	before, err := c.driverRevision(ctx)
	if err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(string(c.Dir), "driver-change.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	restored := false
	restore = func(ctx context.Context) error {
		now, err := c.driverRevision(ctx)
		if err != nil || now == before || restored {
			return err
		}
		err = c.helm(ctx, "rollback", DriverRelease, strconv.Itoa(before), "--namespace", DriverNamespace, "--wait", "--timeout", installTimeout.String())
		restored = err == nil
		return err
	}
	chart, err := driverChart()
	if err != nil {
		return nil, err
	}
	err = c.helm(ctx, "upgrade", DriverRelease, chart, "--namespace", DriverNamespace,
		"--reset-then-reuse-values", "--values", file, "--wait", "--timeout", installTimeout.String())
	return restore, err
}
