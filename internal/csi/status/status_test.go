package status_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestFrom(t *testing.T) {
	volumes := schema.GroupResource{Group: "disk.csi.azure.com", Resource: "azvolumes"}
	tests := map[string]struct {
		err  error
		want codes.Code
	}{
		"success":                                   {nil, codes.OK},
		"a missing resource":                        {provisioner.NotFound, codes.NotFound},
		"a resource that is something else":         {provisioner.AlreadyExists, codes.AlreadyExists},
		"a conflict":                                {provisioner.Conflict, codes.Aborted},
		"a state that forbids it":                   {provisioner.FailedPrecondition, codes.FailedPrecondition},
		"no slot or quota left":                     {provisioner.InsufficientCapacity, codes.ResourceExhausted},
		"a request that is never taken":             {provisioner.InvalidArgument, codes.InvalidArgument},
		"credentials that do not suffice":           {provisioner.Unauthorized, codes.PermissionDenied},
		"a request to slow down":                    {provisioner.RateLimited, codes.Unavailable},
		"a platform that fails":                     {provisioner.Unavailable, codes.Unavailable},
		"a kind that is wrapped twice":              {fmt.Errorf("stage: %w", provisioner.Errorf(provisioner.FailedPrecondition, "attached to b: %w", errors.New("409"))), codes.FailedPrecondition},
		"a kind whose cause is a deadline":          {provisioner.Errorf(provisioner.Unavailable, "get disk: %w", context.DeadlineExceeded), codes.Unavailable},
		"a deadline":                                {fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"a caller that went away":                   {fmt.Errorf("wait: %w", context.Canceled), codes.Canceled},
		"a bad paging token":                        {fmt.Errorf("list: %w", &pagetoken.BadTokenError{Token: "3"}), codes.Aborted},
		"a lost compare-and-swap":                   {apierrors.NewConflict(volumes, "pvc-1", errors.New("stale")), codes.Aborted},
		"an API server that is busy":                {apierrors.NewTooManyRequests("later", 1), codes.Unavailable},
		"an API server that nobody listens at":      {fmt.Errorf("get: %w", syscall.ECONNREFUSED), codes.Unavailable},
		"a NotFound of the API server with no kind": {apierrors.NewNotFound(volumes, "pvc-1"), codes.Internal},
		"a status of another call":                  {fmt.Errorf("relay: %w", grpcstatus.Error(codes.OutOfRange, "size")), codes.OutOfRange},
		"anything else":                             {errors.New("odd"), codes.Internal},
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

func TestEveryKindHasACodeOfItsOwn(t *testing.T) {
	for _, kind := range provisioner.Kinds() {
		if status.Code(kind) == codes.Internal {
			t.Errorf("kind %s has no code", kind)
		}
	}
}
