package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAFinalCodeMeansThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		failure error
		left    string
		leftErr error
		want    codes.Code
	}{
		"nothing is left":                             {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), want: codes.PermissionDenied},
		"something is left":                           {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), left: "AzVolume a", want: codes.Unavailable},
		"it is not known what is left":                {failure: provisioner.Errorf(provisioner.Unauthorized, "no"), leftErr: errors.New("away"), want: codes.Unavailable},
		"no capacity and nothing left":                {failure: provisioner.Errorf(provisioner.InsufficientCapacity, "no"), want: codes.ResourceExhausted},
		"no capacity and something left":              {failure: provisioner.Errorf(provisioner.InsufficientCapacity, "no"), left: "AzVolume a", want: codes.Unavailable},
		"a size out of range and something left":      {failure: &volumeparams.OutOfRangeError{}, left: "AzVolume a", want: codes.Unavailable},
		"an unknown error and something left":         {failure: errors.New("odd"), left: "AzVolume a", want: codes.Unavailable},
		"another object of the name exists":           {failure: grpcstatus.Error(codes.AlreadyExists, "size"), left: "AzVolume a", want: codes.AlreadyExists},
		"the code is not final, and keeps its reason": {failure: context.DeadlineExceeded, left: "AzVolume a", want: codes.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := false
			err := settle(t.Context(), test.failure, func(context.Context) (string, error) { asked = true; return test.left, test.leftErr })
			if got := grpcstatus.Code(err); got != test.want {
				t.Errorf("code = %s, want %s: %v", got, test.want, err)
			}
			if final := status.Final(status.Code(statusOf(test.failure))); asked && !final {
				t.Error("a failure whose code is not final was looked into")
			}
		})
	}
}

// The reconciler goes on with what the AzVolume asks for, although Azure has refused the last try and the time of the call is up.
func TestAChangeThatIsTriedAgainHasNoFinalCode(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := apiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "1"}}
	v.Status.Error = &apiv1.Error{Kind: string(provisioner.NotFound), Message: "the resource group is gone"}
	s := &Server{Options: Options{Watch: NewWatch(), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(v).Build()}}
	ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	_, updateErr := s.awaitUpdate(ctx, v, func(apiv1.AzVolumeStatus) bool { return false }, func(apiv1.AzVolumeStatus) *apiv1.Refusal { return nil })
	_, createErr := s.awaitCreated(ctx, v)
	for call, err := range map[string]error{"awaitUpdate": updateErr, "awaitCreated": createErr} {
		if got := status.Code(err); got != codes.Unavailable {
			t.Errorf("%s: %s, want Unavailable: %v", call, got, err)
		}
	}
}
