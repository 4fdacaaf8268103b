package fake

import (
	"context"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// operation is a piece of work that takes effect when it ends.
type operation struct {
	p     *platform
	token string
	ends  time.Time
	hold  <-chan struct{} // nil: not held
	fail  error           // the error to end with, by a fault
	apply func() error
	abort func()
	done  chan struct{}
	// guarded by p.mu
	ended bool
	err   error
}

// Token implements provisioner.Operation.
func (o *operation) Token() string { return o.token }

// Wait implements provisioner.Operation.
func (o *operation) Wait(ctx context.Context) error {
	if err := o.await(ctx); err != nil {
		return err
	}
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	return o.err
}

// await blocks until the operation has ended, however it ended. It returns the error of ctx only.
func (o *operation) await(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		o.p.mu.Lock()
		now := o.p.now()
		ended, ends := o.ended, o.ends
		o.p.mu.Unlock()
		if ended {
			return nil
		}
		if err := o.sleep(ctx, now, ends); err != nil {
			return err
		}
	}
}

// sleep blocks until something may have changed for the operation.
func (o *operation) sleep(ctx context.Context, now, ends time.Time) error {
	var due <-chan time.Time
	released := o.hold
	if now.Before(ends) {
		// A released hold does not matter before its time, and would make this a busy loop.
		released = nil
		timer := o.p.options.Clock.NewTimer(ends.Sub(now))
		defer timer.Stop()
		// An injected clock may have been stepped between the reading of now and the timer.
		if !o.p.options.Clock.Now().Before(ends) {
			return nil
		}
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-o.done:
	case <-due:
	case <-released:
	}
	return nil
}

// endIfDue ends the operation if its time has come. The caller holds p.mu.
func (o *operation) endIfDue(now time.Time) bool {
	if o.ended || now.Before(o.ends) {
		return false
	}
	if o.hold != nil {
		select {
		case <-o.hold:
		default:
			return false
		}
	}
	if o.fail != nil {
		o.abort()
		o.end(o.fail)
		return true
	}
	o.end(o.apply())
	return true
}

// end ends the operation with err, without any effect. The caller holds p.mu.
func (o *operation) end(err error) {
	if o.ended {
		return
	}
	o.ended, o.err = true, err
	o.p.inFlight = slices.DeleteFunc(o.p.inFlight, func(other *operation) bool { return other == o })
	close(o.done)
}

// preempt ends the operation because another took its place. The caller holds p.mu.
func (o *operation) preempt(by string) {
	if o.ended {
		return
	}
	o.abort()
	o.end(&provisioner.Error{
		Kind:    provisioner.Conflict,
		Code:    "OperationPreempted",
		Message: "the operation was preempted by " + by,
	})
}
