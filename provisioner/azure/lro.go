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
	ctx := retries(context.WithValue(c.ctx, operationOf{}, l.token), 0) // the next poll is the retry
	w := &watch{cloud: c, lro: l, poller: p, began: c.clock.Now()}
	l.err = w.untilDone(ctx)
	if took, ok := w.took(); ok && l.err == nil {
		c.habits.learn(l.kind, took)
	}
	c.pacer.unmetered(scope{policy: policyOperation, resource: l.token})
	c.mu.Lock()
	delete(c.lros, l.token)
	c.mu.Unlock()
	close(l.done)
}

// watch polls one operation.
type watch struct {
	cloud  *Cloud
	lro    *lro
	poller poller
	began  time.Time // by this process's clock
	last   status    // what the latest poll said
}

func (w *watch) untilDone(ctx context.Context) error {
	c, l := w.cloud, w.lro
	usual := c.habits.of(l.kind)
	own := scope{policy: policyOperation, resource: l.token}
	var asked time.Duration // what the platform asked to wait
	failures := 0
	for !w.poller.Done() {
		now := c.clock.Now()
		if err := c.sleep(ctx, max(asked, nextPoll(usual, now.Sub(w.began), c.pacer.scarce(now, own)))); err != nil {
			return err
		}
		resp, err := w.poller.Poll(ctx)
		c.metrics.polls.WithLabelValues(string(l.kind)).Inc()
		if err == nil {
			w.note(resp)
			asked, failures = retryAfter(resp.Header, c.clock.Now()), 0
			continue
		}
		if err = c.pollFailed(ctx, l, err); err != nil {
			if again := (tryAgain{}); !errors.As(err, &again) {
				return err
			}
			asked = max(provisioner.RetryAfter(err), c.backoff(failures))
			failures++
		}
	}
	if w.last.Status == statusSucceeded {
		return nil // what the final request would return is not needed
	}
	return c.outcome(ctx, l.kind, l.resource, w.poller)
}

// tryAgain marks an error that says nothing about the operation.
type tryAgain struct{ error }

// Unwrap returns the error.
func (t tryAgain) Unwrap() error { return t.error }

// pollFailed judges a poll that failed. The operation goes on all the same, so only what cannot pass ends the polling.
func (c *Cloud) pollFailed(ctx context.Context, l *lro, err error) error {
	err = translate(err, c.clock.Now(), "poll the %s of %s", l.kind, l.resource)
	switch kind := provisioner.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case kind == provisioner.NotFound:
		return &provisioner.Error{Kind: provisioner.Conflict, Code: codeForgotten, Err: err,
			Message: fmt.Sprintf("Azure does not know any more how the %s of %s ended", l.kind, l.resource)}
	case kind == provisioner.InvalidArgument:
		return err
	}
	level := 1
	if provisioner.KindOf(err) == provisioner.Unauthorized {
		level = 0 // it goes on until somebody grants the right to ask
	}
	c.log.V(level).Info("polling goes on after a failure", "operation", l.kind, "resource", l.resource, "error", err.Error())
	return tryAgain{err}
}

// status is the document of an operation's state.
type status struct {
	Status             string
	StartTime, EndTime time.Time
}

const statusSucceeded = "Succeeded"

// note takes what a poll said. It tells the age of an operation that an earlier process began.
func (w *watch) note(resp *http.Response) {
	w.last = status{}
	payload, err := runtime.Payload(resp)
	if err != nil || json.Unmarshal(payload, &w.last) != nil {
		w.last = status{}
		return
	}
	if !w.lro.resumed || w.last.StartTime.IsZero() {
		return
	}
	now := w.cloud.clock.Now()
	platform := now
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		platform = date // of the clock that the start time is of
	}
	if age := platform.Sub(w.last.StartTime); age > now.Sub(w.began) {
		w.began = now.Add(-age)
	}
}

// took is how long the operation took, by the platform's clock if that tells.
func (w *watch) took() (time.Duration, bool) {
	seen := w.cloud.clock.Since(w.began)
	if own := w.last.EndTime.Sub(w.last.StartTime); !w.last.StartTime.IsZero() && own > 0 && own <= seen {
		return own, true
	}
	return seen, !w.lro.resumed
}

// outcome is how an operation that has ended went.
func (c *Cloud) outcome(ctx context.Context, k kind, resource string, p poller) error {
	for failures := 0; ; failures++ {
		err := c.outcomeOnce(ctx, k, resource, p)
		if !c.unheard(err) {
			return err
		}
		if err := c.sleep(ctx, max(provisioner.RetryAfter(err), c.backoff(failures))); err != nil {
			return err
		}
	}
}

// unheard says that an error is about the question and not about the operation.
func (c *Cloud) unheard(err error) bool {
	var refused *azcore.ResponseError
	if errors.As(err, &refused) && refused.StatusCode < http.StatusBadRequest {
		return false // the document of an operation that failed
	}
	k := provisioner.KindOf(err)
	return k == provisioner.RateLimited || k == provisioner.Unavailable
}

func (c *Cloud) outcomeOnce(ctx context.Context, k kind, resource string, p poller) error {
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
	var state status
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
