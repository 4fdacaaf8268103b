package handover

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/azuredisk-csi/azuredisk/provisioner"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// volumeOf returns the AzVolume of a disk, and its handle.
func volumeOf(t *testing.T, primary *apiv1.Ownership) (*apiv1.AzVolume, volumehandle.Handle) {
	t.Helper()
	handle, err := volumehandle.Parse("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol")
	if err != nil {
		t.Fatal(err)
	}
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: handle.VolumeName()},
		Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, Disk: apiv1.DiskParameters{Name: "vol", ResourceGroup: "rg", SubscriptionID: "s", MaxShares: 2}},
		Status:     apiv1.AzVolumeStatus{Primary: primary},
	}, handle
}

func attachmentOf(v *apiv1.AzVolume, node string, epoch int64) *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(v.Name, node), Finalizers: []string{apiv1.Finalizer}},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: node, Role: apiv1.RolePrimary, Epoch: epoch},
	}
}

func storeOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{}).
		WithIndex(&apiv1.AzVolumeAttachment{}, "spec.volumeName", func(o client.Object) []string { return []string{o.(*apiv1.AzVolumeAttachment).Spec.VolumeName} }).Build()
}

func publisherOf(t *testing.T, api client.Client, disks provisioner.Disks) *Publisher {
	t.Helper()
	stored := &records.Records{Client: api, Reader: api, Watch: records.NewWatch(), Namespace: "ns"}
	s, err := New(&adoption.Adopter{Records: stored, Disks: disks}, nil, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A publish acquires ownership after the unpublish has read the AzVolume. A proof under the new epoch would refuse the volume to the node that holds it.
func TestUnpublishReleasesTheOwnershipOfItsAttachment(t *testing.T) {
	t.Parallel()
	v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld})
	a := attachmentOf(v, "a", 2)
	base := storeOf(t, v, a)
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
	s := publisherOf(t, api, nil)
	if err := s.unpublish(t.Context(), handle, "a"); !errors.Is(err, stop) {
		t.Fatalf("got error %v, want that of the read of the report", err)
	}
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
		t.Fatal(err)
	}
	if o := v.Status.Primary; o == nil || o.State != apiv1.OwnershipReleasing || o.Epoch != 2 {
		t.Errorf("got ownership %+v, want epoch 2 to be Releasing before the report is read", o)
	}
}

// The attachment and the AzDriverNode were lost while Azure attached the disk: Azure listed the disk at no VM, and the driver recorded that as
// the proof. If Azure listed the node's VM, or if the attachment was edited, there was never a proof.
func TestUnpublishRestoresTheAttachmentFromWhichTheProofComes(t *testing.T) {
	t.Parallel()
	replica := func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
		a := attachmentOf(v, "a", 1)
		a.Spec.Role = apiv1.RoleReplica
		return a
	}
	for name, there := range map[string]func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment{
		"the attachment was deleted":        nil,
		"the attachment was made a replica": replica,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld})
			objects := []client.Object{v}
			if there != nil {
				objects = append(objects, there(v))
			}
			api := storeOf(t, objects...)
			cloud := cloudfake.New(cloudfake.Options{})
			cloud.AddDisk(provisioner.Disk{ID: handle.String(), MaxShares: 2})
			s := publisherOf(t, api, cloud.Disks())
			unpublish := func() error {
				ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
				defer cancel()
				return s.unpublish(ctx, handle, "a")
			}
			if err := unpublish(); status.Code(err) != codes.Aborted {
				t.Fatalf("got %v, want Aborted until the attachment has a proof", err)
			}
			a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(v.Name, "a")}}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
				t.Fatal(err)
			}
			if want := (apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: "a", Role: apiv1.RolePrimary, Epoch: 2}); a.Spec != want || len(a.Finalizers) != 1 {
				t.Errorf("got attachment %+v with finalizers %v, want %+v with the driver's", a.Spec, a.Finalizers, want)
			}
			a.Status.Proof = &apiv1.ReleaseProof{Kind: apiv1.ProofDetached, Epoch: 2}
			if err := api.Status().Update(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if err := unpublish(); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
			if o, r := v.Status.Primary, v.Status.LastRelease; o.State != apiv1.OwnershipReleased || r == nil || r.Proof.Kind != apiv1.ProofDetached {
				t.Errorf("got ownership %+v and release %+v, want Released by the attachment's proof", o, r)
			}
		})
	}
}
