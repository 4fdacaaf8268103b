package call

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
)

// settleTimeout bounds the search for what a failed call has left behind, when the call's own context may have ended.
const settleTimeout = 10 * time.Second

// Settle returns the status of a failed call that creates an object. After a final code csi-provisioner and csi-snapshotter forget the
// object, and do not delete it when its PersistentVolumeClaim or VolumeSnapshot is deleted. left names what exists of the object, from this
// call or an earlier one. If anything exists, or if left fails, the code is not final. AlreadyExists stays, as the CSI
// specification asks: what exists is not what the request asks for.
func Settle(ctx context.Context, failure error, left func(context.Context) (string, error)) error {
	failure = Status(failure)
	if code := grpcstatus.Code(failure); !status.Final(code) || code == codes.AlreadyExists {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	what, err := left(ctx)
	switch {
	case err != nil:
		return status.NotFinal(failure, "whether an earlier call has left something cannot be found out: "+err.Error())
	case what != "":
		return status.NotFinal(failure, what+" exists, of this call or an earlier one")
	}
	return failure
}
