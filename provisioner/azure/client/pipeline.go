package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
)

// hostPolicy refuses to send a request, and with it the credential, to a host other than the endpoint and hosts under its name. Resume tokens hold whole
// URLs and come from outside this process.
type hostPolicy struct{ host string }

// Do implements policy.Policy.
func (p hostPolicy) Do(req *policy.Request) (*http.Response, error) {
	host := req.Raw().URL.Host
	if !strings.EqualFold(host, p.host) && !strings.HasSuffix(strings.ToLower(host), "."+strings.ToLower(p.host)) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "refusing to send a request to host %s: the credential is for %s and hosts under that name", host, p.host)
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

// retryOptions of the SDK. 429 is not among the status codes: the pacer keeps the pause, and the caller gets RateLimited.
func retryOptions() policy.RetryOptions {
	return policy.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 5 * time.Second,
		StatusCodes: []int{408, 500, 502, 503, 504},
	}
}

// longSilence is the longest pause, asked for by Azure, that a caller waits out. For a longer one the call fails with RateLimited.
const longSilence = 3 * time.Second

// quotaPolicy paces requests and learns from the answers.
type quotaPolicy struct{ client *Client }

// Do implements policy.Policy.
func (p quotaPolicy) Do(req *policy.Request) (*http.Response, error) {
	c, ctx := p.client, req.Raw().Context()
	own, all := scopesOf(ctx, req.Raw())
	now := c.Clock.Now()
	if wait := c.pacer.Silence(now, own, all); wait > longSilence {
		return nil, notRetried{&provisioner.Error{
			Kind: provisioner.RateLimited, Code: "ClientThrottled", RetryAfter: wait,
			Message: fmt.Sprintf("request not sent: Azure asked for no more %s requests for %s", own.Policy, wait.Round(time.Second)),
		}}
	} else if err := c.Clock.Pause(ctx, wait); err != nil {
		return nil, err
	}
	if wait := c.pacer.Take(c.Clock.Now(), own); wait > 0 {
		c.metrics.paced(own.Policy, wait)
		if err := c.Clock.Pause(ctx, wait); err != nil {
			return nil, err
		}
	}
	began := c.Clock.Now()
	resp, err := req.Next()
	c.metrics.request(req.Raw().Method, own.Policy, resp, c.Clock.Since(began))
	if own.Policy != pacing.NoPolicy {
		c.pacer.SetAnswered(own, err == nil && resp.StatusCode < http.StatusInternalServerError || ctx.Err() != nil)
	}
	if err != nil {
		return nil, err
	}
	p.learn(resp, own, all)
	return resp, nil
}

func (p quotaPolicy) learn(resp *http.Response, own, all pacing.Scope) {
	c, now := p.client, p.client.Clock.Now()
	left := remainingOf(resp.Header)
	if len(left) == 0 && resp.StatusCode < http.StatusMultipleChoices {
		// Azure says in every answer what is left. A platform that does not has no quotas, so no request is held back.
		c.pacer.Forget(own)
	}
	c.pacer.Learn(now, own, left)
	c.metrics.remaining(left, resp.Header)
	wait := retryAfter(resp.Header, now)
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && wait > 0:
		c.pacer.Block(now.Add(wait), own)
		return
	case resp.StatusCode != http.StatusTooManyRequests:
		return
	case wait <= 0:
		wait = 15 * time.Second // the time for one token at the slowest documented rate
	}
	silent := own
	if own.Policy == pacing.NoPolicy || resp.Header.Get("x-ms-ratelimit-remaining-resource") == "" {
		// Resource Manager itself refused, or the answer does not name a policy: all such requests of the subscription pause.
		silent = all
	}
	c.pacer.Block(now.Add(wait), silent)
}

// notRetried keeps the SDK from retrying a request that this process refused to send.
type notRetried struct{ error }

// NonRetriable implements the SDK's marker.
func (notRetried) NonRetriable() {}

// Unwrap returns the error.
func (n notRetried) Unwrap() error { return n.error }

// scopesOf returns the limits that hold for a request: that of its resource, and that of all reads or writes of the subscription.
func scopesOf(ctx context.Context, r *http.Request) (own, all pacing.Scope) {
	parts := strings.Split(strings.Trim(strings.ToLower(r.URL.Path), "/"), "/")
	if len(parts) > 1 && parts[0] == "subscriptions" {
		all.Resource = parts[1]
	}
	all.Policy = "writes"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		all.Policy = "reads"
	}
	if id, ok := ctx.Value(operationOf{}).(string); ok {
		return pacing.Scope{Policy: pacing.GetOperation, Resource: id}, pacing.Scope{Policy: "operations", Resource: all.Resource}
	}
	path := "/" + strings.Join(parts, "/")
	switch {
	case !strings.Contains(path, "/virtualmachines/"):
		return pacing.Scope{Resource: path}, all
	case r.Method == http.MethodPost:
		return pacing.Scope{Policy: pacing.UpdateVM, Resource: strings.TrimSuffix(path, "/attachdetachdatadisks")}, all
	default:
		return pacing.Scope{Policy: pacing.GetVM, Resource: path}, all
	}
}
