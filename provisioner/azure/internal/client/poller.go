package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// SDKPoller is the SDK's poller without its type parameter.
type SDKPoller interface {
	Done() bool
	Poll(ctx context.Context) (*http.Response, error)
	ResumeToken() (string, error)
	// result is nil if the operation succeeded.
	result(ctx context.Context) error
}

type pollerOf[T any] struct{ *runtime.Poller[T] }

func (p pollerOf[T]) result(ctx context.Context) error {
	_, err := p.Result(ctx)
	return err
}

// Wrap hides the type parameter of what one of the SDK's Begin methods returned.
func Wrap[T any](p *runtime.Poller[T], err error) (SDKPoller, error) {
	if err != nil {
		return nil, err
	}
	return pollerOf[T]{p}, nil
}

// Follow polls an operation until it has ended.
func (c *Client) Follow(what operation.Following, p SDKPoller) *operation.Operation {
	resource := operation.Key(what.Resource)
	return c.Follower.Follow(what, &poller{
		SDKPoller:    p,
		client:       c,
		first:        c.pacer.Silence(c.Clock.Now(), pacing.Scope{Policy: pacing.Accepted, Resource: resource}),
		subscription: subscriptionOf(resource),
	})
}

// poller implements operation.Poller. Azure counts the polls of each operation separately.
type poller struct {
	SDKPoller
	client *Client
	token  string // as it was at first: the SDK's own changes while it polls

	first        time.Duration
	subscription string
}

// FirstPause implements operation.Poller.
func (p *poller) FirstPause() time.Duration { return p.first }

// ResumeToken implements operation.Poller.
func (p *poller) ResumeToken() (string, error) {
	var err error
	if p.token == "" {
		p.token, err = p.SDKPoller.ResumeToken()
		p.token = essential(p.token)
	}
	return p.token, p.client.Translate(err, "read the SDK's token")
}

// essential is a token of the SDK without the URLs that are not needed to poll the operation. The
// URLs of Azure's operations have 4 KB each, and tokens are stored in custom resources. A token
// without the URL of the operation's document stays as it is.
func essential(token string) string {
	var whole struct {
		Type  string         `json:"type"`
		Token map[string]any `json:"token"`
	}
	if json.Unmarshal([]byte(token), &whole) != nil || whole.Token["asyncURL"] == nil {
		return token
	}
	delete(whole.Token, "locURL")  // the result, which is not read: see operation.Follower
	delete(whole.Token, "origURL") // the resource
	return operation.Compact(whole)
}

func (p *poller) scope() pacing.Scope {
	return pacing.Scope{Policy: pacing.GetOperation, Resource: p.token}
}

// Scarce implements operation.Poller.
func (p *poller) Scarce() bool {
	now := p.client.Clock.Now()
	return p.client.pacer.Scarce(now, p.scope()) || p.client.pacer.Scarce(now, pacing.Scope{
		Policy:   pacing.Polls,
		Resource: p.subscription,
	})
}

// Close implements operation.Poller.
func (p *poller) Close() { p.client.pacer.Forget(p.scope()) }

// context marks requests about the operation. The SDK does not retry them: the next poll is the
// retry.
func (p *poller) context(ctx context.Context) context.Context {
	if p.token == "" {
		return ctx
	}
	return retries(context.WithValue(ctx, operationOf{}, p.token), 0)
}

// state is the document of an operation's state.
type state struct {
	Name       string // the ID of the operation
	Status     string
	StartTime  time.Time
	Properties struct{ Output json.RawMessage }
}

func stateOf(resp *http.Response) state {
	var s state
	payload, err := runtime.Payload(resp)
	if err != nil || json.Unmarshal(payload, &s) != nil {
		return state{}
	}
	return s
}

// Poll implements operation.Poller.
func (p *poller) Poll(ctx context.Context) (operation.Answer, error) {
	resp, err := p.SDKPoller.Poll(p.context(ctx))
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok &&
		(refused.StatusCode == http.StatusNotFound || refused.StatusCode == http.StatusGone) {
		// However this answer came about, the operation cannot be polled any more: the resource
		// must be read.
		e := fromResponse(refused, p.client.Clock.Now(), "poll")
		e.Kind = provisioner.NotFound
		return operation.Answer{}, e
	}
	if err != nil {
		return operation.Answer{}, p.client.Translate(err, "poll")
	}
	s := stateOf(resp)
	answer := operation.Answer{
		Status:     s.Status,
		Start:      s.StartTime,
		Output:     s.Properties.Output,
		RetryAfter: retryAfter(resp.Header, p.client.Clock.Now()),
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		answer.Date = date
	}
	return answer, nil
}

// Outcome implements operation.Poller.
func (p *poller) Outcome(ctx context.Context) (outcome, err error) {
	err = p.result(p.context(ctx))
	var refused *azcore.ResponseError
	if !errors.As(err, &refused) {
		return nil, p.client.Translate(err, "read the result")
	}
	e := fromResponse(refused, p.client.Clock.Now(), "the operation failed")
	if e.Code == "" && canceled(refused) {
		e.Kind, e.Code = provisioner.Conflict, operation.CodeCanceled
	}
	if refused.StatusCode < http.StatusBadRequest || !operation.Transient(e) {
		return e, nil // the document of an operation that failed, or an answer that will not change
	}
	return nil, e
}

// canceled reports whether the document of an operation's state says so.
func canceled(refused *azcore.ResponseError) bool {
	if refused.RawResponse == nil {
		return false
	}
	status := stateOf(refused.RawResponse).Status
	return status == "Canceled" || status == "Cancelled"
}
