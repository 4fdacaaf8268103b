// Package status converts the errors of the driver to gRPC statuses. No other package knows both
// sets. The CSI servers call From on every error that they return.
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

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// codeOf maps the error kinds of the Provisioner Library; OK means none of them. RateLimited and
// Unavailable have one code, because Kubernetes treats both alike: it retries later.
func codeOf(kind provisioner.Kind) codes.Code {
	switch kind {
	case provisioner.NotFound:
		return codes.NotFound
	case provisioner.AlreadyExists:
		return codes.AlreadyExists
	case provisioner.Conflict:
		return codes.Aborted
	case provisioner.FailedPrecondition, provisioner.Unsupported:
		return codes.FailedPrecondition
	case provisioner.InsufficientCapacity:
		return codes.ResourceExhausted
	case provisioner.InvalidArgument:
		return codes.InvalidArgument
	case provisioner.Unauthorized:
		return codes.PermissionDenied
	case provisioner.RateLimited, provisioner.Unavailable:
		return codes.Unavailable
	case provisioner.Unimplemented:
		return codes.Unimplemented
	}
	return codes.OK
}

// From returns err as an error with a gRPC status, and nil for nil. It chooses the code in this
// order: a status that err already has, a size that is out of range, a provisioner.Kind, the end of
// a context, a failure of the API server, a failure of the network; any other error is Internal.
// The message is err's own. If the API server has forbidden a request, it begins with the reason.
func From(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	text := err.Error()
	if apierrors.IsForbidden(err) {
		text = refusal.Text(apiv1.ReasonWriteRefused, text)
	}
	return status.Error(Code(err), text)
}

// Code returns the gRPC code of err, by the rules of From.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	if size := (*paramtable.OutOfRangeError)(nil); errors.As(err, &size) {
		return codes.OutOfRange
	}
	if code := codeOf(provisioner.KindOf(err)); code != codes.OK {
		return code
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

// apiServerUnavailable is false for a NotFound or Forbidden of the API server: what a missing
// object means depends on the caller, which says it with a Kind.
func apiServerUnavailable(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// networkFailed reports whether a request got no answer, so it is not known whether the server has
// carried it out. net/http returns each failure of this kind as a *url.Error, whatever its cause: a lost
// HTTP/2 connection has no type of its own. The interface net.Error is not sufficient: every
// syscall.Errno has its methods, also ENOSPC.
func networkFailed(err error) bool {
	var request *url.Error
	var connection *net.OpError
	return errors.As(err, &request) || errors.As(err, &connection) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}

// Final reports whether a caller may treat a code as final: it forgets the object of the call and
// never calls for its removal. The four codes that are not final are those after which the kubelet,
// csi-attacher, csi-provisioner, csi-resizer and csi-snapshotter all call again
// (docs/reference/final-codes.md). ResourceExhausted is final for csi-provisioner.
func Final(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return false
	default:
		return true
	}
}

// NotFinal returns err with a code after which every caller calls again, or calls for the object's
// removal: err's own code, or Unavailable. It is for a call that fails and does not undo
// everything; left says what remains.
func NotFinal(err error, left string) error {
	code := Code(err)
	if Final(code) {
		code = codes.Unavailable
	}
	return status.Errorf(code, "%s; %s", status.Convert(From(err)).Message(), left)
}
