package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// codeCanceled stands for an operation that Azure ended as canceled without a code.
const codeCanceled = "Canceled"

// codeForgotten stands for an operation of which Azure does not know any more how it ended.
const codeForgotten = "OperationForgotten"

// poller is the SDK's poller without its type parameter.
type poller interface {
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

// wrap hides the type parameter of what a Begin method returned.
func wrap[T any](p *runtime.Poller[T], err error) (poller, error) {
	if err != nil {
		return nil, err
	}
	return pollerOf[T]{p}, nil
}

// lro is a long-running operation with one goroutine that polls it for everybody.
type lro struct {
	kind     kind
	resource string // that the operation is on
	token    string // the SDK's resume token
	resumed  bool   // it began at a time that is not known
	done     chan struct{}
	err      error // after done
}

// follow polls an operation until it has ended. It returns the one that follows it already, if there is one.
func (c *Cloud) follow(k kind, resource string, p poller, resumed bool) *lro {
	l := &lro{kind: k, resource: key(resource), resumed: resumed, done: make(chan struct{})}
	if p.Done() {
		l.err = c.outcome(c.ctx, k, resource, p)
		close(l.done)
		return l
	}
	token, err := p.ResumeToken()
	if err != nil {
		l.err = translate(err, c.clock.Now(), "read the token of %s of %s", k, resource)
		close(l.done)
		return l
	}
	l.token = token
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.lros[token]; ok {
		return other
	}
	c.lros[token] = l
	go c.poll(l, p)
	return l
}

// poll is the goroutine of an operation.
func (c *Cloud) poll(l *lro, p poller) {
	ctx := context.WithValue(c.ctx, operationOf{}, l.resource)
	began := c.clock.Now()
	l.err = c.pollUntilDone(ctx, l, p, began)
	if l.err == nil && !l.resumed {
		c.habits.learn(l.kind, c.clock.Since(began))
	}
	c.mu.Lock()
	delete(c.lros, l.token)
	c.mu.Unlock()
	close(l.done)
}

func (c *Cloud) pollUntilDone(ctx context.Context, l *lro, p poller, began time.Time) error {
	usual := c.habits.of(l.kind)
	var asked time.Duration // what the platform asked to wait
	for !p.Done() {
		if err := c.sleep(ctx, max(asked, nextPoll(usual, c.clock.Since(began)))); err != nil {
			return err
		}
		resp, err := p.Poll(ctx)
		c.metrics.polls.WithLabelValues(string(l.kind)).Inc()
		if err == nil {
			asked = retryAfter(resp.Header, c.clock.Now())
			continue
		}
		err = translate(err, c.clock.Now(), "poll the %s of %s", l.kind, l.resource)
		switch provisioner.KindOf(err) {
		case provisioner.Unavailable, provisioner.RateLimited:
			c.log.V(1).Info("polling goes on after a failure", "operation", l.kind, "resource", l.resource, "error", err.Error())
			asked = max(provisioner.RetryAfter(err), time.Second)
		case provisioner.NotFound:
			return &provisioner.Error{Kind: provisioner.Conflict, Code: codeForgotten, Err: err,
				Message: fmt.Sprintf("Azure does not know any more how the %s of %s ended", l.kind, l.resource)}
		default:
			return err
		}
	}
	return c.outcome(ctx, l.kind, l.resource, p)
}

// outcome is how an operation that has ended went.
func (c *Cloud) outcome(ctx context.Context, k kind, resource string, p poller) error {
	err := p.result(ctx)
	var refused *azcore.ResponseError
	if !errors.As(err, &refused) {
		return translate(err, c.clock.Now(), "%s of %s", k, resource)
	}
	e := fromResponse(refused, c.clock.Now(), fmt.Sprintf("%s of %s", k, resource))
	if e.Code == "" && canceled(refused) {
		e.Kind, e.Code = provisioner.Conflict, codeCanceled
	}
	return e
}

// canceled says whether the document of an operation's state says so.
func canceled(refused *azcore.ResponseError) bool {
	if refused.RawResponse == nil {
		return false
	}
	var state struct{ Status string }
	payload, err := runtime.Payload(refused.RawResponse)
	return err == nil && json.Unmarshal(payload, &state) == nil && (state.Status == "Canceled" || state.Status == "Cancelled")
}

// wait blocks until the operation has ended.
func (l *lro) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	default:
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended is an operation for which there was nothing to do.
type ended struct{}

// Token implements provisioner.Operation.
func (ended) Token() string { return "" }

// Wait implements provisioner.Operation.
func (ended) Wait(ctx context.Context) error { return ctx.Err() }
