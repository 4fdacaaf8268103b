// Package status turns the errors of the driver into gRPC statuses. It is the
// only place that knows both sets; the CSI servers call From on every error that
// leaves them.
package status

import (
	"context"
	"errors"
	"net"
	"net/url"

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
// decides; then a bad paging token, the end of a context, a failure of the API server, and any failure of
// the network; all else is Internal. The message is err's own.
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
	case apiServerUnavailable(err), networkFailed(err):
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// apiServerUnavailable does not count a NotFound or Forbidden of the API server:
// what is missing there means something else to each caller, who says so with a Kind.
func apiServerUnavailable(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// networkFailed says that a request got no answer. Whether the server has carried the request out is not known then. net/http
// returns each such failure as a *url.Error, whatever its cause: a lost HTTP/2 connection has no type of its own. The interface
// net.Error does not tell: every syscall.Errno has its methods, also that of a full disk.
func networkFailed(err error) bool {
	var request *url.Error
	var connection *net.OpError
	return errors.As(err, &request) || errors.As(err, &connection) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}

// Final says whether some caller takes a code for the last word about the object of the call, and never asks for it to be undone. The four codes for which
// it is false are those that the kubelet, csi-attacher, csi-provisioner, csi-resizer and csi-snapshotter all call again after
// (docs/reference/final-codes.md). ResourceExhausted is final for csi-provisioner.
func Final(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return false
	default:
		return true
	}
}

// NotFinal returns err with a code after which every caller calls again, or asks for the object to be undone: its own code, or Unavailable. It is
// for a call that fails and leaves something behind. left says what.
func NotFinal(err error, left string) error {
	code := Code(err)
	if Final(code) {
		code = codes.Unavailable
	}
	return status.Errorf(code, "%s; %s", status.Convert(From(err)).Message(), left)
}
