// Package call holds what all calls of the CSI controller server share: a limit of their duration,
// a lock against a second call for the same object, the parsing of volume IDs and capabilities, and
// the gRPC codes of their errors.
package call

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/keylock"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// replyTime is the part of a deadline that is kept for the answer to reach the caller.
const replyTime = 500 * time.Millisecond

// Calls limits the duration of the calls of one process, and locks the objects that they work on.
// The locks prevent calls that would undo one another; correctness does not depend on them.
type Calls struct {
	clock   clock.PassiveClock
	timeout time.Duration

	locks keylock.Locks
}

// New makes a Calls. timeout limits a call without a deadline.
func New(c clock.PassiveClock, timeout time.Duration) *Calls {
	return &Calls{clock: c, timeout: timeout}
}

// Bound returns a context that ends shortly before the caller's deadline.
func (c *Calls) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, c.timeout)
	}
	left := deadline.Sub(c.clock.Now())
	return context.WithTimeout(ctx, left-min(replyTime, left/10))
}

// Lock locks a key. While another call holds it, the error is Aborted.
func (c *Calls) Lock(key string) (unlock func(), err error) {
	unlock, locked := c.locks.TryLock(key)
	if !locked {
		return nil, grpcstatus.Errorf(codes.Aborted, "another call for %s is in progress", key)
	}
	return unlock, nil
}

// Begin locks a key and limits the call; end undoes both.
func (c *Calls) Begin(ctx context.Context, key string) (bound context.Context, end func(), err error) {
	unlock, err := c.Lock(key)
	if err != nil {
		return nil, nil, err
	}
	bound, cancel := c.Bound(ctx)
	return bound, func() { cancel(); unlock() }, nil
}

// Do runs a call as Begin and end do, and returns its error with a gRPC status.
func (c *Calls) Do(ctx context.Context, key string, run func(context.Context) error) error {
	ctx, end, err := c.Begin(ctx, key)
	if err != nil {
		return err
	}
	defer end()
	return status.From(run(ctx))
}

// Volume parses a volume ID. A missing ID is InvalidArgument, and an ID that cannot be a disk's is
// NotFound.
func Volume(id string) (volumehandle.Handle, error) {
	if id == "" {
		return volumehandle.Handle{}, InvalidArgument("volume ID: missing")
	}
	handle, err := volumehandle.Parse(id)
	if err != nil {
		return volumehandle.Handle{}, grpcstatus.Error(codes.NotFound, err.Error())
	}
	return handle, nil
}

// InvalidArgument returns an error of that code.
func InvalidArgument(format string, args ...any) error {
	return grpcstatus.Errorf(codes.InvalidArgument, format, args...)
}

// Failure returns a failure that a status records, as an error of its kind.
func Failure(e *apiv1.Error) error {
	return &provisioner.Error{Kind: provisioner.Kind(e.Reason), Message: e.Message}
}
