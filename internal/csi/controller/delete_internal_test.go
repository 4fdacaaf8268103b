package controller

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// pruning is a client of an API server whose definition of AzVolumes does not know what is written. Nothing else is to be asked of it.
type pruning struct{ client.Client }

func (pruning) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func TestARecordIsNotDeletedThatCannotTakeTheDiskWithIt(t *testing.T) {
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", Generation: 3}}
	s := &Server{Options: Options{Client: pruning{}}}
	if err := s.discard(t.Context(), v); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v, want FailedPrecondition", err)
	}
}
