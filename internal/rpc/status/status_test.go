package status_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestFrom(t *testing.T) {
	volumes := schema.GroupResource{Group: "disk.csi.azure.com", Resource: "azvolumes"}
	tests := map[string]struct {
		err  error
		want codes.Code
	}{
		"success":                            {nil, codes.OK},
		"a missing resource":                 {provisioner.NotFound, codes.NotFound},
		"a resource that is something else":  {provisioner.AlreadyExists, codes.AlreadyExists},
		"a conflict":                         {provisioner.Conflict, codes.Aborted},
		"a state that forbids the call":      {provisioner.FailedPrecondition, codes.FailedPrecondition},
		"no slot or quota left":              {provisioner.InsufficientCapacity, codes.ResourceExhausted},
		"a request that is not valid":        {provisioner.InvalidArgument, codes.InvalidArgument},
		"credentials that do not suffice":    {provisioner.Unauthorized, codes.PermissionDenied},
		"a request to slow down":             {provisioner.RateLimited, codes.Unavailable},
		"a platform that fails":              {provisioner.Unavailable, codes.Unavailable},
		"a device that lacks what is needed": {provisioner.Unsupported, codes.FailedPrecondition},
		"a method that is not there":         {provisioner.Unimplemented, codes.Unimplemented},
		"a kind that is wrapped twice": {fmt.Errorf("stage: %w",
			provisioner.Errorf(provisioner.FailedPrecondition, "attached to b: %w", errors.New("409"))),
			codes.FailedPrecondition},
		"a kind whose cause is a deadline": {provisioner.Errorf(provisioner.Unavailable, "get disk: %w",
			context.DeadlineExceeded), codes.Unavailable},
		"a deadline":                          {fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"a caller that cancelled":             {fmt.Errorf("wait: %w", context.Canceled), codes.Canceled},
		"a size that no disk can have":        {fmt.Errorf("create: %w", &paramtable.OutOfRangeError{}), codes.OutOfRange},
		"a lost compare-and-swap":             {apierrors.NewConflict(volumes, "pvc-1", errors.New("stale")), codes.Aborted},
		"an API server that is busy":          {apierrors.NewTooManyRequests("later", 1), codes.Unavailable},
		"an API server that is not listening": {fmt.Errorf("get: %w", syscall.ECONNREFUSED), codes.Unavailable},
		"a connection that was refused": {fmt.Errorf("get: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}),
			codes.Unavailable},
		"a dial that timed out": {fmt.Errorf("get: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}),
			codes.Unavailable},
		"an HTTP/2 connection that was lost":  {put(errors.New("http2: client connection lost")), codes.Unavailable},
		"a TLS handshake that timed out":      {put(errors.New("net/http: TLS handshake timeout")), codes.Unavailable},
		"a certificate that is not trusted":   {put(x509.UnknownAuthorityError{}), codes.Unavailable},
		"a host name that cannot be resolved": {put(&net.DNSError{Err: "no such host", Name: "api"}), codes.Unavailable},
		"a disk of the node that is full": {
			fmt.Errorf("write record: %w", &os.PathError{Op: "write", Path: "/r", Err: syscall.ENOSPC}), codes.Internal},
		"a request that its caller cancelled":       {put(context.Canceled), codes.Canceled},
		"a write that the cluster forbids":          {apierrors.NewForbidden(volumes, "pvc-1", errors.New("x")), codes.Internal},
		"a NotFound of the API server with no kind": {apierrors.NewNotFound(volumes, "pvc-1"), codes.Internal},
		"a status of another call": {
			fmt.Errorf("relay: %w", grpcstatus.Error(codes.OutOfRange, "size")), codes.OutOfRange},
		"anything else": {errors.New("odd"), codes.Internal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := status.From(test.err)
			if code := grpcstatus.Code(got); code != test.want {
				t.Errorf("code = %v, want %v", code, test.want)
			}
			if status.Code(test.err) != test.want {
				t.Errorf("Code = %v, want %v", status.Code(test.err), test.want)
			}
			if test.err != nil && grpcstatus.Convert(got).Message() == "" {
				t.Error("the message was lost")
			}
		})
	}
}

// put is how net/http returns the failure of a request.
func put(cause error) error {
	return fmt.Errorf("write report of node: %w", &url.Error{Op: "Put", URL: "https://10.0.0.1/apis", Err: cause})
}

func TestACallThatLeavesSomethingBehindHasNoFinalCode(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		err := status.NotFinal(grpcstatus.Error(code, "mount failed"), "the volume is mounted at /staging")
		want := codes.Unavailable
		if code == codes.Canceled || code == codes.DeadlineExceeded || code == codes.Aborted {
			want = code
		}
		if got := grpcstatus.Code(err); got != want || status.Final(got) {
			t.Errorf("%s became %s (final: %t), want %s", code, got, status.Final(got), want)
		}
		if got, want := grpcstatus.Convert(err).Message(), "mount failed; the volume is mounted at /staging"; got != want {
			t.Errorf("message = %q, want %q", got, want)
		}
	}
	wrapped := fmt.Errorf("stage: %w", provisioner.Errorf(provisioner.InsufficientCapacity, "no slot"))
	if got := grpcstatus.Code(status.NotFinal(wrapped, "an AzVolume exists")); got != codes.Unavailable {
		t.Errorf("InsufficientCapacity became %s, want Unavailable", got)
	}
}
