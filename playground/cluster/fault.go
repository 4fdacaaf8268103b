package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// The API versions of VMs and disks at Azure.
const (
	vmVersion   = "2025-04-01"
	diskVersion = "2025-01-02"
)

// deleteTimeout covers the slowest deletion of a VM at Azure.
const deleteTimeout = 10 * time.Minute

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

// DeleteVM has Azure delete the VM of a node, and returns when there is none any more. The machine
// loses its power at once: nothing says how much time Azure gives it. The VM must not be one of a
// scale set.
func (c *Cluster) DeleteVM(ctx context.Context, name string) error {
	node, client, err := c.vm(ctx, name)
	if err != nil {
		return err
	}
	if err := c.PowerOff(ctx, name); err != nil {
		return fmt.Errorf("cut the power of %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	return client.Remove(ctx, node.ResourceID(), vmVersion)
}

// CreateVM makes the VM of a node again after DeleteVM. The node's machine boots with the disk that
// it had.
func (c *Cluster) CreateVM(ctx context.Context, name string) error {
	node, client, err := c.vm(ctx, name)
	if err != nil {
		return err
	}
	return client.CreateVM(ctx, node, c.Plan)
}

// vm returns a node, and a client for its VM.
func (c *Cluster) vm(ctx context.Context, name string) (topology.Node, *azure.Client, error) {
	node, err := c.Plan.Node(name)
	if err != nil {
		return topology.Node{}, nil, err
	}
	client, err := c.AzureClient(ctx)
	return node, client, err
}

func (c *Cluster) vmAction(ctx context.Context, name, action string) error {
	node, client, err := c.vm(ctx, name)
	if err != nil {
		return err
	}
	return client.Post(ctx, node.ResourceID(), action, vmVersion, nil)
}

// Process is the folder of the node's first process in the host's /proc: what is mounted
// on the node is in its file mounts, and the node's files are below root. It fails for
// a node without power.
func (c *Cluster) Process(ctx context.Context, node string) (string, error) {
	pid, err := c.NodePID(ctx, node)
	return fmt.Sprintf("/proc/%d", pid), err
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
		err = c.helm(ctx, "rollback", DriverRelease, strconv.Itoa(before), "--namespace", DriverNamespace, "--wait", "--timeout",
			installTimeout.String())
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

// AttachOutside has Azure make empty disks and attach them to the node's VM, as someone does who
// does not use the driver. remove detaches and deletes them; it is returned also with an error, for
// what there is by then.
func (c *Cluster) AttachOutside(ctx context.Context, name string, count int) (remove func(context.Context) error, err error) {
	type object = map[string]any
	nothing := func(context.Context) error { return nil }
	node, err := c.Plan.Node(name)
	if err != nil {
		return nothing, err
	}
	client, err := c.AzureClient(ctx)
	if err != nil {
		return nothing, err
	}
	var made []string
	var attach, detach []object
	remove = func(ctx context.Context) error {
		if err := client.Post(ctx, node.ResourceID(), "attachDetachDataDisks", vmVersion,
			object{"dataDisksToDetach": detach}); err != nil {
			return fmt.Errorf("detach the disks from %s: %w", name, err)
		}
		var failures []error
		for _, id := range made {
			failures = append(failures, client.Delete(ctx, id, diskVersion))
		}
		return errors.Join(failures...)
	}
	for i := range count {
		id := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/outside-%s-%d",
			topology.SubscriptionID, topology.ResourceGroup, name, i)
		err := client.Put(ctx, id, diskVersion, object{
			"location":   topology.Region,
			"zones":      []string{node.Zone},
			"sku":        object{"name": "Standard_LRS"},
			"properties": object{"diskSizeGB": 4, "creationData": object{"createOption": "Empty"}},
		})
		if err != nil {
			return remove, fmt.Errorf("make a disk: %w", err)
		}
		made, attach, detach = append(made, id), append(attach, object{"diskId": id}), append(detach, object{"diskId": id})
	}
	if err := client.Post(ctx, node.ResourceID(), "attachDetachDataDisks", vmVersion,
		object{"dataDisksToAttach": attach}); err != nil {
		return remove, fmt.Errorf("attach disks to %s: %w", name, err)
	}
	return remove, nil
}

// AttachElsewhere has Azure make a VM that is no node, in the zone of a node, and attach a disk to
// it, as another cluster does. has reports whether the VM has the disk, and remove detaches it and
// deletes the VM; remove is returned also with an error, for what there is by then.
func (c *Cluster) AttachElsewhere(ctx context.Context, vm, zoneOf, disk string) (has func(context.Context) (bool, error),
	remove func(context.Context) error, err error) {
	type object = map[string]any
	node, err := c.Plan.Node(zoneOf)
	if err != nil {
		return nil, nil, err
	}
	client, err := c.AzureClient(ctx)
	if err != nil {
		return nil, nil, err
	}
	elsewhere := topology.Node{Name: vm, Group: topology.ResourceGroup}.ResourceID()
	err = client.Put(ctx, elsewhere, vmVersion, object{
		"location": topology.Region,
		"zones":    []string{node.Zone},
		"properties": object{
			"hardwareProfile": object{"vmSize": topology.InstanceType},
			"osProfile":       object{"computerName": vm, "adminUsername": "azureuser"},
			"storageProfile":  object{"dataDisks": []any{}},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make the VM %s: %w", vm, err)
	}
	has = func(ctx context.Context) (bool, error) {
		var found struct {
			Properties struct {
				StorageProfile struct {
					DataDisks []struct {
						ManagedDisk struct {
							ID string `json:"id"`
						} `json:"managedDisk"`
					} `json:"dataDisks"`
				} `json:"storageProfile"`
			} `json:"properties"`
		}
		if err := client.Get(ctx, elsewhere, vmVersion, &found); err != nil {
			return false, fmt.Errorf("read the VM %s: %w", vm, err)
		}
		for _, d := range found.Properties.StorageProfile.DataDisks {
			if strings.EqualFold(d.ManagedDisk.ID, disk) {
				return true, nil
			}
		}
		return false, nil
	}
	remove = func(ctx context.Context) error {
		if there, err := has(ctx); err != nil {
			return err
		} else if there {
			if err := client.Post(ctx, elsewhere, "attachDetachDataDisks", vmVersion,
				object{"dataDisksToDetach": []object{{"diskId": disk}}}); err != nil {
				return fmt.Errorf("detach the disk from %s: %w", vm, err)
			}
		}
		return client.Delete(ctx, elsewhere, vmVersion)
	}
	if err := client.Post(ctx, elsewhere, "attachDetachDataDisks", vmVersion,
		object{"dataDisksToAttach": []object{{"diskId": disk}}}); err != nil {
		return has, remove, fmt.Errorf("attach the disk to %s: %w", vm, err)
	}
	return has, remove, nil
}

// AzureClient is a client of Azure Resource Manager with the credentials of the playground.
func (c *Cluster) AzureClient(ctx context.Context) (*azure.Client, error) {
	endpoint, err := c.Azure(ctx)
	if err != nil {
		return nil, err
	}
	client, err := azure.NewClient(ctx, endpoint, c.Options.Credentials)
	if err != nil {
		return nil, fmt.Errorf("log in to azuresim: %w", err)
	}
	return client, nil
}
