package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/sku"
)

// Options of New.
type Options = client.Options

// Cloud is Azure Compute.
type Cloud struct {
	api    *client.Client
	engine *batch.Engine
	lists  *vmLists
	skus   *sku.Catalog
	ways   *ways
}

var _ provisioner.Cloud = (*Cloud)(nil)

// New makes a Cloud. Calls in flight and their polling go on after the caller who began them has
// left, and end with ctx; operations then fail with its error.
func New(ctx context.Context, options Options) (*Cloud, error) {
	api, err := client.New(ctx, options)
	if err != nil {
		return nil, err
	}
	c := &Cloud{api: api, skus: sku.New(ctx, api), ways: newWays(api.Logger, options.Metrics)}
	c.lists = &vmLists{cloud: c, pages: map[string]int{}}
	c.engine = batch.New(ctx, batch.Options{
		Platform: platform{Client: api, cloud: c},
		Sizes:    c.skus,
		Clock:    api.Clock,
		Metrics:  options.Metrics,
		Logger:   api.Logger,
	})
	return c, nil
}

// Disks returns the managed disks.
func (c *Cloud) Disks() provisioner.Disks { return disks{c} }

// Snapshots returns the snapshots.
func (c *Cloud) Snapshots() provisioner.Snapshots { return snapshots{c} }

// Attachments returns the data disks of VMs and scale-set instances.
func (c *Cloud) Attachments() provisioner.Attachments { return attachments{c.engine, c.lists, c} }

// Instances returns VMs and instances of uniform scale sets.
func (c *Cloud) Instances() provisioner.Instances { return instances{c} }

// SKUs returns the resource SKUs, which are read once a day, and quotas, which are read at most
// once a minute.
func (c *Cloud) SKUs() provisioner.SKUs { return c.skus }

// extendedLocation is the place of disks and snapshots within the region; nil for none.
func (c *Cloud) extendedLocation() *armcompute.ExtendedLocation {
	if c.api.EdgeZone == "" {
		return nil
	}
	kind := armcompute.ExtendedLocationTypesEdgeZone
	return &armcompute.ExtendedLocation{Name: &c.api.EdgeZone, Type: &kind}
}

// Renew drops the tokens that were got so far, so that later calls ask the credential for one.
// Operations in flight keep theirs. It is for credential.Credentials.OnChange.
func (c *Cloud) Renew() { c.api.Renew() }
