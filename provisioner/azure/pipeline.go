package azure

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// hostPolicy refuses to send a request, and with it the credential, to any host but the endpoint and
// those under its name. Resume tokens hold whole URLs and come from outside this process.
type hostPolicy struct{ host string }

// Do implements policy.Policy.
func (p hostPolicy) Do(req *policy.Request) (*http.Response, error) {
	host := req.Raw().URL.Host
	if !strings.EqualFold(host, p.host) && !strings.HasSuffix(strings.ToLower(host), "."+strings.ToLower(p.host)) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "refuse to send a request to %s, which is not %s", host, p.host)
	}
	return req.Next()
}

// agentPolicy adds to what the SDK says of its user. It comes after the SDK has said it.
type agentPolicy struct{ prefix, suffix string }

// Do implements policy.Policy.
func (p agentPolicy) Do(req *policy.Request) (*http.Response, error) {
	agent := strings.TrimSpace(p.prefix + " " + req.Raw().Header.Get("User-Agent") + " " + p.suffix)
	req.Raw().Header.Set("User-Agent", agent)
	return req.Next()
}

// operationOf marks a context whose requests poll the operation of that token. Azure counts the polls of each operation for themselves.
type operationOf struct{}

// retries sets how often the SDK itself retries requests of the context. Retries use quotas up.
func retries(ctx context.Context, n int32) context.Context {
	options := retryOptions()
	if options.MaxRetries = n; n == 0 {
		options.MaxRetries = -1 // the SDK's way to say none
	}
	return policy.WithRetryOptions(ctx, options)
}

// retryOptions of the SDK. 429 is not among the status codes: the pacer deals with it, and the caller is told.
func retryOptions() policy.RetryOptions {
	return policy.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 5 * time.Second,
		StatusCodes: []int{408, 500, 502, 503, 504},
	}
}

// longSilence is from how long on a caller is told instead of kept waiting, when Azure asked for silence.
const longSilence = 3 * time.Second

// quotaPolicy paces requests and learns from the answers.
type quotaPolicy struct{ cloud *Cloud }

// Do implements policy.Policy.
func (p quotaPolicy) Do(req *policy.Request) (*http.Response, error) {
	c, ctx := p.cloud, req.Raw().Context()
	own, all := scopesOf(ctx, req.Raw())
	now := c.clock.Now()
	if wait := c.pacer.silence(now, own, all); wait > longSilence {
		return nil, notRetried{&provisioner.Error{
			Kind: provisioner.RateLimited, Code: "ClientThrottled", RetryAfter: wait,
			Message: fmt.Sprintf("Azure asked for no more %s requests for %s", own.policy, wait.Round(time.Second)),
		}}
	} else if err := c.sleep(ctx, wait); err != nil {
		return nil, err
	}
	if wait := c.pacer.take(c.clock.Now(), own); wait > 0 {
		c.metrics.paced(own.policy, wait)
		if err := c.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
	began := c.clock.Now()
	resp, err := req.Next()
	c.metrics.request(req.Raw().Method, own.policy, resp, c.clock.Since(began))
	if own.policy != policyNone {
		c.pacer.answered(own, err == nil && resp.StatusCode < http.StatusInternalServerError || ctx.Err() != nil)
	}
	if err != nil {
		return nil, err
	}
	p.learn(resp, own, all)
	return resp, nil
}

func (p quotaPolicy) learn(resp *http.Response, own, all scope) {
	c, now := p.cloud, p.cloud.clock.Now()
	left := remainingOf(resp.Header)
	if len(left) == 0 && resp.StatusCode < http.StatusMultipleChoices {
		// Azure says what is left with every answer. A platform that does not has no
		// quotas, and nothing is held back for it.
		c.pacer.unmetered(own)
	}
	c.pacer.learn(now, own, left)
	c.metrics.remaining(left, resp.Header)
	wait := retryAfter(resp.Header, now)
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && wait > 0:
		c.pacer.block(now.Add(wait), own)
		return
	case resp.StatusCode != http.StatusTooManyRequests:
		return
	case wait <= 0:
		wait = 15 * time.Second // what a token takes at the slowest documented rate
	}
	silent := own
	if own.policy == policyNone || resp.Header.Get("x-ms-ratelimit-remaining-resource") == "" {
		// Resource Manager itself, or nobody says which policy: everything of that sort in the subscription.
		silent = all
	}
	c.pacer.block(now.Add(wait), silent)
}

// notRetried keeps the SDK from retrying what this process has decided.
type notRetried struct{ error }

// NonRetriable implements the SDK's marker.
func (notRetried) NonRetriable() {}

// Unwrap returns the error.
func (n notRetried) Unwrap() error { return n.error }

// scopesOf returns the limits that a request falls under: of its resource, and of all reads or writes of the subscription.
func scopesOf(ctx context.Context, r *http.Request) (own, all scope) {
	parts := strings.Split(strings.Trim(strings.ToLower(r.URL.Path), "/"), "/")
	if len(parts) > 1 && parts[0] == "subscriptions" {
		all.resource = parts[1]
	}
	all.policy = "writes"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		all.policy = "reads"
	}
	if id, ok := ctx.Value(operationOf{}).(string); ok {
		return scope{policy: policyOperation, resource: id}, scope{policy: "operations", resource: all.resource}
	}
	path := "/" + strings.Join(parts, "/")
	switch {
	case !strings.Contains(path, "/virtualmachines/"):
		return scope{resource: path}, all
	case r.Method == http.MethodPost:
		return scope{policy: policyUpdateVM, resource: strings.TrimSuffix(path, "/attachdetachdatadisks")}, all
	default:
		return scope{policy: policyGetVM, resource: path}, all
	}
}
