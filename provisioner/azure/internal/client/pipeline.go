package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// hostPolicy refuses a request whose URL names a host other than the endpoint and hosts under its
// name, before it gets the credential. It does not see redirects. Resume tokens hold whole URLs and
// come from outside this process.
type hostPolicy struct{ host string }

// Do implements policy.Policy.
func (p hostPolicy) Do(req *policy.Request) (*http.Response, error) {
	host := req.Raw().URL.Host
	if !strings.EqualFold(host, p.host) && !strings.HasSuffix(strings.ToLower(host), "."+strings.ToLower(p.host)) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument,
			"refusing to send a request to host %s: the credential is for %s and hosts under that name", host, p.host)
	}
	return req.Next()
}

// agentPolicy adds to the SDK's user agent. It runs after the SDK has set it.
type agentPolicy struct{ prefix, suffix string }

// Do implements policy.Policy.
func (p agentPolicy) Do(req *policy.Request) (*http.Response, error) {
	agent := strings.TrimSpace(p.prefix + " " + req.Raw().Header.Get("User-Agent") + " " + p.suffix)
	req.Raw().Header.Set("User-Agent", agent)
	return req.Next()
}

// operationOf marks a context whose requests poll the operation with that token.
type operationOf struct{}

// retries sets how often the SDK itself retries requests of the context. Each retry uses the quota.
func retries(ctx context.Context, n int32) context.Context {
	options := retryOptions()
	if options.MaxRetries = n; n == 0 {
		options.MaxRetries = -1 // the SDK's way to say none
	}
	return policy.WithRetryOptions(ctx, options)
}

// retryOptions of the SDK. 429 is not among the status codes: the pacer keeps the pause, and the
// caller gets RateLimited.
func retryOptions() policy.RetryOptions {
	return policy.RetryOptions{
		MaxRetries:    2,
		RetryDelay:    200 * time.Millisecond,
		MaxRetryDelay: 5 * time.Second,
		StatusCodes:   []int{408, 500, 502, 503, 504},
	}
}

// longSilence is the longest pause, asked for by Azure, that a caller waits out. For a longer one
// the call fails with RateLimited.
const longSilence = 3 * time.Second

// quotaPolicy paces requests and learns from the answers.
type quotaPolicy struct{ client *Client }

// Do implements policy.Policy.
func (p quotaPolicy) Do(req *policy.Request) (*http.Response, error) {
	c, ctx := p.client, req.Raw().Context()
	l := limitsOf(ctx, req.Raw())
	now := c.Clock.Now()
	if wait := c.pacer.Silence(now, l.own, l.kind, l.silence); wait > longSilence {
		return nil, notRetried{&provisioner.Error{
			Kind:       provisioner.RateLimited,
			Code:       "ClientThrottled",
			RetryAfter: wait,
			Message: fmt.Sprintf("request not sent: Azure asked for no more %s requests for %s", l.own.Policy,
				wait.Round(time.Second)),
		}}
	} else if err := c.Clock.Pause(ctx, wait); err != nil {
		return nil, err
	}
	for _, scope := range []pacing.Scope{l.own, l.share, l.manager} {
		// One after the other: a request that waits for one quota does not hold a place in the
		// next.
		if err := p.await(ctx, scope); err != nil {
			return nil, err
		}
	}
	began := c.Clock.Now()
	resp, err := req.Next()
	c.metrics.request(req.Raw().Method, l.own.Policy, resp, c.Clock.Since(began))
	if l.own.Policy != pacing.NoPolicy {
		c.pacer.SetAnswered(l.own, err == nil && resp.StatusCode < http.StatusInternalServerError || ctx.Err() != nil)
	}
	if err != nil {
		return nil, err
	}
	p.learn(resp, l)
	return resp, nil
}

// await takes a token of a quota, and waits until it is there. A read that can wait leaves Resource
// Manager's reserve to the others.
func (p quotaPolicy) await(ctx context.Context, scope pacing.Scope) error {
	c := p.client
	for scope.Policy == pacing.Reads && provisioner.IsDeferrable(ctx) {
		wait := c.pacer.TakeAbove(c.Clock.Now(), scope, pacing.Reserve)
		if wait == 0 {
			return nil
		}
		c.metrics.paced("Reserve", wait)
		if err := c.Clock.Pause(ctx, wait); err != nil {
			return err
		}
	}
	wait := c.pacer.Take(c.Clock.Now(), scope)
	if wait == 0 {
		return nil
	}
	c.metrics.paced(scope.Policy, wait)
	return c.Clock.Pause(ctx, wait)
}

func (p quotaPolicy) learn(resp *http.Response, l limits) {
	c, now := p.client, p.client.Clock.Now()
	left, atManager := remainingOf(resp.Header), managerRemaining(resp.Header)
	if resp.StatusCode < http.StatusMultipleChoices {
		// Each answer of Azure has the remaining quota. A platform whose answers have none has no
		// quotas, so no request is held back.
		if len(left) == 0 {
			c.pacer.Forget(l.own)
		}
		if len(atManager) == 0 {
			c.pacer.Forget(l.manager)
			c.pacer.Forget(l.share)
		}
	}
	c.pacer.Learn(now, l.own, l.named, left)
	c.pacer.Learn(now, l.manager, "subscription-"+string(l.manager.Policy), atManager)
	c.metrics.remaining(append(left, atManager...))
	wait := retryAfter(resp.Header, now)
	switch {
	case (resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusAccepted) && wait > 0 &&
		l.own.Policy != pacing.GetOperation:
		c.pacer.Block(now.Add(wait), pacing.Scope{Policy: pacing.Accepted, Resource: l.resource})
		return
	case resp.StatusCode == http.StatusServiceUnavailable && wait > 0:
		c.pacer.Block(now.Add(wait), l.own)
		return
	case resp.StatusCode != http.StatusTooManyRequests:
		return
	case wait <= 0:
		wait = 15 * time.Second // the time for one token at the slowest documented rate
	}
	silent := l.own
	switch {
	case len(left) == 0:
		silent = l.silence // Resource Manager itself refused: all such requests of the subscription pause
	case l.own.Policy == pacing.NoPolicy:
		silent = l.kind
	}
	c.pacer.Block(now.Add(wait), silent)
}

// notRetried keeps the SDK from retrying a request that this process refused to send.
type notRetried struct{ error }

// NonRetriable implements the SDK's marker.
func (notRetried) NonRetriable() {}

// Unwrap returns the error.
func (n notRetried) Unwrap() error { return n.error }

// limits are the limits for a request.
type limits struct {
	resource string       // the path of the resource, in lower case
	own      pacing.Scope // of its resource, of the operation that it polls, or of the disk provider in the subscription
	named    string       // the name of own's quota in x-ms-ratelimit-remaining-resource; without the length of a window
	kind     pacing.Scope // of the requests that share a quota of Azure Compute with it, if own has no policy
	share    pacing.Scope // of Resource Manager's quota, for polls
	manager  pacing.Scope // of all reads, writes or deletes of the subscription
	silence  pacing.Scope // of the requests that pause if Resource Manager refuses this one
}

// subscriptionOf returns the subscription in a lower-case path.
func subscriptionOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 1 && parts[0] == "subscriptions" {
		return parts[1]
	}
	return ""
}

// kindOfRequest returns the scope of the requests that Azure counts together where it has no quota
// for each resource: one method on one type of resource.
func kindOfRequest(method, subscription, path string) pacing.Scope {
	_, resource, _ := strings.Cut(path, "/providers/")
	provider, resource, _ := strings.Cut(resource, "/")
	resourceType, name, _ := strings.Cut(resource, "/")
	listed := name == ""
	return pacing.Scope{
		Policy:   pacing.Kind,
		Resource: fmt.Sprint(subscription, " ", method, " ", provider, "/", resourceType, " ", listed),
	}
}

func limitsOf(ctx context.Context, r *http.Request) limits {
	path := "/" + strings.Trim(strings.ToLower(r.URL.Path), "/")
	subscription := subscriptionOf(path)
	all := pacing.Scope{Policy: pacing.Writes, Resource: subscription}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		all.Policy = pacing.Reads
	case http.MethodDelete:
		all.Policy = pacing.Deletes
	}
	l := limits{
		resource: strings.TrimSuffix(path, "/attachdetachdatadisks"),
		own:      pacing.Scope{Resource: path},
		kind:     kindOfRequest(r.Method, subscription, path),
		manager:  all,
		silence:  all,
	}
	if id, ok := ctx.Value(operationOf{}).(string); ok {
		l.own, l.named = pacing.Scope{Policy: pacing.GetOperation, Resource: id}, computeQuota+"GetOperationResource"
		l.share = pacing.Scope{Policy: pacing.Polls, Resource: subscription}
		l.silence = l.share
		return l
	}
	if policy, named := diskPolicy(r.Method, path); policy != pacing.NoPolicy {
		l.own, l.named = pacing.Scope{Policy: policy, Resource: subscription}, computeQuota+named
		return l
	}
	uniform := strings.Contains(path, "/virtualmachinescalesets/")
	reads, updates := "LowCostGetResource", "UpdateVMResource"
	if uniform {
		reads, updates = "GetVMScaleSetVMsResource", "UpdateVMScaleSetVMsResource"
	}
	switch {
	case strings.HasSuffix(path, "/virtualmachines") && uniform:
		// A scale set has as many reads as a VM.
		l.own, l.named = pacing.Scope{Policy: pacing.GetVM, Resource: path}, computeQuota+reads
	case strings.HasSuffix(path, "/virtualmachines"):
		l.own, l.named = pacing.Scope{
			Policy:   pacing.ListVMs,
			Resource: subscription,
		}, computeQuota+"HighCostGetSubscriptionMaximum"
	case !strings.Contains(path, "/virtualmachines/"):
	case r.Method != http.MethodGet:
		l.own = pacing.Scope{Policy: pacing.UpdateVM, Resource: strings.TrimSuffix(path, "/attachdetachdatadisks")}
		l.named = computeQuota + updates
	default:
		l.own, l.named = pacing.Scope{Policy: pacing.GetVM, Resource: path}, computeQuota+reads
	}
	return l
}

// diskPolicy returns the policy of a request to the disk provider that has a quota which a burst can
// use up, and the name of that quota. Reads of one disk have 15000 in 3 minutes.
func diskPolicy(method, path string) (p pacing.Policy, named string) {
	_, resource, _ := strings.Cut(path, "/providers/microsoft.compute/")
	kind, name, _ := strings.Cut(resource, "/")
	switch {
	case kind != "disks" && kind != "snapshots":
	case method == http.MethodGet && name == "":
		return pacing.ListDisks, "HighCostGet"
	case method == http.MethodPut && kind == "snapshots":
		return pacing.PutSnapshot, "HighCostSnapshotCreateHydrate"
	case method == http.MethodPut, method == http.MethodPatch:
		return pacing.PutDisk, "CreateUpdateDisks"
	case method == http.MethodDelete:
		return pacing.DeleteDisk, "DeleteDisks"
	}
	return pacing.NoPolicy, ""
}

// computeQuota is the prefix of the names of Azure Compute's quotas. The names of the quotas of
// VMs, and of their lists, were seen in answers of Azure. No answer is known that names the quota
// of one operation or of one instance of a uniform scale set: these follow the same pattern.
const computeQuota = "Microsoft.Compute/"
