package disks

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// pruning is a client of an API server whose definition of AzVolumes does not have the written
// fields. The test needs no other method.
type pruning struct{ client.Client }

func (pruning) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func TestAnAzVolumeIsNotDeletedWithoutItsDisk(t *testing.T) {
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", Generation: 3}}
	s := &Provisioner{Adopter: &adoption.Adopter{Records: &cluster.Records{Client: pruning{}}}}
	if err := s.discard(t.Context(), v); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v, want FailedPrecondition", err)
	}
}

// A node has acquired the volume since it was read as unused.
func TestAnAzVolumeThatHasChangedIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]apiv1.DeletionPolicy{
		"the first call": "", "a call that is repeated": apiv1.DeletionDelete,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "vol", UID: "1", Finalizers: []string{apiv1.FinalizerVolume},
			}}
			v.Spec.DeletionPolicy = policy
			c := fakeapi.With(v).Build()
			read, now := &apiv1.AzVolume{}, &apiv1.AzVolume{}
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), read))
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), now))
			now.Status.Primary = &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld}
			expect.Must(t, c.Status().Update(t.Context(), now))
			s := &Provisioner{Adopter: &adoption.Adopter{Records: &cluster.Records{Client: c}}}
			err := s.discard(t.Context(), read)
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), now))
			if !apierrors.IsConflict(err) || now.DeletionTimestamp != nil {
				t.Errorf("got %v, deleted at %v; want a conflict, and the volume as it is", err, now.DeletionTimestamp)
			}
		})
	}
}

// The reconciler continues with the spec of the AzVolume, although Azure has refused the last try
// and the deadline of the call has passed.
func TestAChangeThatIsTriedAgainHasNoFinalCode(t *testing.T) {
	t.Parallel()
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "1"}}
	v.Status.Error = &apiv1.Error{Reason: string(provisioner.NotFound), Message: "the resource group is gone"}
	s := &Provisioner{Adopter: &adoption.Adopter{Records: &cluster.Records{
		Watch: cluster.NewWatch(), Client: fakeapi.With(v).Build(),
	}}}
	ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	_, updateErr := s.awaitUpdate(ctx, v, func(apiv1.AzVolumeStatus) bool { return false },
		func(apiv1.AzVolumeStatus) *apiv1.Refusal { return nil })
	_, createErr := s.awaitCreated(ctx, v)
	for name, err := range map[string]error{"awaitUpdate": updateErr, "awaitCreated": createErr} {
		if got := status.Code(err); got != codes.Unavailable {
			t.Errorf("%s: %s, want Unavailable: %v", name, got, err)
		}
	}
}

// An AzVolume was restored without its status. Before the controller took over the disk, it had
// tried to create one, and Azure had refused. A call that saw this in its cache deleted the
// AzVolume, which a node used by then: an AzVolume that is being deleted cannot be published any
// more.
func TestAVolumeIsNotDeletedBecauseOfARefusalThatIsOver(t *testing.T) {
	t.Parallel()
	handle, err := volumehandle.Parse("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol")
	if err != nil {
		t.Fatal(err)
	}
	old := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "ns",
			Name:            handle.VolumeName(),
			UID:             "1",
			ResourceVersion: "1",
		},
		Spec: apiv1.AzVolumeSpec{Disk: apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "rg", Name: "vol"}},
		Status: apiv1.AzVolumeStatus{
			State: apiv1.VolumeCreationFailed,
			Error: &apiv1.Error{Reason: string(provisioner.AlreadyExists), Message: "the disk exists"},
		},
	}
	current := old.DeepCopy()
	current.ResourceVersion = "2"
	current.Status = apiv1.AzVolumeStatus{
		State:   apiv1.VolumeCreated,
		DiskID:  handle.String(),
		Primary: &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld},
	}
	for name, test := range map[string]struct {
		stored *apiv1.AzVolume
		call   func(*Provisioner) error
		want   codes.Code
	}{
		"CreateVolume, when the cache is old": {current, func(s *Provisioner) error {
			_, err := s.awaitCreatedOrDeleted(t.Context(), old)
			return status.From(err)
		}, codes.Aborted},
		"a change, even while the refusal lasts": {old, func(s *Provisioner) error {
			_, err := s.created(t.Context(), handle, call.Access{})
			return status.From(err)
		}, codes.AlreadyExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := fakeapi.With(test.stored.DeepCopy()).Build()
			cached := interceptor.NewClient(api,
				interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object,
					_ ...client.GetOption) error {
					old.DeepCopyInto(o.(*apiv1.AzVolume))
					return nil
				}})
			s := &Provisioner{
				Clock: clock.RealClock{},
				Adopter: &adoption.Adopter{Records: &cluster.Records{
					Watch:     cluster.NewWatch(),
					Client:    cached,
					Reader:    api,
					Namespace: "ns",
				}},
			}
			if err := test.call(s); status.Code(err) != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(old), &apiv1.AzVolume{}); err != nil {
				t.Errorf("got %v, want the AzVolume to be there", err)
			}
		})
	}
}
