package disks

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/records"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// pruning is a client of an API server whose definition of AzVolumes does not know what is written. Nothing else is to be asked of it.
type pruning struct{ client.Client }

func (pruning) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func TestARecordIsNotDeletedThatCannotTakeTheDiskWithIt(t *testing.T) {
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", Generation: 3}}
	s := &Provisioner{Adopter: &adoption.Adopter{Records: &records.Records{Client: pruning{}}}}
	if err := s.discard(t.Context(), v); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v, want FailedPrecondition", err)
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
	s := &Provisioner{Adopter: &adoption.Adopter{Records: &records.Records{
		Watch: records.NewWatch(), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(v).Build(),
	}}}
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
