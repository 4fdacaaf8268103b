// Package client sends requests to Azure Resource Manager through Azure's SDK. It holds back
// requests that would exceed a quota, retries what failed in transit, translates refusals into the
// error kinds of package provisioner, and follows long-running operations.
package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// Options of New.
type Options struct {
	// Credential for Azure Resource Manager, as from package credential.
	Credential azcore.TokenCredential
	// Cloud with the endpoint. An endpoint over plain http is accepted, and receives bearer tokens
	// too: it is meant for a simulator.
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

// Client is a client of Azure Resource Manager. All methods may be called concurrently.
type Client struct {
	*operation.Follower
	// Clock, Logger, SubscriptionID and EdgeZone come from the Options.
	Clock                    *pacing.Clock
	Logger                   logr.Logger
	SubscriptionID, EdgeZone string

	credential azcore.TokenCredential
	options    *arm.ClientOptions
	pacer      *pacing.Pacer
	metrics    *metrics

	mu       sync.Mutex
	services map[string]*Services // by subscription
}

// Services are the SDK's clients for one subscription.
type Services struct {
	Disks     *armcompute.DisksClient
	Snapshots *armcompute.SnapshotsClient
	VMs       *armcompute.VirtualMachinesClient
	ScaleSets *armcompute.VirtualMachineScaleSetVMsClient
	SKUs      *armcompute.ResourceSKUsClient
	Usages    *armcompute.UsageClient
}

// New makes a Client. The polling of operations goes on after the caller who began them has left,
// and ends with ctx; operations then fail with its error.
func New(ctx context.Context, options Options) (*Client, error) {
	var faults []error
	if options.Credential == nil {
		faults = append(faults, errors.New("a credential is missing"))
	}
	if options.SubscriptionID == "" {
		faults = append(faults, errors.New("a subscription is missing"))
	}
	manager := options.Cloud.Services[cloud.ResourceManager].Endpoint
	endpoint, err := url.Parse(manager)
	if err != nil || endpoint.Host == "" {
		faults = append(faults, fmt.Errorf("the cloud's endpoint for resource manager is %q; expected a URL", manager))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("make a client of Azure: %w", errors.Join(faults...))
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	c := &Client{
		Clock:          pacing.NewClock(options.Clock, options.Rand),
		Logger:         options.Logger,
		SubscriptionID: options.SubscriptionID,
		EdgeZone:       options.EdgeZone,
		credential:     options.Credential,
		pacer:          pacing.NewPacer(),
		metrics:        newMetrics(options.Metrics),
		services:       map[string]*Services{},
	}
	c.Follower = operation.NewFollower(ctx, operation.Options{
		Clock:   c.Clock,
		Metrics: options.Metrics,
		Logger:  options.Logger,
	})
	c.options = &arm.ClientOptions{
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:                           options.Cloud,
			Transport:                       options.Transport,
			Telemetry:                       policy.TelemetryOptions{ApplicationID: options.UserAgent},
			Retry:                           retryOptions(),
			InsecureAllowCredentialWithHTTP: endpoint.Scheme == "http",
			PerCallPolicies: []policy.Policy{hostPolicy{host: endpoint.Host}, agentPolicy{
				prefix: options.UserAgentPrefix,
				suffix: options.UserAgentSuffix,
			}},
			PerRetryPolicies: []policy.Policy{quotaPolicy{client: c}},
		},
	}
	return c, nil
}

// Renew drops the tokens that were got so far, so that later calls ask the credential for one.
// Operations in flight keep theirs.
func (c *Client) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = map[string]*Services{}
}

// In returns the clients for a subscription.
func (c *Client) In(subscription string) (*Services, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.ToLower(subscription)
	if found, ok := c.services[name]; ok {
		return found, nil
	}
	factory, err := armcompute.NewClientFactory(subscription, c.credential, c.options)
	if err != nil {
		return nil, fmt.Errorf("make a client for subscription %s: %w", subscription, err)
	}
	made := &Services{
		Disks:     factory.NewDisksClient(),
		Snapshots: factory.NewSnapshotsClient(),
		SKUs:      factory.NewResourceSKUsClient(),
		Usages:    factory.NewUsageClient(),
		VMs:       factory.NewVirtualMachinesClient(),
		ScaleSets: factory.NewVirtualMachineScaleSetVMsClient(),
	}
	if len(c.services) < mostSubscriptions {
		c.services[name] = made
	}
	return made, nil
}

// mostSubscriptions is for how many subscriptions clients are kept: a user's pod can name any.
const mostSubscriptions = 256

// Resource is a parsed resource ID with the clients of its subscription.
type Resource struct {
	*arm.ResourceID
	*Services
}

// The types of resources.
const (
	TypeDisk       = "Microsoft.Compute/disks"
	TypeSnapshot   = "Microsoft.Compute/snapshots"
	TypeVM         = "Microsoft.Compute/virtualMachines"
	TypeScaleSetVM = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
)

// Is reports whether the resource is of a type.
func (r Resource) Is(resourceType string) bool {
	return strings.EqualFold(r.ResourceType.String(), resourceType)
}

// Parse reads a resource ID, which must be of one of the types.
func (c *Client) Parse(id string, types ...string) (Resource, error) {
	parsed, err := arm.ParseResourceID(id)
	if err != nil || parsed.SubscriptionID == "" || parsed.ResourceGroupName == "" {
		return Resource{}, provisioner.Errorf(provisioner.InvalidArgument, "%q is not a resource ID", id)
	}
	r := Resource{ResourceID: parsed}
	if slices.ContainsFunc(types, r.Is) {
		r.Services, err = c.In(parsed.SubscriptionID)
		return r, err
	}
	return Resource{}, provisioner.Errorf(provisioner.InvalidArgument, "%q is not a resource ID of type %s", id,
		strings.Join(types, " or "))
}

// UpdateDelay is how long an update of a VM would have to wait for its quota.
func (c *Client) UpdateDelay(vmID string) time.Duration {
	return c.pacer.Delay(c.Clock.Now(), pacing.Scope{Policy: pacing.UpdateVM, Resource: operation.Key(vmID)})
}

// HasReads reports whether that many reads of a VM are left of its quota.
func (c *Client) HasReads(vmID string, n int) bool {
	return c.pacer.Has(c.Clock.Now(), pacing.Scope{Policy: pacing.GetVM, Resource: operation.Key(vmID)}, float64(n))
}

// Persistent sets how often the SDK retries a request about a VM: once, and not at all after a
// request that Azure failed to answer. The callers of this package repeat such requests, and while
// Azure is down each further request uses the quota that they need when Azure is back.
func (c *Client) Persistent(ctx context.Context, p pacing.Policy, vmID string) context.Context {
	if c.pacer.Failing(pacing.Scope{Policy: p, Resource: operation.Key(vmID)}) {
		return retries(ctx, 0)
	}
	return retries(ctx, 1)
}
