package handover

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/records"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// A publish claims the volume after unpublish has read the AzVolume. A proof under the new epoch would keep the node from the volume that it holds.
func TestUnpublishReleasesTheClaimThatItsAttachmentIsOf(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := apiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	handle, err := volumehandle.Parse("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol")
	if err != nil {
		t.Fatal(err)
	}
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: handle.VolumeName()},
		Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, Disk: apiv1.DiskParameters{Name: "vol", ResourceGroup: "rg", SubscriptionID: "s", MaxShares: 2}},
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld}},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(v.Name, "a")},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: "a", Role: apiv1.RolePrimary, Epoch: 2},
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, a).WithStatusSubresource(&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}).Build()
	reads, stop := 0, errors.New("the test ends here")
	api := interceptor.NewClient(base, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, report := o.(*apiv1.AzDriverNode); report {
			return stop
		}
		err := c.Get(ctx, key, o, options...)
		if read, ok := o.(*apiv1.AzVolume); ok {
			if reads++; reads == 1 {
				read.Status.Primary = nil
			}
		}
		return err
	}})
	stored := &records.Records{Client: api, Reader: api, Watch: records.NewWatch(), Namespace: "ns"}
	s, err := New(&adoption.Adopter{Records: stored}, nil, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.unpublish(t.Context(), handle, "a"); !errors.Is(err, stop) {
		t.Fatalf("got error %v, want that of the read of the report", err)
	}
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
		t.Fatal(err)
	}
	if c := v.Status.Primary; c == nil || c.State != apiv1.OwnershipReleasing || c.Epoch != 2 {
		t.Errorf("got claim %+v, want epoch 2 to be Releasing before the report is read", c)
	}
}
