package operation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// Poller asks Azure about one operation. Its errors are those of package provisioner.
type Poller interface {
	// Done says that the operation has ended.
	Done() bool
	// ResumeToken is the SDK's token of the operation.
	ResumeToken() (string, error)
	// Poll asks for the operation's state.
	Poll(ctx context.Context) (Answer, error)
	// FirstPause is how long Azure asked to wait before the first poll.
	FirstPause() time.Duration
	// Scarce says that little is left of the quota for polls of this operation, or of all
	// operations.
	Scarce() bool
	// Outcome is how the operation ended, nil if it succeeded. err is set if that cannot be
	// learned.
	Outcome(ctx context.Context) (outcome, err error)
	// Close is called after the operation's end.
	Close()
}

// Answer is Azure's answer to a poll.
type Answer struct {
	// Status and Start are those of the operation; zero where Azure does not say.
	Status string
	Start  time.Time
	// Date is Azure's clock; zero where Azure does not say.
	Date time.Time
	// RetryAfter is how long Azure asks to wait before the next poll.
	RetryAfter time.Duration
	// Output is the resource that the operation was on, as JSON; nil where Azure does not say.
	Output []byte
}

// Look finds out by other reads than polls that an operation has succeeded. It is used while Azure
// asks not to poll the operation.
type Look struct {
	// Proved reports whether the resources show that the operation has succeeded.
	Proved func(ctx context.Context) bool
	// Every is the least time between two looks.
	Every time.Duration
}

// Following describes an operation to follow.
type Following struct {
	Kind Kind
	// Usual is when such operations usually end.
	Usual Span
	// Resource is the ID of what the operation is on.
	Resource string
	// ByList says that the operation is an update of the VM's list of data disks.
	ByList bool
	// Resumed says that the operation began in an earlier process.
	Resumed bool
	// Look is nil if only polls show the end.
	Look *Look
}

// Operation is a long-running operation with one goroutine that polls it for all callers.
type Operation struct {
	Following
	token  string
	done   chan struct{}
	err    error  // after done
	output []byte // after done
}

// Token is the SDK's token; "" for an operation that ended at once.
func (o *Operation) Token() string { return o.token }

// Done is closed when the operation has ended.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Err is how the operation ended, nil if it succeeded. It may be called after Done is closed, or if
// Token is "".
func (o *Operation) Err() error { return o.err }

// Output is the resource as Azure described it at the end, nil if it did not. It may be called
// after Wait has returned nil.
func (o *Operation) Output() []byte { return o.output }

// Wait blocks until the operation has ended, and returns how.
func (o *Operation) Wait(ctx context.Context) error {
	if err := Await(ctx, o.done); err != nil {
		return err
	}
	return o.err
}

// Await blocks until done is closed. If ctx ends before that, it returns the context's error.
func Await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Options of NewFollower.
type Options struct {
	Clock   *pacing.Clock
	Metrics prometheus.Registerer // none if nil
	Logger  logr.Logger
}

// Follower follows operations to their end.
type Follower struct {
	ctx   context.Context // of the polling, which goes on after a caller has left
	clock *pacing.Clock
	log   logr.Logger
	polls *prometheus.CounterVec

	mu      sync.Mutex
	running map[string]*Operation // by token
}

// NewFollower makes a Follower whose polling ends with ctx.
func NewFollower(ctx context.Context, options Options) *Follower {
	return &Follower{
		ctx:     ctx,
		clock:   options.Clock,
		log:     options.Logger,
		running: map[string]*Operation{},
		polls: promauto.With(options.Metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_operation_polls_total", Help: "Polls of long-running operations.",
		}, []string{"operation"}),
	}
}

// Follow polls an operation until it has ended. It returns the Operation that exists already, if the
// operation is being followed.
func (f *Follower) Follow(what Following, p Poller) *Operation {
	what.Resource = Key(what.Resource)
	o := &Operation{Following: what, done: make(chan struct{})}
	w := &watch{
		follower:  f,
		operation: o,
		poller:    p,
		began:     f.clock.Now(),
	}
	if p.Done() {
		o.err = w.outcome()
		close(o.done)
		return o
	}
	token, err := p.ResumeToken()
	if err != nil {
		o.err = fmt.Errorf("read the token of the %s of %s: %w", o.Kind, o.Resource, err)
		close(o.done)
		return o
	}
	o.token = token
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, ok := f.running[token]; ok {
		return other
	}
	f.running[token] = o
	go w.run()
	return o
}

// watch polls one operation.
type watch struct {
	follower  *Follower
	operation *Operation
	poller    Poller
	began     time.Time // by this process's clock
	last      Answer
}

func (w *watch) run() {
	f, o := w.follower, w.operation
	o.err = w.untilDone()
	w.poller.Close()
	f.mu.Lock()
	delete(f.running, o.token)
	f.mu.Unlock()
	close(o.done)
}

func (w *watch) untilDone() error {
	f, o := w.follower, w.operation
	pause := w.poller.FirstPause() // that Azure asked for, or after a failure
	failures := 0
	for !w.poller.Done() {
		if proved, err := w.pause(pause); proved || err != nil {
			return err
		}
		answer, err := w.poller.Poll(f.ctx)
		f.polls.WithLabelValues(string(o.Kind)).Inc()
		if err == nil {
			w.note(answer)
			pause, failures = answer.RetryAfter, 0
			continue
		}
		if end := w.pollFailed(err); end != nil {
			return end
		}
		pause = max(provisioner.RetryAfter(err), f.clock.Backoff(failures))
		failures++
	}
	if w.last.Status == StateSucceeded {
		o.output = w.last.Output
		return nil // what the SDK's final request would return is not needed
	}
	return w.outcome()
}

// pause waits until the next poll: at least as long as asked, the time that Azure asked for. It ends
// early if the resources prove before that the operation has succeeded.
func (w *watch) pause(asked time.Duration) (proved bool, err error) {
	f, o := w.follower, w.operation
	next := max(f.shortestPause(), o.Usual.NextPoll(f.clock.Since(w.began), w.poller.Scarce()))
	until := f.clock.Now().Add(max(asked, next))
	for o.Look != nil && asked > next {
		wait := max(o.Usual.NextPoll(f.clock.Since(w.began), !o.Usual.Early), o.Look.Every)
		if !f.clock.Now().Add(wait).Before(until) {
			break
		}
		if err := f.clock.Pause(f.ctx, wait); err != nil {
			return false, err
		}
		if w.look(until.Sub(f.clock.Now())) {
			return true, nil
		}
	}
	return false, f.clock.Pause(f.ctx, until.Sub(f.clock.Now()))
}

// look looks once, for at most the limit: a read that takes longer must not put the poll off.
func (w *watch) look(limit time.Duration) (proved bool) {
	f := w.follower
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	seen := make(chan bool, 1)
	go func() { seen <- w.operation.Look.Proved(ctx) }()
	timer := f.clock.NewTimer(limit)
	defer timer.Stop()
	select {
	case proved = <-seen:
	case <-timer.C():
	}
	return proved
}

// perOperation is what each operation in flight adds to the pause between two polls of any of them,
// so that together they poll at most a hundred times a second. The pacer holds them to Azure's
// lower rate once what may be used at once is gone.
const perOperation = 10 * time.Millisecond

func (f *Follower) shortestPause() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(len(f.running)) * perOperation
}

// pollFailed returns the error that ends the polling, or nil. The operation goes on after a poll
// that failed, so only a failure that cannot pass ends the polling.
func (w *watch) pollFailed(err error) error {
	f, o, level := w.follower, w.operation, 1
	switch kind := provisioner.KindOf(err); {
	case f.ctx.Err() != nil:
		return f.ctx.Err()
	case kind == provisioner.NotFound:
		return &provisioner.Error{
			Kind:    provisioner.Conflict,
			Code:    CodeForgotten,
			Err:     err,
			Message: fmt.Sprintf("poll the %s of %s: Azure does not know any more how it ended", o.Kind, o.Resource),
		}
	case kind == provisioner.InvalidArgument:
		return fmt.Errorf("poll the %s of %s: %w", o.Kind, o.Resource, err)
	case kind == provisioner.Unauthorized:
		level = 0 // polling goes on until the identity has the right to poll
	}
	f.log.V(level).Info("polling goes on after a failure", "operation", o.Kind, "resource", o.Resource, "error", err.Error())
	return nil
}

// note records the answer of a poll, which has the age of a resumed operation.
func (w *watch) note(answer Answer) {
	w.last = answer
	if !w.operation.Resumed || answer.Start.IsZero() {
		return
	}
	now := w.follower.clock.Now()
	platform := now
	if !answer.Date.IsZero() {
		platform = answer.Date // by the clock that the start time is of
	}
	if age := platform.Sub(answer.Start); age > now.Sub(w.began) {
		w.began = now.Add(-age)
	}
}

// outcome is how an operation that has ended went. It asks until Azure answers.
func (w *watch) outcome() error {
	f := w.follower
	for failures := 0; ; failures++ {
		outcome, err := w.poller.Outcome(f.ctx)
		switch {
		case err == nil && outcome == nil:
			return nil
		case err == nil:
			return fmt.Errorf("%s of %s: %w", w.operation.Kind, w.operation.Resource, outcome)
		case !Transient(err):
			return fmt.Errorf("read the outcome of the %s of %s: %w", w.operation.Kind, w.operation.Resource, err)
		}
		if err := f.clock.Pause(f.ctx, max(provisioner.RetryAfter(err), f.clock.Backoff(failures))); err != nil {
			return err
		}
	}
}
