package azure

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
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
)

// Options of New.
type Options struct {
	// Credential for Azure Resource Manager; OpenCredentials makes one.
	Credential azcore.TokenCredential
	// Cloud with the endpoint; Credentials.Cloud makes one. An endpoint over plain http is
	// taken, and gets bearer tokens too: it is meant for a simulator.
	Cloud cloud.Configuration
	// SubscriptionID for what has no resource ID of its own, which is the SKU list.
	SubscriptionID string
	// EdgeZone is the edge zone that disks and snapshots are made in; "" for none. It is the cluster's, so that it is no parameter of a disk.
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
	// UserAgentPrefix and UserAgentSuffix are what somebody wants to see besides, before and after all the rest.
	UserAgentPrefix, UserAgentSuffix string
}

// Cloud is Azure Compute.
type Cloud struct {
	ctx          context.Context // of the work that goes on after a caller has left
	clock        clock.Clock
	log          logr.Logger
	credential   azcore.TokenCredential
	options      *arm.ClientOptions
	subscription string
	edgeZone     string
	pacer        *pacer
	habits       *habits
	metrics      *metrics
	attach       *engine
	skus         *skuCache

	mu      sync.Mutex
	rand    *rand.Rand
	clients map[string]*clients // by subscription
	lros    map[string]*lro     // in flight, by resume token
}

var _ provisioner.Cloud = (*Cloud)(nil)

// clients are the SDK's clients for one subscription.
type clients struct {
	disks     *armcompute.DisksClient
	snapshots *armcompute.SnapshotsClient
	vms       *armcompute.VirtualMachinesClient
	scaleSets *armcompute.VirtualMachineScaleSetVMsClient
	skus      *armcompute.ResourceSKUsClient
	usages    *armcompute.UsageClient
}

// New makes a client of Azure. Calls in flight and their polling go on after the caller who
// began them has left, and end with ctx; operations then fail with its error.
func New(ctx context.Context, options Options) (*Cloud, error) {
	var faults []error
	if options.Credential == nil {
		faults = append(faults, errors.New("a credential is missing"))
	}
	if options.SubscriptionID == "" {
		faults = append(faults, errors.New("a subscription is missing"))
	}
	endpoint, err := url.Parse(endpointOf(options.Cloud))
	if err != nil || endpoint.Host == "" {
		faults = append(faults, fmt.Errorf("the cloud's endpoint for resource manager is %q", endpointOf(options.Cloud)))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("make a client of Azure: %w", errors.Join(faults...))
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Rand == nil {
		options.Rand = rand.New(rand.NewSource(options.Clock.Now().UnixNano()))
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	c := &Cloud{
		ctx: ctx, clock: options.Clock, log: options.Logger, credential: options.Credential,
		subscription: options.SubscriptionID, edgeZone: options.EdgeZone, rand: options.Rand, pacer: newPacer(), habits: &habits{},
		clients: map[string]*clients{}, lros: map[string]*lro{},
	}
	if c.metrics, err = newMetrics(options.Metrics); err != nil {
		return nil, fmt.Errorf("make a client of Azure: %w", err)
	}
	c.options = c.clientOptions(options, endpoint)
	c.attach = newEngine(c)
	c.skus = &skuCache{cloud: c, usages: &usageCache{cloud: c}}
	return c, nil
}

func (c *Cloud) clientOptions(options Options, endpoint *url.URL) *arm.ClientOptions {
	return &arm.ClientOptions{
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:                           options.Cloud,
			Transport:                       options.Transport,
			Telemetry:                       policy.TelemetryOptions{ApplicationID: options.UserAgent},
			Retry:                           retryOptions(),
			InsecureAllowCredentialWithHTTP: endpoint.Scheme == "http",
			PerCallPolicies:                 []policy.Policy{hostPolicy{host: endpoint.Host}, agentPolicy{prefix: options.UserAgentPrefix, suffix: options.UserAgentSuffix}},
			PerRetryPolicies:                []policy.Policy{quotaPolicy{cloud: c}},
		},
	}
}

// Renew lets go of the tokens that were got so far: later calls ask the credential anew. Operations in flight go on with theirs. It is for
// Credentials.OnRenewal.
func (c *Cloud) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = map[string]*clients{}
}

// in returns the clients for a subscription.
func (c *Cloud) in(subscription string) (*clients, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.ToLower(subscription)
	if found, ok := c.clients[name]; ok {
		return found, nil
	}
	factory, err := armcompute.NewClientFactory(subscription, c.credential, c.options)
	if err != nil {
		return nil, fmt.Errorf("make a client for subscription %s: %w", subscription, err)
	}
	made := &clients{
		disks: factory.NewDisksClient(), snapshots: factory.NewSnapshotsClient(), skus: factory.NewResourceSKUsClient(),
		usages: factory.NewUsageClient(),
		vms:    factory.NewVirtualMachinesClient(), scaleSets: factory.NewVirtualMachineScaleSetVMsClient(),
	}
	c.clients[name] = made
	return made, nil
}

// Disks returns the managed disks.
func (c *Cloud) Disks() provisioner.Disks { return disks{c} }

// Snapshots returns the snapshots.
func (c *Cloud) Snapshots() provisioner.Snapshots { return snapshots{c} }

// Attachments returns the data disks of VMs and scale-set instances.
func (c *Cloud) Attachments() provisioner.Attachments { return c.attach }

// Instances returns VMs and instances of uniform scale sets.
func (c *Cloud) Instances() provisioner.Instances { return instances{c} }

// SKUs returns the resource SKUs, which are read again once a day, and quotas, which are read at most once a minute.
func (c *Cloud) SKUs() provisioner.SKUs { return c.skus }

// extendedLocation is where disks and snapshots are made besides the region.
func (c *Cloud) extendedLocation() *armcompute.ExtendedLocation {
	if c.edgeZone == "" {
		return nil
	}
	kind := armcompute.ExtendedLocationTypesEdgeZone
	return &armcompute.ExtendedLocation{Name: &c.edgeZone, Type: &kind}
}

// resource is a parsed resource ID.
type resource struct {
	*arm.ResourceID
	*clients
}

const (
	typeDisk       = "Microsoft.Compute/disks"
	typeSnapshot   = "Microsoft.Compute/snapshots"
	typeVM         = "Microsoft.Compute/virtualMachines"
	typeScaleSetVM = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
)

// parse reads a resource ID, which must be of one of the types.
func (c *Cloud) parse(id string, types ...string) (resource, error) {
	parsed, err := arm.ParseResourceID(id)
	if err != nil || parsed.SubscriptionID == "" || parsed.ResourceGroupName == "" {
		return resource{}, provisioner.Errorf(provisioner.InvalidArgument, "%q is not a resource ID", id)
	}
	for _, t := range types {
		if strings.EqualFold(parsed.ResourceType.String(), t) {
			in, err := c.in(parsed.SubscriptionID)
			return resource{ResourceID: parsed, clients: in}, err
		}
	}
	return resource{}, provisioner.Errorf(provisioner.InvalidArgument, "%q is not a resource ID of type %s", id, strings.Join(types, " or "))
}

// key is a resource ID in the form in which IDs are compared.
func key(id string) string { return strings.ToLower(strings.TrimSuffix(id, "/")) }

// backoff is how long to wait after that many failures in a row: from half a second, doubled up to five, and a fifth more or less, so that those
// whom one fault has struck don't come back together.
func (c *Cloud) backoff(failures int) time.Duration {
	wait := min(500*time.Millisecond<<min(failures, 4), lastPoll)
	c.mu.Lock()
	defer c.mu.Unlock()
	return wait*4/5 + time.Duration(c.rand.Int63n(int64(wait*2/5)))
}

// sleep waits on the clock.
func (c *Cloud) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
