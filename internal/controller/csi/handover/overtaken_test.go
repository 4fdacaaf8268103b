package handover

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// A publish waited until an old attachment was gone. In the meantime another call acquired
// ownership and created the attachment. Nothing is written: the server has no client.
func TestLaw1APublishDoesNotChangeTheAttachmentOfALaterEpoch(t *testing.T) {
	attachment := func(epoch int64) apiv1.AzVolumeAttachmentSpec {
		return apiv1.AzVolumeAttachmentSpec{VolumeName: "vol", NodeName: "a", Role: apiv1.RolePrimary, Epoch: epoch}
	}
	later := &apiv1.AzVolumeAttachment{Spec: attachment(4)}
	if _, _, err := new(Publisher).makePrimary(t.Context(), later, attachment(3)); status.Code(err) != codes.Aborted {
		t.Errorf("publish under an earlier epoch: got %v, want Aborted", err)
	}
	if _, changed, err := new(Publisher).makePrimary(t.Context(), later, attachment(4)); changed || err != nil {
		t.Errorf("publish under the epoch of the attachment: got changed %t, error %v; want no change and no error", changed, err)
	}
}

// Two publishes to two nodes ran at the same time. The first one read the AzVolume before the
// second one acquired ownership, and then found the attachment of the second one: it seemed to
// belong to an ownership that the AzVolume had lost. Its proof refused the volume to the node that
// held the ownership.
func TestAPublishRecordsNoProofAgainstALaterOwnership(t *testing.T) {
	t.Parallel()
	v, _ := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld})
	a := attachmentOf(v, "a", 1)
	node := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &metav1.MicroTime{Time: time.Unix(1, 0)}},
	}
	api := storeOf(t, v, a, node)
	s := publisherOf(t, api, cloudfake.New(cloudfake.Options{}).Disks())
	old := v.DeepCopy()
	old.Status.Primary = nil
	if _, err := s.acquire(t.Context(), old, "b"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v, want FailedPrecondition", err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil || a.Status.Proof != nil {
		t.Errorf("got proof %+v against the ownership that node a holds, error %v; want no proof", a.Status.Proof, err)
	}
}

func TestAPublishCreatesNoAttachmentAfterItsOwnershipChanged(t *testing.T) {
	t.Parallel()
	held := &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld}
	for name, test := range map[string]struct {
		now     *apiv1.Ownership
		aborted bool
	}{
		"the node still holds the ownership":      {held, false},
		"another node has acquired the ownership": {&apiv1.Ownership{NodeName: "b", Epoch: 2, State: apiv1.OwnershipHeld}, true},
		"the release of the ownership has started": {&apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipReleasing},
			true},
		"the AzVolume has lost the ownership": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _ := volumeOf(t, test.now)
			s := publisherOf(t, storeOf(t, v.DeepCopy()), nil)
			v.Status.Primary = held
			gone := attachmentOf(v, "a", 0)
			gone.Spec.Role = apiv1.RoleReplica
			err := s.promoteDeleted(t.Context(), v, gone, attachmentOf(v, "a", 2).Spec)
			if aborted := status.Code(err) == codes.Aborted; aborted != test.aborted || !aborted &&
				!errors.Is(err, cluster.ErrChanged) {
				t.Errorf("got %v, want Aborted: %t, else %v", err, test.aborted, cluster.ErrChanged)
			}
		})
	}
}
