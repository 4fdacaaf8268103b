package handover

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/call"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/records"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// A publish that waited for an old attachment to go finds that of a claim which came after its own. Nothing is written: the server has no client.
func TestLaw1APublishThatWasOvertakenLeavesTheLaterOneItsAttachment(t *testing.T) {
	attachment := func(epoch int64) apiv1.AzVolumeAttachmentSpec {
		return apiv1.AzVolumeAttachmentSpec{VolumeName: "vol", NodeName: "a", Role: apiv1.RolePrimary, Epoch: epoch}
	}
	later := &apiv1.AzVolumeAttachment{Spec: attachment(4)}
	if _, err := new(Publisher).makePrimary(t.Context(), later, attachment(3)); status.Code(err) != codes.Aborted {
		t.Errorf("%v, want Aborted", err)
	}
	if changed, err := new(Publisher).makePrimary(t.Context(), later, attachment(4)); changed || err != nil {
		t.Errorf("the later one's own publish: %t, %v", changed, err)
	}
}

// Two publishes to two nodes ran beside each other. One had read the AzVolume before the other one claimed it, and found the other one's attachment: that looked like
// one whose claim the AzVolume had lost. Its proof refused the volume to the node that held the claim.
func TestAPublishProvesNothingOfAClaimThatCameAfterItReadTheVolume(t *testing.T) {
	t.Parallel()
	v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld})
	a := attachmentOf(v, "a", 1)
	node := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Status: apiv1.AzDriverNodeStatus{MountsScannedTime: &metav1.MicroTime{Time: time.Unix(1, 0)}}}
	api := storeOf(t, v, a, node)
	s := publisherOf(t, api, cloudfake.New(cloudfake.Options{}).Disks())
	old := v.DeepCopy()
	old.Status.Primary = nil
	if _, err := s.claim(t.Context(), handle, old, "b"); status.Code(call.Status(err)) != codes.FailedPrecondition {
		t.Errorf("got %v, want FailedPrecondition", err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil || a.Status.Proof != nil {
		t.Errorf("got proof %+v of the claim that is held, %v; want none", a.Status.Proof, err)
	}
}

func TestAPublishWhoseClaimPassedOnWhileItWaitedMakesNoAttachment(t *testing.T) {
	t.Parallel()
	held := &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld}
	for name, test := range map[string]struct {
		now     *apiv1.Ownership
		aborted bool
	}{
		"the claim is held":           {held, false},
		"it is another node's by now": {&apiv1.Ownership{NodeName: "b", Epoch: 2, State: apiv1.OwnershipHeld}, true},
		"it is being released by now": {&apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipReleasing}, true},
		"the AzVolume lost it since":  {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _ := volumeOf(t, test.now)
			s := publisherOf(t, storeOf(t, v.DeepCopy()), nil)
			v.Status.Primary = held
			gone := attachmentOf(v, "a", 0)
			gone.Spec.Role = apiv1.RoleReplica
			err := s.promoteDeleted(t.Context(), v, gone, attachmentOf(v, "a", 2).Spec)
			if aborted := status.Code(err) == codes.Aborted; aborted != test.aborted || !aborted && !errors.Is(err, records.ErrChanged) {
				t.Errorf("got %v, want Aborted: %t, else %v", err, test.aborted, records.ErrChanged)
			}
		})
	}
}
