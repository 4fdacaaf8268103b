package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// AzureAdmin is a client of azuresim's admin API on the host.
func (c *Cluster) AzureAdmin(ctx context.Context) (azure.Admin, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return azure.Admin{}, err
	}
	if status.AzureAdmin == "" {
		return azure.Admin{}, errors.New("this playground has no azuresim")
	}
	return azure.Admin{URL: status.AzureAdmin, Client: http.DefaultClient}, nil
}

// NodeOfVM returns the node whose VM has that name at Azure. Another VM keeps its name.
func (c *Cluster) NodeOfVM(vm string) string {
	if node, ok := c.Plan.NodeOfVM(vm); ok {
		return node.Name
	}
	return vm
}

// SetLatency switches azuresim's latencies to the profile realistic or fast. Operations in flight
// keep their duration. It holds until the next switch, or until azuresim's front end is started
// again.
func (c *Cluster) SetLatency(ctx context.Context, profile string) error {
	admin, err := c.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	if err := admin.Call(ctx, http.MethodPut, "/admin/latency?name="+url.QueryEscape(profile), nil, nil); err != nil {
		return err
	}
	// Scenarios that measure look here.
	c.Options.Latency = profile
	return state.WriteJSON(c.Dir.Options(), c.Options)
}
