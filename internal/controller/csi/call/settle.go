package call

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
)

// settleTimeout limits the search for what a failed call has left behind. The call's own context
// may have ended.
const settleTimeout = 10 * time.Second

// Settle returns the status of a failed call that creates an object. After a final code
// csi-provisioner and csi-snapshotter do not delete the object when its PersistentVolumeClaim or
// VolumeSnapshot is deleted. left names what exists of the object, from this call or an earlier
// one. If anything exists, or if left fails, the code is not final. AlreadyExists stays, as the CSI
// specification requires: the object that exists differs from the request.
func Settle(ctx context.Context, failure error, left func(context.Context) (string, error)) error {
	failure = status.From(failure)
	if code := grpcstatus.Code(failure); !status.Final(code) || code == codes.AlreadyExists {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	what, err := left(ctx)
	switch {
	case err != nil:
		return status.NotFinal(failure, "an earlier call may have left an object, and reading it failed: "+err.Error())
	case what != "":
		return status.NotFinal(failure, what+" exists, of this call or an earlier one")
	}
	return failure
}
