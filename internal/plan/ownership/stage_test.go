package ownership_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestLaw2NoMountWithoutTheEpoch(t *testing.T) {
	held := func() (*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {
		volume := &apiv1.AzVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode},
			Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: "b", Epoch: 7, State: apiv1.OwnershipHeld}},
		}
		attachment := &apiv1.AzVolumeAttachment{
			Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "b", Role: apiv1.RolePrimary, Epoch: 7},
			Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To[int32](3)},
		}
		return volume, attachment
	}
	tests := map[string]struct {
		edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)
		want ownership.StageOutcome
	}{
		"the primary of this epoch, attached": {func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {}, ownership.StageAllowed},
		"still attaching": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttaching}
		}, ownership.StageMustWait},
		"still attaching, and the LUN is chosen": {
			func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttaching },
			ownership.StageMustWait},
		"no status yet": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status = apiv1.AzVolumeAttachmentStatus{} },
			ownership.StageMustWait},
		"attached, with the LUN not yet known": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = nil },
			ownership.StageMustWait},
		"a failed attach, which is retried": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentFailed, Error: &apiv1.Error{Message: "no slot"}}
		}, ownership.StageMustWait},
		"being detached": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentDetaching },
			ownership.StageRefused},
		"a detach that failed": {
			func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentDetachFail },
			ownership.StageRefused},
		"the attachment is being deleted": {
			func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.DeletionTimestamp = ptr.To(metav1.Now()) },
			ownership.StageRefused},
		"a replica": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica },
			ownership.StageRefused},
		"an attachment of an older epoch": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Epoch = 6 },
			ownership.StageRefused},
		"an attachment of a newer epoch than the ownership": {
			func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Epoch = 8 }, ownership.StageRefused},
		"another node holds the volume": {
			func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "a" }, ownership.StageRefused},
		"an ownership that is being released": {func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.State = apiv1.OwnershipReleasing
		}, ownership.StageRefused},
		"an ownership that was released": {func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary = &apiv1.Ownership{Epoch: 7, State: apiv1.OwnershipReleased}
		}, ownership.StageRefused},
		"no ownership": {func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary = nil }, ownership.StageRefused},
		"a proof that the node released this epoch": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 7}
		}, ownership.StageRefused},
		"a proof of an earlier epoch": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 6}
		}, ownership.StageAllowed},
		"an attachment of another node": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.NodeName = "a" },
			ownership.StageRefused},
		"an attachment of another volume": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.VolumeName = "w" },
			ownership.StageRefused},
		"a multi-node volume has no ownership": {func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			v.Spec.Access, v.Status.Primary, a.Spec.Epoch = apiv1.AccessMultiNode, nil, 1
		}, ownership.StageAllowed},
		"the VM that the disk is attached to, in another spelling": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.VMID = "/subscriptions/s/resourcegroups/rg/VM"
		}, ownership.StageAllowed},
		"another VM than the one that the disk is attached to": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.VMID = "/subscriptions/s/resourceGroups/rg/vm-of-old"
		}, ownership.StageRefused},
		"a multi-node volume with a proof that the node released it": {func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			v.Spec.Access, v.Status.Primary, a.Spec.Epoch = apiv1.AccessMultiNode, nil, 1
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 1}
		}, ownership.StageRefused},
		"a multi-node volume whose attachment is being deleted": {func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			v.Spec.Access = apiv1.AccessMultiNode
			a.DeletionTimestamp = ptr.To(metav1.Now())
		}, ownership.StageRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			volume, attachment := held()
			test.edit(volume, attachment)
			got := ownership.MayStage("b", "/subscriptions/s/resourceGroups/RG/vm", volume, attachment)
			if got.Outcome != test.want {
				t.Errorf("MayStage = %+v, want %s", got, test.want)
			}
			if got.Outcome == ownership.StageAllowed && (got.LUN != 3 || got.Epoch != attachment.Spec.Epoch) {
				t.Errorf("MayStage = %+v, want LUN 3 and epoch %d", got, attachment.Spec.Epoch)
			}
			if got.Outcome != ownership.StageAllowed && got.Reason == "" {
				t.Error("no reason is given")
			}
		})
	}
	volume, _ := held()
	if got := ownership.MayStage("b", "vm", volume, nil); got.Outcome != ownership.StageRefused {
		t.Errorf("without an attachment: %+v", got)
	}
}

func TestLaw2TheReasonIsTheOneToActOn(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("b", apiv1.RolePrimary, 7, apiv1.AttachmentFailed)
	a.Status.Error = &apiv1.Error{Message: "no slot"}
	held := objects.NewVolume(objects.Owned("b", 7, apiv1.OwnershipHeld))
	released := objects.NewVolume(objects.Owned("", 7, apiv1.OwnershipReleased))
	for got, want := range map[string]string{
		ownership.MayStage("b", "/vm/b", held, a).Reason:     "no slot",
		ownership.MayStage("b", "/vm/b", released, a).Reason: "has no primary",
		ownership.EpochOver("b", "/vm/b", 7, released, a):    "has no primary",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestLaw2TheEpochOfAStagedVolume(t *testing.T) {
	primary := func(node string, epoch int64, state apiv1.OwnershipState) *apiv1.Ownership {
		return &apiv1.Ownership{NodeName: node, Epoch: epoch, State: state}
	}
	attachment := &apiv1.AzVolumeAttachment{}
	proved := func(epoch int64) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{Proof: &apiv1.ReleaseProof{Epoch: epoch}}}
	}
	for name, test := range map[string]struct {
		primary    *apiv1.Ownership
		multiNode  bool
		attachment *apiv1.AzVolumeAttachment
		over       bool
	}{
		"held by this node":                          {primary("b", 3, apiv1.OwnershipHeld), false, attachment, false},
		"released by this node, not proved yet":      {primary("b", 3, apiv1.OwnershipReleasing), false, attachment, false},
		"held by this node, the attachment was lost": {primary("b", 3, apiv1.OwnershipHeld), false, nil, false},
		"held by this node under a later epoch":      {primary("b", 5, apiv1.OwnershipHeld), false, attachment, true},
		"held by another node":                       {primary("a", 4, apiv1.OwnershipHeld), false, nil, true},
		"held by another node under this epoch":      {primary("a", 3, apiv1.OwnershipHeld), false, nil, true},
		"released":                                   {primary("", 3, apiv1.OwnershipReleased), false, attachment, true},
		"without a primary":                          {nil, false, attachment, true},
		"proved under this epoch":                    {primary("b", 3, apiv1.OwnershipReleasing), false, proved(3), true},
		"proved under an epoch before":               {primary("b", 3, apiv1.OwnershipHeld), false, proved(2), false},
		"attached to another VM": {primary("b", 3, apiv1.OwnershipHeld), false,
			&apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{VMID: "old"}}, true},
		"of several nodes":                        {nil, true, attachment, false},
		"of several nodes, taken away":            {nil, true, proved(3), true},
		"of several nodes, without an attachment": {nil, true, nil, true},
		"of several nodes, being taken away for now": {nil, true,
			&apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}, false},
		"held by this node, detaching without a proof": {primary("b", 3, apiv1.OwnershipHeld), false,
			&apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentDetaching}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &apiv1.AzVolume{
				Spec:   apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode},
				Status: apiv1.AzVolumeStatus{Primary: test.primary},
			}
			if test.multiNode {
				v.Spec.Access = apiv1.AccessMultiNode
			}
			if why := ownership.EpochOver("b", "vm", 3, v, test.attachment); (why != "") != test.over {
				t.Errorf("EpochOver = %q, want over: %t", why, test.over)
			}
		})
	}
}
