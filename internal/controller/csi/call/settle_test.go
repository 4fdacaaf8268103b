package call_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAFailedCallThatLeftAnObjectHasNoFinalCode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		failure error
		left    string
		leftErr error
		want    codes.Code
	}{
		"nothing is left": {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), want: codes.PermissionDenied},
		"something is left": {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), left: "AzVolume a",
			want: codes.Unavailable},
		"it is not known what is left": {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), leftErr: errors.New("away"),
			want: codes.Unavailable},
		"no capacity and nothing left": {failure: provisioner.Errorf(provisioner.InsufficientCapacity, "no"),
			want: codes.ResourceExhausted},
		"no capacity and something left": {failure: provisioner.Errorf(provisioner.InsufficientCapacity, "no"),
			left: "AzVolume a", want: codes.Unavailable},
		"a size out of range and something left": {failure: &paramtable.OutOfRangeError{}, left: "AzVolume a",
			want: codes.Unavailable},
		"an unknown error and something left": {failure: errors.New("odd"), left: "AzVolume a", want: codes.Unavailable},
		"another object of the name exists": {failure: grpcstatus.Error(codes.AlreadyExists, "size"), left: "AzVolume a",
			want: codes.AlreadyExists},
		"the code is not final, and keeps its reason": {failure: context.DeadlineExceeded, left: "AzVolume a",
			want: codes.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := false
			err := call.Settle(t.Context(), test.failure,
				func(context.Context) (string, error) { asked = true; return test.left, test.leftErr })
			if got := grpcstatus.Code(err); got != test.want {
				t.Errorf("code = %s, want %s: %v", got, test.want, err)
			}
			if final := status.Final(status.Code(status.From(test.failure))); asked && !final {
				t.Error("a failure whose code is not final was looked into")
			}
		})
	}
}
