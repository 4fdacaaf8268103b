package failover

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// The cache still showed the attachment as fenced, and the volume was published to the node again.
func TestAnAttachmentThatIsFencedNoLongerIsNotDeleted(t *testing.T) {
	t.Parallel()
	a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-a", UID: "1"}}
	c := fakeapi.With(a).Build()
	r := &Reconciler{Options: Options{Client: c, Reader: c}}
	expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	fenced, err := r.setFinalizer(t.Context(), a, true)
	expect.Must(t, err)
	again, err := r.setFinalizer(t.Context(), fenced, false)
	expect.Must(t, err)
	if err := r.deleteFenced(t.Context(), fenced); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(again), again); err != nil {
		t.Errorf("got %v, want the attachment to be there", err)
	}
}

// A publish to the fenced node acquired the ownership, and the node was lost again before the
// pre-empted attachment was deleted. With another epoch the attachment would not say any more that
// only a reservation keeps the node from writing.
func TestTheAttachmentOfAPreemptedNodeIsDeletedAndNotMadeAPrimary(t *testing.T) {
	t.Parallel()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"},
		Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode},
	}
	v.Status.Primary = &apiv1.Ownership{
		NodeName: "a",
		Epoch:    7,
		State:    apiv1.OwnershipReleasing,
		Cause:    apiv1.CauseNodeLost,
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "ns",
			Name:       "v-a",
			UID:        "1",
			Finalizers: []string{apiv1.Finalizer},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a", Role: apiv1.RolePrimary, Epoch: 5},
		Status: apiv1.AzVolumeAttachmentStatus{
			State: apiv1.AttachmentDetaching,
			Proof: &apiv1.ReleaseProof{Kind: apiv1.ProofPreempted, Epoch: 5},
		},
	}
	c := fakeapi.With(v, a).Build()
	r := &Reconciler{Options: Options{Client: c, Reader: c}}
	expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	expect.Must(t, r.repair(t.Context(), observed{
		Input:     lostnode.Input{NodeName: "a"},
		namespace: "ns",
	}, lostnode.Volume{Volume: v, Attachment: a}))
	expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	if a.DeletionTimestamp == nil || !ownership.Preempted(a) || a.Spec.Epoch != 5 {
		t.Errorf("got epoch %d, proof %+v, deleted %v; want it deleted, and otherwise unchanged", a.Spec.Epoch, a.Status.Proof,
			a.DeletionTimestamp)
	}
}
