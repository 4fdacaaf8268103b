package azure

import (
	"context"
	"errors"
	"fmt"
	"math/rand"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/sku"
)

// Options of New.
type Options struct {
	// Credential for Azure Resource Manager, as from package credential.
	Credential azcore.TokenCredential
	// Cloud with the endpoint. An endpoint over plain http is accepted, and receives bearer tokens too: it is meant for a simulator.
	Cloud cloud.Configuration
	// SubscriptionID whose SKU list is read.
	SubscriptionID string
	// EdgeZone is the cluster's edge zone, in which disks and snapshots are created; "" for none.
	EdgeZone string
	// Transport of HTTP requests; the SDK's own if nil.
	Transport policy.Transporter
	// Clock that pacing and polling go by; the real one if nil.
	Clock clock.Clock
	// Rand spreads retries; seeded from the clock if nil. It is not used by others.
	Rand *rand.Rand
	// Metrics to register with; none if nil.
	Metrics prometheus.Registerer
	// Logger; silent if it is the zero value.
	Logger logr.Logger
	// UserAgent is put in front of the SDK's own, at most 24 characters.
	UserAgent string
	// UserAgentPrefix and UserAgentSuffix are put before and after all of the user agent.
	UserAgentPrefix, UserAgentSuffix string
}

// Cloud is Azure Compute.
type Cloud struct {
	api *client.Client

	clock    *pacing.Clock
	edgeZone string
	engine   *batch.Engine
	skus     *sku.Catalog
}

var _ provisioner.Cloud = (*Cloud)(nil)

// New makes a Cloud. Calls in flight and their polling go on after the caller who began them has left, and end with ctx; operations then fail with its error.
func New(ctx context.Context, options Options) (*Cloud, error) {
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	c := &Cloud{clock: pacing.NewClock(options.Clock, options.Rand), edgeZone: options.EdgeZone}
	var missing, err error
	if options.SubscriptionID == "" {
		missing = errors.New("a subscription is missing")
	}
	c.api, err = client.New(ctx, client.Options{
		Credential: options.Credential, Cloud: options.Cloud, Transport: options.Transport, Clock: c.clock, Metrics: options.Metrics, Logger: options.Logger,
		UserAgent: options.UserAgent, UserAgentPrefix: options.UserAgentPrefix, UserAgentSuffix: options.UserAgentSuffix,
	})
	if err = errors.Join(missing, err); err != nil {
		return nil, fmt.Errorf("make a client of Azure: %w", err)
	}
	c.skus = sku.New(ctx, sku.Options{Client: c.api, Clock: c.clock, SubscriptionID: options.SubscriptionID, Logger: options.Logger})
	c.engine, err = batch.New(ctx, batch.Options{Platform: platform{c}, Sizes: c.skus, Clock: c.clock, Metrics: options.Metrics, Logger: options.Logger})
	if err != nil {
		return nil, fmt.Errorf("make a client of Azure: %w", err)
	}
	return c, nil
}

// Disks returns the managed disks.
func (c *Cloud) Disks() provisioner.Disks { return disks{c} }

// Snapshots returns the snapshots.
func (c *Cloud) Snapshots() provisioner.Snapshots { return snapshots{c} }

// Attachments returns the data disks of VMs and scale-set instances.
func (c *Cloud) Attachments() provisioner.Attachments { return attachments{c.engine, c} }

// Instances returns VMs and instances of uniform scale sets.
func (c *Cloud) Instances() provisioner.Instances { return instances{c} }

// SKUs returns the resource SKUs, which are read once a day, and quotas, which are read at most once a minute.
func (c *Cloud) SKUs() provisioner.SKUs { return c.skus }

// extendedLocation is the place of disks and snapshots within the region; nil for none.
func (c *Cloud) extendedLocation() *armcompute.ExtendedLocation {
	if c.edgeZone == "" {
		return nil
	}
	kind := armcompute.ExtendedLocationTypesEdgeZone
	return &armcompute.ExtendedLocation{Name: &c.edgeZone, Type: &kind}
}

// Renew drops the tokens that were got so far, so that later calls ask the credential for one. Operations in flight keep theirs. It is for
// credential.Credentials.OnRenewal.
func (c *Cloud) Renew() { c.api.Renew() }
