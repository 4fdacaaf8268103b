// Package status turns the errors of the driver into gRPC statuses. It is the
// only place that knows both sets; the CSI servers call From on every error that
// leaves them.
package status

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// codeOf maps the error kinds of the Provisioner Library. RateLimited and
// Unavailable are one code, because a CO does the same on both: try again later.
var codeOf = map[provisioner.Kind]codes.Code{
	provisioner.NotFound:             codes.NotFound,
	provisioner.AlreadyExists:        codes.AlreadyExists,
	provisioner.Conflict:             codes.Aborted,
	provisioner.FailedPrecondition:   codes.FailedPrecondition,
	provisioner.InsufficientCapacity: codes.ResourceExhausted,
	provisioner.InvalidArgument:      codes.InvalidArgument,
	provisioner.Unauthorized:         codes.PermissionDenied,
	provisioner.RateLimited:          codes.Unavailable,
	provisioner.Unavailable:          codes.Unavailable,
}

// From returns err as an error that carries a gRPC status, and nil for nil. In
// this order: an error that carries a status keeps its code; a provisioner.Kind
// decides; then a bad paging token, the end of a context, and what the API server or the way to it
// failed with; all else is Internal. The message is err's own.
func From(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(Code(err), err.Error())
}

// Code returns the gRPC code of err, by the rules of From.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	if code, ok := codeOf[provisioner.KindOf(err)]; ok {
		return code
	}
	if badToken := (*pagetoken.BadTokenError)(nil); errors.As(err, &badToken) {
		return codes.Aborted
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case apierrors.IsConflict(err):
		return codes.Aborted
	case apiServerUnavailable(err):
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// apiServerUnavailable does not count a NotFound or Forbidden of the API server:
// what is missing there means something else to each caller, who says so with a Kind.
func apiServerUnavailable(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
